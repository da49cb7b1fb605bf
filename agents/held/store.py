"""Saved rows: held ones complete and in order, skipped ones as coordinates.

A few skipped records are stored in the journal entry itself (`SkippedRecords`), without a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.record_columns import MARK
from arrester.agents.failures.pause_offsets import is_held, pause_offset_of
from arrester.agents.held.chunk_bounds import (
    CHUNK,
    STOPPED_CHUNK,
    ends_frame,
    is_at_end,
    is_before_end,
    rows_in,
)
from arrester.agents.held.journal_counts import may_have_rows
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
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.session_conf import conf, exact_parquet
from arrester.agents.worker.columns import (
    DECIDED,
    ENTRY,
    MENDED_BY,
    ORDINAL,
    OUTCOME,
    POSITION,
    ROW,
    SOURCE,
    TASK,
)
from arrester.domain.plural import plural

_HOLD = "__arrester_hold"
_STOPS = "__arrester_stops"
_IS_SAME = "__arrester_is_same"
_COORDINATES = (
    T.StructField(TASK, T.StringType()),
    T.StructField(POSITION, T.LongType()),
    T.StructField(_HOLD, T.BooleanType()),
    T.StructField(ENTRY, T.IntegerType()),
    T.StructField(MENDED_BY, T.IntegerType()),
)
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


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
        self,
        frame: DataFrame,
        pause_offsets: Mapping[str, Cursor],
        *,
        order: int,
        aggregates: Sequence[Column],
    ) -> tuple[str, list[HeldCount], Mapping[str, Any]]:
        """Write the rows that do not go to the sink; return the folder's name and the held counts.

        Rows from a pause offset on are held, under the entry number `order`. Of other failed rows
        the coordinates are written, so that a replay skips exactly these. The last result has the
        values of `aggregates` over all these rows.
        """
        offset = pause_offset_of(pause_offsets)
        held = is_held(offset)
        rows = frame.where((F.col(ORDINAL) == 0) & (held | (F.col(OUTCOME) >= SOURCE)))
        entry = F.when(held, F.lit(order)).otherwise(F.col(ENTRY)).alias(ENTRY)
        stops = _is_at(offset).alias(_STOPS)
        rows = rows.select(TASK, POSITION, held.alias(_HOLD), stops, ROW, entry)
        observation = Observation()
        rows = rows.observe(observation, *aggregates, *_aggregates())
        row = F.when(F.col(_HOLD), F.col(ROW)).alias(ROW)
        name = self._write(rows.select(TASK, POSITION, _HOLD, row, ENTRY), order)
        observed = observation.get
        is_one_task = observed["first_task"] == observed["last_task"]
        if is_one_task and observed["tasks"] in (0, observed["held"]):
            # Usually one task has stopped.
            counts = [_held_count(observed["first_task"], observed)] if observed["held"] else []
        else:
            counts = self._held_counts(name, offset)
        return name, counts, observed

    def save_again(self, rows: DataFrame, *, order: int) -> str:
        """Write rows that are to be processed again, with TASK, POSITION and ROW; return the
        folder's name."""
        return self._write(
            rows.select("*", F.lit(True).alias(_HOLD), F.lit(order).alias(ENTRY)), order
        )

    def _held_counts(self, name: str, pause_offset: Column) -> list[HeldCount]:
        """Return the held rows of a folder by task."""
        held = self._coordinates([name]).where(_HOLD).withColumn(_STOPS, _is_at(pause_offset))
        counts = held.groupBy(TASK).agg(*_aggregates()).collect()
        return [_held_count(row[TASK], row.asDict()) for row in counts]

    def save_skipped(self, failed: DataFrame, *, order: int) -> str:
        """Write the coordinates of failed records. Held rows of a chunk stay in their folder."""
        row = F.lit(None).cast(self.schema).alias(ROW)
        coordinates = failed.select(TASK, POSITION, F.lit(False).alias(_HOLD), row, ENTRY)
        return self._write(coordinates, order)

    def _write(self, rows: DataFrame, order: int) -> str:
        # The name is unique: a superseded run may still write under the same entry number.
        name = f"{order:020d}-{uuid.uuid4().hex[:8]}-{self.schemas.save(self.schema)}"
        with exact_parquet(rows.sparkSession):
            rows.write.parquet(self._path(name))
        return name

    def decision_marks(self, saved_rows: Sequence[SavedRows]) -> DataFrame:
        """Return decision marks for all records in `saved_rows`."""
        in_journal = [
            (skipped.task, position, False, skipped.entry, None)
            for saved in saved_rows
            for skipped in saved.skipped
            for position in skipped.positions
        ]
        coordinates = local_frame(self.spark, in_journal, T.StructType(list(_COORDINATES)))
        if names := [saved.name for saved in saved_rows if saved.name is not None]:
            coordinates = coordinates.unionByName(self._coordinates(names))
        # A record that is held now had no entry in its micro-batch.
        entry = F.when(F.col(_HOLD), F.lit(0)).otherwise(F.col(ENTRY)).alias(ENTRY)
        return coordinates.select(TASK, entry, POSITION, F.lit(DECIDED).alias(MARK))

    def held_rows(self, saved_rows: Sequence[SavedRows]) -> DataFrame:
        """Return the held rows in `saved_rows`, with the source's present columns."""
        names = [saved.name for saved in saved_rows if saved.name is not None]
        if not names:
            empty = T.StructType([*_COORDINATES, T.StructField(ROW, self.schema)])
            return self.spark.createDataFrame([], empty)
        return self._converted(names).where(F.col(_HOLD))

    def coordinates(self, ledger: Ledger, chunks: Sequence[Chunk]) -> DataFrame:
        """Return the coordinates of the records of some chunks, without their rows."""
        return self._of_chunks(self._coordinates, ledger, chunks)

    def rows(self, ledger: Ledger, chunks: Sequence[Chunk]) -> DataFrame:
        """Return the rows of some chunks with their entry and the source's columns.

        The rows of a task are in order: in one partition, if there are several tasks.
        Raises HeldRowsMismatch if rows of an earlier schema cannot be converted.
        """
        rows = self._of_chunks(self._converted, ledger, chunks)
        order = F.col(ENTRY), F.col(POSITION).asc_nulls_first()
        if len(chunks) == 1:
            return rows.orderBy(*order)
        # To sort all rows, Spark would read them once more, for a sample.
        return rows.repartition(F.col(TASK)).sortWithinPartitions(*order)

    def skipped_rows(self, ledger: Ledger, chunks: Sequence[Chunk]) -> DataFrame:
        """Return the rows of skipped chunks, unconverted if the present schema does not fit.

        CHUNK has the index of a row's chunk.
        """
        try:
            return self._of_chunks(self._converted, ledger, chunks)
        except HeldRowsMismatch:
            return self._of_chunks(self._unconverted, ledger, chunks)

    def _of_chunks(
        self,
        read: Callable[[Sequence[str]], DataFrame],
        ledger: Ledger,
        chunks: Sequence[Chunk],
    ) -> DataFrame:
        """Return the held rows of some chunks, each with the index of its chunk."""
        held_rows = ledger.held_rows([chunk.task for chunk in chunks])
        names = {
            saved.name: None
            for chunk in chunks
            for saved, _ in held_rows[chunk.task]
            if saved.name is not None and may_have_rows(chunk, saved)
        }
        return rows_in(chunks, read(list(names)).where(_HOLD))

    def check_rows(
        self, ledger: Ledger, chunks: Sequence[Chunk], task: Callable[[DataFrame], Column]
    ) -> bool:
        """Raise HeldRowsMissing unless all rows of some chunks are there.

        Return whether the rows of several chunks are still of the tasks that held them: `task`
        returns the present key of the rows of a frame, NULL if it is unknown.
        """
        has_several = len(chunks) > 1
        read = self._converted if has_several else self._coordinates
        rows = self._of_chunks(read, ledger, chunks)
        is_same = F.lit(True)
        if has_several:
            rows = rows.select(TASK, f"{ROW}.*")
            is_same = F.col(TASK).eqNullSafe(task(rows))
        counts = rows.select(is_same.alias(_IS_SAME)).agg(F.count("*"), F.count_if(_IS_SAME))
        [[found, same]] = counts.collect()
        taken = sum(chunk.taken for chunk in chunks)
        if found != taken:
            tasks = f"task {chunks[0].task!r}" if len(chunks) == 1 else f"{len(chunks)} tasks"
            rows_missing = f"{taken - found:,} of {plural(taken, 'row')}"
            raise HeldRowsMissing(f"{rows_missing} of {tasks} not found in {self.root}")
        return bool(same == found)

    def shorten(
        self, ledger: Ledger, chunks: Sequence[Chunk], ends: Mapping[int, Cursor]
    ) -> tuple[Chunk, ...]:
        """Return the chunks, some of them up to the record at an end, by their index.

        That record and the later ones stay held.
        """
        if not ends:
            return tuple(chunks)
        rows = self.coordinates(ledger, chunks)
        stops = F.broadcast(ends_frame(self.spark, ends))
        counts = (
            rows.join(stops, F.col(CHUNK) == F.col(STOPPED_CHUNK))
            .groupBy(CHUNK)
            .agg(F.count_if(is_before_end()), F.count_if(is_at_end()))
        )
        shortened = list(chunks)
        for index, taken, stopping in counts.collect():
            shortened[index] = replace(
                chunks[index], end=ends[index], taken=taken, stopping=stopping
            )
        return tuple(shortened)

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
        ] or [self._read([], *_COORDINATES, T.StructField(ROW, self.schema))]

    def _read(self, names: Sequence[str], *fields: T.StructField) -> DataFrame:
        schema = T.StructType(list(fields))
        if not names:
            return self.spark.createDataFrame([], schema)
        # By default, Spark lists many folders in a job with a task for each of them.
        tasks = {_LISTING_TASKS: str(self.spark.sparkContext.defaultParallelism)}
        with conf(self.spark, tasks):
            return self.spark.read.schema(schema).parquet(*[self._path(name) for name in names])

    def _path(self, name: str) -> str:
        return f"{self.root}/{ROWS_FOLDER}/{name}"


