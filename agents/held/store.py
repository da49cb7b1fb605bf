"""Saved rows: held ones complete and in order, skipped ones as coordinates.

A few skipped records are stored in the journal entry itself (`Skipped`), without a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.record_columns import MARK
from arrester.agents.executor.columns import (
    DECIDED,
    ENTRY,
    FATE,
    ORDINAL,
    POSITION,
    ROW,
    SOURCE,
    TASK,
)
from arrester.agents.failures.pause_offsets import must_hold
from arrester.agents.held.schema import HeldRowsMisfit, HeldRowsMissing, RowSchemas, alike, fitted
from arrester.agents.journal.entries import Chunk, Cursor, Held
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.agents.journal.state import Ledger, SavedRows
from arrester.controlplane.domain.errors import ArresterError

_HOLD = "__arrester_hold"
_PLACES = (
    T.StructField(TASK, T.StringType()),
    T.StructField(POSITION, T.LongType()),
    T.StructField(_HOLD, T.BooleanType()),
    T.StructField(ENTRY, T.IntegerType()),
)
#: At most this many folders per chunk: a micro-batch may have left one row in each.
CHUNK_FOLDERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStore:
    """The row folders of a checkpoint."""

    spark: SparkSession
    #: The checkpoint's folder.
    root: str
    #: Of the source at present.
    schema: T.StructType
    #: Schemas of earlier sources.
    types: RowSchemas

    def put(self, frame: DataFrame, cut: Column, *, order: int) -> tuple[str, list[Held]]:
        """Write the rows that do not go to the sink; return the folder's name and the held counts.

        Held are rows of blocked tasks, and rows from the pause offset `cut` on, under the entry
        number `order`. Failed rows before it leave their coordinates, so that a replay skips
        exactly these.
        """
        hold = must_hold(cut)
        rows = frame.where((F.col(ORDINAL) == 0) & (hold | (F.col(FATE) >= SOURCE)))
        row = F.when(hold, F.col(ROW)).alias(ROW)
        entry = F.when(hold, F.lit(order)).otherwise(F.col(ENTRY)).alias(ENTRY)
        name = self._write(rows.select(TASK, POSITION, hold.alias(_HOLD), row, entry), order)
        counts = self._places([name]).where(F.col(_HOLD)).groupBy(TASK).count().collect()
        return name, [Held(task=each[TASK], count=each["count"]) for each in counts]

    def put_skipped(self, failed: DataFrame, cut: Column, *, order: int) -> str:
        """Write the coordinates of failed records. Held rows of a chunk stay in their folder."""
        row = F.lit(None).cast(self.schema).alias(ROW)
        skipped = failed.where(~must_hold(cut))
        skipped = skipped.select(TASK, POSITION, F.lit(False).alias(_HOLD), row, ENTRY)
        return self._write(skipped, order)

    def _write(self, written: DataFrame, order: int) -> str:
        # The name is unique: a run that has lost its number may still be writing.
        name = f"{order:020d}-{uuid.uuid4().hex[:8]}-{self.types.keep(self.schema)}"
        written.write.parquet(self._path(name))
        return name

    def marks(self, saved_rows: Sequence[SavedRows]) -> DataFrame | None:
        """Return decision marks for all records in `saved_rows`, None if there are none."""
        if not saved_rows:
            return None
        told = [
            (each.task, position, False, each.entry)
            for saved in saved_rows
            for each in saved.skipped
            for position in each.positions
        ]
        coordinates = self.spark.createDataFrame(told, T.StructType(list(_PLACES)))
        if names := [saved.name for saved in saved_rows if saved.name is not None]:
            coordinates = coordinates.unionByName(self._places(names))
        # A record that is held now had no entry in its micro-batch.
        entry = F.when(F.col(_HOLD), F.lit(0)).otherwise(F.col(ENTRY)).alias(ENTRY)
        return coordinates.select(TASK, entry, POSITION, F.lit(DECIDED).alias(MARK))

    def next_chunk(self, ledger: Ledger, key: str | None, *, limit: int) -> Chunk:
        """Return the next held rows of a task, at least one and about `limit` of them.

        Rows with the same position stay together.
        """
        task = ledger.task(key)
        start = task.cursor or Cursor(entry=0)
        names = self._folders(ledger, key, at_least=limit)[:CHUNK_FOLDERS]
        waiting = _waiting(self._places(names), key, start)
        order = (F.col(ENTRY), F.col(POSITION).asc_nulls_first())
        last = (
            waiting.orderBy(*order)
            .limit(limit)
            .orderBy(F.col(ENTRY).desc(), F.col(POSITION).desc_nulls_last())
            .select(ENTRY, POSITION)
            .first()
        )
        if last is None:
            raise HeldRowsMissing(f"{task.held} rows of task {key!r} are not in {self.root}")
        end = after(last[ENTRY], last[POSITION])
        taken = waiting.where(~_is_from(end)).count()
        return Chunk(task=key, start=start, end=end, taken=taken)

    def first_record(self, ledger: Ledger, key: str | None) -> Chunk:
        """Return the chunk of the next held record only: all rows at its position."""
        return self.next_chunk(ledger, key, limit=1)

    def records_before(self, ledger: Ledger, key: str | None, position: int) -> Chunk:
        """Return the chunk of a task's next held records up to, not including, `position`.

        Raises PositionNotHeld if it is more than one after the last of them: the records before it
        are not known yet.
        """
        task = ledger.task(key)
        start = task.cursor or Cursor(entry=0)
        names = self._folders(ledger, key)
        waiting = _waiting(self._places(names), key, start) if task.held else None
        place = (F.col(ENTRY).alias("entry"), F.col(POSITION).alias("position"))
        order = (F.col(ENTRY), F.col(POSITION).asc_nulls_first())
        if waiting is None:
            raise PositionNotHeld(f"task {key!r} holds no records to go on at")
        first = waiting.where(F.col(POSITION) >= position).select(*place).orderBy(*order).first()
        if first is not None:
            end = Cursor(entry=first["entry"], position=first["position"])
            taken = waiting.where(~_is_from(end)).count()
            return Chunk(task=key, start=start, end=end, taken=taken)
        last = waiting.agg(F.max(F.struct(*place)).alias("place")).first()
        place_of_last = None if last is None else last["place"]
        if place_of_last is None or position > (place_of_last["position"] or 0) + 1:
            held = None if place_of_last is None else place_of_last["position"]
            raise PositionNotHeld(f"the last record that task {key!r} holds is at position {held}")
        end = after(place_of_last["entry"], place_of_last["position"])
        return Chunk(task=key, start=start, end=end, taken=task.held)

    def first_position(self, ledger: Ledger, key: str | None) -> int | None:
        """Return the position of the next held record of a task."""
        end = self.first_record(ledger, key).end.position
        return None if end is None or end == -(2**63) else end - 1

    def rows(self, ledger: Ledger, chunk: Chunk) -> DataFrame:
        """Return the rows of a chunk, in order, with their entry and the source's columns.

        Raises HeldRowsMisfit if rows of an earlier schema cannot be converted.
        """
        return self._of_chunk(self._fitted, ledger, chunk)

    def skipped_rows(self, ledger: Ledger, chunk: Chunk) -> DataFrame:
        """Return the rows of a chunk that is skipped, unconverted if they do not fit."""
        try:
            return self.rows(ledger, chunk)
        except HeldRowsMisfit:
            return self._of_chunk(self._as_they_are, ledger, chunk)

    def _of_chunk(
        self, read: Callable[[Sequence[str]], DataFrame], ledger: Ledger, chunk: Chunk
    ) -> DataFrame:
        names = self._folders(ledger, chunk.task, through=chunk.end.entry)
        found = _waiting(read(names), chunk.task, chunk.start).where(~_is_from(chunk.end))
        return found.orderBy(F.col(ENTRY), F.col(POSITION).asc_nulls_first())

    def shorten_chunk(self, ledger: Ledger, chunk: Chunk, end: Cursor) -> Chunk:
        """Return the chunk up to the record at `end`. That record and the later ones stay held."""
        taken = self._of_chunk(self._places, ledger, chunk).where(~_is_from(end)).count()
        return Chunk(task=chunk.task, start=chunk.start, end=end, taken=taken, after=chunk.after)

    def _folders(
        self,
        ledger: Ledger,
        key: str | None,
        *,
        at_least: int | None = None,
        through: int | None = None,
    ) -> list[str]:
        """Return the folders of a task's next `at_least` rows, or all folders up to an entry."""
        names, count = [], 0
        # The cursor may be inside the first folder, so its count is not used.
        for index, (saved, name, held) in enumerate(ledger.held_folders(key)):
            enough = at_least is not None and count >= at_least
            if enough or (through is not None and saved.entry > through):
                break
            names.append(name)
            count += held if index else 0
        return names

    def _places(self, names: Sequence[str]) -> DataFrame:
        """Return the coordinates of the records in some folders, without their rows."""
        return self._read(names, *_PLACES)

    def _fitted(self, names: Sequence[str]) -> DataFrame:
        """Return rows of some folders with the source's present columns."""
        frames = [fitted(each, self.schema) for each in self._by_type(names)]
        return reduce(DataFrame.unionByName, frames)

    def _as_they_are(self, names: Sequence[str]) -> DataFrame:
        return reduce(DataFrame.unionByName, alike(self._by_type(names)))

    def _by_type(self, names: Sequence[str]) -> list[DataFrame]:
        """Return the rows of some folders, one DataFrame for each schema."""
        known: dict[str, list[str]] = {}
        kinds: dict[str, T.StructType] = {}
        for name in names:
            kind = self.types.of(name)
            known.setdefault(kind.json(), []).append(name)
            kinds[kind.json()] = kind
        return [
            self._read(some, *_PLACES, T.StructField(ROW, kinds[kind]))
            for kind, some in known.items()
        ]

    def _read(self, names: Sequence[str], *fields: T.StructField) -> DataFrame:
        reader = self.spark.read.schema(T.StructType(list(fields)))
        return reader.parquet(*[self._path(name) for name in names])

    def _path(self, name: str) -> str:
        return f"{self.root}/{ROWS_FOLDER}/{name}"


