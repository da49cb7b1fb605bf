"""Saved rows: held ones complete and in order, skipped ones as coordinates.

A few skipped records are stored in the journal entry itself (`SkippedRecords`), without a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.record_columns import MARK
from arrester.agents.failures.pause_offsets import cursor_after, is_held, pause_offset_of, place
from arrester.agents.held.schema import (
    HeldRowsMismatch,
    HeldRowsMissing,
    RowSchemas,
    converted,
    with_all_columns,
)
from arrester.agents.journal.entries import Chunk, Cursor, HeldCount
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.worker.columns import (
    DECIDED,
    ENTRY,
    ORDINAL,
    OUTCOME,
    POSITION,
    ROW,
    SOURCE,
    TASK,
)
from arrester.controlplane.domain.errors import ArresterError

_HOLD = "__arrester_hold"
_COORDINATES = (
    T.StructField(TASK, T.StringType()),
    T.StructField(POSITION, T.LongType()),
    T.StructField(_HOLD, T.BooleanType()),
    T.StructField(ENTRY, T.IntegerType()),
)
#: At most this many folders per chunk: a micro-batch may have left one row in each.
CHUNK_FOLDERS = 256


class PositionNotHeld(ArresterError):
    """A task cannot resume at a position that it does not hold. Give one that it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStore:
    """The row folders of a checkpoint."""

    spark: SparkSession
    #: The checkpoint's folder.
    root: str
    #: The present schema of the source.
    schema: T.StructType
    #: All schemas of held rows, also earlier ones.
    schemas: RowSchemas

    def save(
        self, frame: DataFrame, pause_offsets: Mapping[str, Cursor], *, order: int
    ) -> tuple[str, list[HeldCount]]:
        """Write the rows that do not go to the sink; return the folder's name and the held counts.

        Rows from a pause offset on are held, under the entry number `order`. Of other failed rows
        the coordinates are written, so that a replay skips exactly these.
        """
        offset = pause_offset_of(pause_offsets)
        held = is_held(offset)
        rows = frame.where((F.col(ORDINAL) == 0) & (held | (F.col(OUTCOME) >= SOURCE)))
        row = F.when(held, F.col(ROW)).alias(ROW)
        entry = F.when(held, F.lit(order)).otherwise(F.col(ENTRY)).alias(ENTRY)
        name = self._write(rows.select(TASK, POSITION, held.alias(_HOLD), row, entry), order)
        stops = offset.isNotNull() & F.col(POSITION).eqNullSafe(offset["position"])
        counts = (
            self._coordinates([name])
            .where(F.col(_HOLD))
            .groupBy(TASK)
            .agg(F.count("*").alias("count"), F.count_if(stops).alias("stopping"))
        )
        return name, [
            HeldCount(task=row[TASK], count=row["count"], stopping=row["stopping"] or None)
            for row in counts.collect()
        ]

    def save_skipped(self, failed: DataFrame, *, order: int) -> str:
        """Write the coordinates of failed records. Held rows of a chunk stay in their folder."""
        row = F.lit(None).cast(self.schema).alias(ROW)
        coordinates = failed.select(TASK, POSITION, F.lit(False).alias(_HOLD), row, ENTRY)
        return self._write(coordinates, order)

    def _write(self, rows: DataFrame, order: int) -> str:
        # The name is unique: a superseded run may still write under the same entry number.
        name = f"{order:020d}-{uuid.uuid4().hex[:8]}-{self.schemas.save(self.schema)}"
        rows.write.parquet(self._path(name))
        return name

    def decision_marks(self, saved_rows: Sequence[SavedRows]) -> DataFrame:
        """Return decision marks for all records in `saved_rows`."""
        in_journal = [
            (skipped.task, position, False, skipped.entry)
            for saved in saved_rows
            for skipped in saved.skipped
            for position in skipped.positions
        ]
        coordinates = self.spark.createDataFrame(in_journal, T.StructType(list(_COORDINATES)))
        if names := [saved.name for saved in saved_rows if saved.name is not None]:
            coordinates = coordinates.unionByName(self._coordinates(names))
        # A record that is held now had no entry in its micro-batch.
        entry = F.when(F.col(_HOLD), F.lit(0)).otherwise(F.col(ENTRY)).alias(ENTRY)
        return coordinates.select(TASK, entry, POSITION, F.lit(DECIDED).alias(MARK))

    def next_chunk(self, ledger: Ledger, key: str | None, *, limit: int) -> Chunk:
        """Return the next held rows of a task, at least one and about `limit` of them.

        Micro-batches that fit are taken as a whole, from what the journal has about them. Only to
        divide a larger one, its rows are read.
        """
        task = ledger.task(key)
        start = task.cursor or Cursor(entry=0)
        end, taken = start, 0
        for entry, count in self._counts_by_entry(ledger, key)[:CHUNK_FOLDERS]:
            if taken + count > limit:
                break
            end, taken = Cursor(entry=entry + 1), taken + count
        if taken:
            return Chunk(task=key, start=start, end=end, taken=taken)
        return self._first_rows(ledger, key, limit=limit)

    def first_record(self, ledger: Ledger, key: str | None) -> Chunk:
        """Return the chunk of the next held record only: all rows at its position.

        The journal has the record that stopped a task. Rows are read for another one, and if 0.2.0
        wrote the entry.
        """
        task = ledger.task(key)
        if task.stopped_by is None or task.stopping is None or task.cursor is None:
            return self._first_rows(ledger, key, limit=1)
        end = cursor_after(task.cursor.entry, task.stopped_by.position)
        return Chunk(task=key, start=task.cursor, end=end, taken=task.stopping)

    def _counts_by_entry(self, ledger: Ledger, key: str | None) -> list[tuple[int, int]]:
        """Return the entries that hold rows of a task, in order, each with their number."""
        counts: dict[int, int] = {}
        for saved, _, count in ledger.held_folders(key):
            counts[saved.entry] = counts.get(saved.entry, 0) + count
        by_entry = sorted(counts.items())
        if by_entry:
            # Some rows of the first one may precede the cursor, or all of them.
            rest = sum(count for _, count in by_entry[1:])
            by_entry[0] = (by_entry[0][0], ledger.task(key).held - rest)
        return [(entry, count) for entry, count in by_entry if count]

    def _first_rows(self, ledger: Ledger, key: str | None, *, limit: int) -> Chunk:
        """Return at least one and about `limit` of the first rows of a task, of one entry.

        Rows with the same position stay together.
        """
        task = ledger.task(key)
        start = task.cursor or Cursor(entry=0)
        by_entry = self._counts_by_entry(ledger, key)
        if not by_entry:
            raise HeldRowsMissing(f"the journal has no folder of the rows of task {key!r}")
        first, _ = by_entry[0]
        names = [name for saved, name, _ in ledger.held_folders(key) if saved.entry == first]
        remaining = _of_task(self._coordinates(names), key, start)
        chunk = remaining.orderBy(ENTRY, F.col(POSITION).asc_nulls_first()).limit(limit)
        last = chunk.agg(F.max(place()).alias("place")).collect()[0]["place"]
        if last is None:
            raise HeldRowsMissing(f"{task.held} rows of task {key!r} are not in {self.root}")
        end = cursor_after(last["entry"], last["position"])
        taken = remaining.where(~_is_from(end)).count()
        return Chunk(task=key, start=start, end=end, taken=taken)

    def records_before(self, ledger: Ledger, key: str | None, position: int) -> Chunk:
        """Return the chunk of a task's next held records up to, not including, `position`.

        Raises PositionNotHeld if `position` is more than one after the last of them: records before
        it may still arrive.
        """
        task = ledger.task(key)
        start = task.cursor or Cursor(entry=0)
        if not task.held:
            raise PositionNotHeld(f"task {key!r} holds no records to go on at")
        names = [name for _, name, _ in ledger.held_folders(key)]
        remaining = _of_task(self._coordinates(names), key, start)
        from_position = remaining.where(F.col(POSITION) >= position)
        first = from_position.agg(F.min(place()).alias("place")).collect()[0]["place"]
        if first is not None:
            end = Cursor(**first.asDict())
            taken = remaining.where(~_is_from(end)).count()
            return Chunk(task=key, start=start, end=end, taken=taken)
        last = remaining.agg(F.max(place()).alias("place")).collect()[0]["place"]
        if last is None or position > (last["position"] or 0) + 1:
            at = None if last is None else last["position"]
            raise PositionNotHeld(f"the last record that task {key!r} holds is at position {at}")
        end = cursor_after(last["entry"], last["position"])
        return Chunk(task=key, start=start, end=end, taken=task.held)

    def first_position(self, ledger: Ledger, key: str | None) -> int | None:
        """Return the position of the next held record of a task."""
        end = self.first_record(ledger, key).end.position
        return None if end is None or end == -(2**63) else end - 1

    def rows(self, ledger: Ledger, chunk: Chunk) -> DataFrame:
        """Return the rows of a chunk, in order, with their entry and the source's columns.

        Raises HeldRowsMismatch if rows of an earlier schema cannot be converted.
        """
        return self._of_chunk(self._converted, ledger, chunk)

    def skipped_rows(self, ledger: Ledger, chunk: Chunk) -> DataFrame:
        """Return the rows of a skipped chunk, unconverted if the present schema does not fit."""
        try:
            return self.rows(ledger, chunk)
        except HeldRowsMismatch:
            return self._of_chunk(self._unconverted, ledger, chunk)

    def _of_chunk(
        self, read: Callable[[Sequence[str]], DataFrame], ledger: Ledger, chunk: Chunk
    ) -> DataFrame:
        folders = ledger.held_folders(chunk.task, start=chunk.start)
        names = [name for saved, name, _ in folders if saved.entry <= chunk.end.entry]
        rows = _of_task(read(names), chunk.task, chunk.start).where(~_is_from(chunk.end))
        return rows.orderBy(F.col(ENTRY), F.col(POSITION).asc_nulls_first())

    def check_rows(self, ledger: Ledger, chunk: Chunk) -> None:
        """Raise HeldRowsMissing unless all rows of a chunk are there."""
        found = self._of_chunk(self._coordinates, ledger, chunk).count()
        if found != chunk.taken:
            missing = chunk.taken - found
            raise HeldRowsMissing(
                f"{missing} of {chunk.taken} rows of task {chunk.task!r} are not in {self.root}"
            )

    def shorten_chunk(self, ledger: Ledger, chunk: Chunk, end: Cursor) -> Chunk:
        """Return the chunk up to the record at `end`. That record and the later ones stay held."""
        rows = self._of_chunk(self._coordinates, ledger, chunk)
        stops = (F.col(ENTRY) == end.entry) & F.col(POSITION).eqNullSafe(F.lit(end.position))
        [[taken, stopping]] = rows.agg(F.count_if(~_is_from(end)), F.count_if(stops)).collect()
        return replace(chunk, end=end, taken=taken, stopping=stopping)

    def _coordinates(self, names: Sequence[str]) -> DataFrame:
        """Return the coordinates of the records in some folders, without their rows."""
        return self._read(names, *_COORDINATES)

    def _converted(self, names: Sequence[str]) -> DataFrame:
        """Return rows of some folders with the source's present columns."""
        frames = [converted(rows, self.schema) for rows in self._by_schema(names)]
        return reduce(DataFrame.unionByName, frames)

    def _unconverted(self, names: Sequence[str]) -> DataFrame:
        return reduce(DataFrame.unionByName, with_all_columns(self._by_schema(names)))

    def _by_schema(self, names: Sequence[str]) -> list[DataFrame]:
        """Return the rows of some folders, one DataFrame for each schema."""
        names_by_schema: dict[str, list[str]] = {}
        for name in names:
            names_by_schema.setdefault(self.schemas.of(name).json(), []).append(name)
        return [
            self._read(of_schema, *_COORDINATES, T.StructField(ROW, self.schemas.of(of_schema[0])))
            for of_schema in names_by_schema.values()
        ]

    def _read(self, names: Sequence[str], *fields: T.StructField) -> DataFrame:
        reader = self.spark.read.schema(T.StructType(list(fields)))
        return reader.parquet(*[self._path(name) for name in names])

    def _path(self, name: str) -> str:
        return f"{self.root}/{ROWS_FOLDER}/{name}"


