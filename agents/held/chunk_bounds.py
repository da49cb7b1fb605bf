"""The held rows of chunks: those between the bounds of a chunk of their task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.journal.entries import Chunk, Cursor
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.worker.columns import ENTRY, MENDED_BY, POSITION, TASK

#: The index of a row's chunk.
CHUNK = "__arrester_chunk"
STOPPED_CHUNK = "__arrester_stopped_chunk"
_CHUNK_TASK = "__arrester_chunk_task"
_START_ENTRY, _START_POSITION = "__arrester_start_entry", "__arrester_start_position"
_END_ENTRY, _END_POSITION = "__arrester_end_entry", "__arrester_end_position"
_MENDED_ENTRY, _MENDED_POSITION = "__arrester_mended_entry", "__arrester_mended_position"
_LAST_MENDED_BY = "__arrester_last_mended_by"
_END = (
    T.StructField(_END_ENTRY, T.IntegerType()),
    T.StructField(_END_POSITION, T.LongType()),
)
_BOUNDS = T.StructType(
    [
        T.StructField(CHUNK, T.IntegerType()),
        T.StructField(_CHUNK_TASK, T.StringType()),
        T.StructField(_START_ENTRY, T.IntegerType()),
        T.StructField(_START_POSITION, T.LongType()),
        *_END,
        T.StructField(_MENDED_ENTRY, T.IntegerType()),
        T.StructField(_MENDED_POSITION, T.LongType()),
        T.StructField(_LAST_MENDED_BY, T.IntegerType()),
    ]
)
_ENDS = T.StructType([T.StructField(STOPPED_CHUNK, T.IntegerType()), *_END])


def rows_in(chunks: Sequence[Chunk], rows: DataFrame) -> DataFrame:
    """Return the rows that are in one of the chunks, each with the index of its chunk.

    Of a changed record these are the rows of the last change.
    """
    bounds = [
        (index, chunk.task, *_fields(chunk.start), *_fields(chunk.end), *_mended(chunk))
        for index, chunk in enumerate(chunks)
    ]
    if len(bounds) == 1:
        # A filter: a join would be one more job.
        index, *literals = [F.lit(value) for value in bounds[0]]
        return rows.where(_is_between(literals)).withColumn(CHUNK, index)
    frame = F.broadcast(local_frame(rows.sparkSession, bounds, _BOUNDS))
    is_in_chunk = _is_between([F.col(name) for name in frame.columns[1:]])
    return rows.join(frame, is_in_chunk).select(*rows.columns, CHUNK)


def _is_between(bounds: Sequence[Column]) -> Column:
    """Return whether a held row is between bounds: task, entry and position of both ends, and no
    earlier form of the changed record."""
    task, start_entry, start_position, end_entry, end_position, *mended = bounds
    entry, position, by = mended
    is_of_task = F.col(TASK).eqNullSafe(task)
    is_mended = F.col(ENTRY).eqNullSafe(entry) & F.col(POSITION).eqNullSafe(position)
    is_within = is_from(start_entry, start_position) & ~is_from(end_entry, end_position)
    return is_of_task & is_within & (~is_mended | F.col(MENDED_BY).eqNullSafe(by))


def ends_frame(spark: SparkSession, ends: Mapping[int, Cursor]) -> DataFrame:
    """Return a row for each new end of a chunk, given by the index of the chunk."""
    rows = [(index, *_fields(end)) for index, end in ends.items()]
    return local_frame(spark, rows, _ENDS)


def is_before_end() -> Column:
    """Return whether a held row is before the end in its row."""
    return ~is_from(F.col(_END_ENTRY), F.col(_END_POSITION))


def is_at_end() -> Column:
    """Return whether a held row is of the record at the end in its row."""
    is_position = F.col(POSITION).eqNullSafe(F.col(_END_POSITION))
    return (F.col(ENTRY) == F.col(_END_ENTRY)) & is_position


def is_from(entry: Column, position: Column) -> Column:
    """Return whether a held row is at or after a cursor."""
    is_later_entry = F.col(ENTRY) > entry
    is_from_position = position.isNull() | F.coalesce(F.col(POSITION) >= position, F.lit(False))
    return is_later_entry | ((F.col(ENTRY) == entry) & is_from_position)


def _mended(chunk: Chunk) -> tuple[int | None, int | None, int | None]:
    mended = chunk.mended
    return (None, None, None) if mended is None else (mended.entry, mended.position, mended.by)


def _fields(cursor: Cursor) -> tuple[int, int | None]:
    return cursor.entry, cursor.position