def _waiting(found: DataFrame, key: str | None, start: Cursor) -> DataFrame:
    mine = F.col(TASK).eqNullSafe(F.lit(key)) & F.col(_HOLD)
    return found.where(mine & _is_from(start))


class PositionNotHeld(ArresterError):
    """A task cannot resume at a position that it does not hold. Give one that it holds."""


def is_needed(ledger: Ledger, saved: SavedRows, *, committed: int) -> bool:
    """Whether saved rows are still needed: for a replay, or because they are held."""
    if saved.batch is not None and saved.batch > committed:
        return True
    chunk = ledger.open_chunk
    if chunk is not None and saved in ledger.open_saved_rows:
        return True
    for held in saved.held:
        task = ledger.task(held.task)
        if task.held and task.cursor is not None and task.cursor.entry <= saved.entry:
            return True
    return False


def _is_from(cursor: Cursor) -> Column:
    """Return whether a held row is at or after the cursor."""
    later = F.col(ENTRY) > cursor.entry
    here = F.col(ENTRY) == cursor.entry
    if cursor.position is None:
        return later | here
    return later | (here & F.coalesce(F.col(POSITION) >= cursor.position, F.lit(False)))


def after(entry: int, position: int | None) -> Cursor:
    """Return the cursor just after a row. A position of None precedes all numbers."""
    if position is None:
        return Cursor(entry=entry, position=-(2**63))
    if position == 2**63 - 1:
        return Cursor(entry=entry + 1)
    return Cursor(entry=entry, position=position + 1)