def _of_task(rows: DataFrame, key: str | None, start: Cursor) -> DataFrame:
    is_held_by_task = F.col(TASK).eqNullSafe(F.lit(key)) & F.col(_HOLD)
    return rows.where(is_held_by_task & _is_from(start))


def is_needed(ledger: Ledger, saved: SavedRows, *, committed: int) -> bool:
    """Whether saved rows are still needed: for a replay, or because they are held."""
    if saved.batch is not None and saved.batch > committed:
        return True
    chunk = ledger.open_chunk
    if chunk is not None and saved in ledger.open_saved_rows:
        return True
    skipped = [each.chunk for each in ledger.unstored_dead_letters.values()]
    for held in saved.held:
        if any(
            chunk.task == held.task and chunk.start.entry <= saved.entry <= chunk.end.entry
            for chunk in skipped
        ):
            return True
        task = ledger.task(held.task)
        if task.held and task.cursor is not None and task.cursor.entry <= saved.entry:
            return True
    return False


def _is_from(cursor: Cursor) -> Column:
    """Return whether a held row is at or after the cursor."""
    is_later_entry = F.col(ENTRY) > cursor.entry
    is_same_entry = F.col(ENTRY) == cursor.entry
    if cursor.position is None:
        return is_later_entry | is_same_entry
    is_from_position = F.coalesce(F.col(POSITION) >= cursor.position, F.lit(False))
    return is_later_entry | (is_same_entry & is_from_position)