def _is_at(pause_offset: Column) -> Column:
    """Return whether a row is of the record that stops its task."""
    is_position = F.col(POSITION).eqNullSafe(pause_offset["position"])
    return pause_offset.isNotNull() & is_position


# Cached: making a Column takes many calls to the JVM.
@cache
def _aggregates() -> tuple[Column, ...]:
    """Return the parts of a `HeldCount`, as aggregates over rows of which some are held."""
    held = F.col(_HOLD)
    position, task = F.when(held, F.col(POSITION)), F.when(held, F.col(TASK))
    return (
        F.count_if(held).alias("held"),
        F.count_if(held & F.col(_STOPS)).alias("stopping"),
        *(F.count(position).alias("positions"), F.count(task).alias("tasks")),
        *(F.min(position).alias("first"), F.max(position).alias("last")),
        *(F.min(task).alias("first_task"), F.max(task).alias("last_task")),
    )


def _held_count(task: str | None, values: Mapping[str, Any]) -> HeldCount:
    # Without positions, the order within the entry is unknown.
    has_positions = values["positions"] == values["held"]
    return HeldCount(
        task=task,
        count=values["held"],
        stopping=values["stopping"] or None,
        first=values["first"] if has_positions else None,
        last=values["last"] if has_positions else None,
    )
