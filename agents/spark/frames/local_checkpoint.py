"""Local checkpoints: their forms, and the release of their blocks.

Rows are stored as objects, the fastest form, or as bytes. Blocks that do not fit into memory go to
disk. A micro-batch that the fast path has aborted is stored in columns, the format of Spark's
cache. Columns take less memory, and a job over a few columns reads only these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Final
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.spark.jvm.stored_rows import (
    ROW_INDEX_BITS,
    lazy_columnar_checkpoint,
    release_created_at,
    unpersist,
)
from arrester.agents.spark.session_conf import conf

_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER
#: Rows as bytes take a third of the memory: for a result that is stored beside its input.
AS_BYTES: Final = StorageLevel.MEMORY_AND_DISK
#: The column with the IDs of a local checkpoint's rows.
ID: Final = "__arrester_id"
#: The local property that Spark records as the creation site of an RDD.
_CALL_SITE = "callSite.short"
#: The types that Spark's cache supports. Types inside structs, arrays and maps are copied.
_CACHED_TYPES: Final = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    *(T.DecimalType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
    *(T.StructType, T.ArrayType, T.MapType),
)
#: Whether the storage level of a local checkpoint can be chosen, as since 4.0.
_TAKES_LEVEL = "storageLevel" in signature(DataFrame.localCheckpoint).parameters
#: Compression takes 1.5 times as long as storing.
_UNCOMPRESSED: Final = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


def checkpointed(frame: DataFrame, *, level: StorageLevel = _LEVEL) -> DataFrame:
    """Return `frame` evaluated in a local checkpoint; if that raises, release its blocks.

    Otherwise the blocks evaluated until then would stay until Spark's cleaner runs.
    """
    context = frame.sparkSession.sparkContext
    before, call_site = context.getLocalProperty(_CALL_SITE), f"checkpoint {uuid4().hex}"
    context.setLocalProperty(_CALL_SITE, call_site)
    try:
        return _local_checkpoint(frame, eager=True, level=level)
    except BaseException:
        release_created_at(context, call_site)
        raise
    finally:
        context.setLocalProperty(_CALL_SITE, before)  # type: ignore[arg-type]  # None removes it


def lazy_checkpoint(frame: DataFrame, *, columnar: bool = False) -> DataFrame:
    """Return `frame` in a local checkpoint that its first job fills.

    Spark does not list a columnar one as cached, so other plans neither read nor release it. Types
    that Spark's cache does not support are stored as objects.
    """
    supported = all(type(field.dataType) in _CACHED_TYPES for field in frame.schema.fields)
    if not columnar or not supported:
        return _local_checkpoint(frame, eager=False, level=_LEVEL)
    with conf(frame.sparkSession, _UNCOMPRESSED):
        return lazy_columnar_checkpoint(frame)


def _local_checkpoint(frame: DataFrame, *, eager: bool, level: StorageLevel) -> DataFrame:
    # Before 4.0, the level is Spark's own.
    options: dict[str, Any] = {"storageLevel": level} if _TAKES_LEVEL else {}
    return frame.localCheckpoint(eager=eager, **options)


def numbered(frame: DataFrame) -> DataFrame:
    """Return a local checkpoint's rows with their IDs, which never change."""
    return frame.withColumn(ID, F.monotonically_increasing_id())


def limit_per_partition(frame: DataFrame, rows: int) -> DataFrame:
    """Return `frame` with at most this many rows of each partition.

    The rows are chosen by ID. The generated code of a limit has a new name in each plan, so it
    would be compiled again.
    """
    return frame.where((F.monotonically_increasing_id() % (1 << ROW_INDEX_BITS)) < rows)


def release(frames: Sequence[DataFrame]) -> None:
    """Release the blocks of local checkpoints."""
    for frame in frames:
        unpersist(frame)


class Checkpoints(list[DataFrame]):
    """Local checkpoints that are released together."""

    def add(self, frame: DataFrame, *, level: StorageLevel = _LEVEL) -> DataFrame:
        """Evaluate `frame` in a further local checkpoint, and return that."""
        self.append(checkpointed(frame, level=level))
        return self[-1]


@contextmanager
def releasing() -> Iterator[Checkpoints]:
    """Yield a list, and release the local checkpoints in it at the end of the block."""
    checkpoints = Checkpoints()
    try:
        yield checkpoints
    finally:
        release(checkpoints)


@contextmanager
def releasing_on_error(frames: Sequence[DataFrame]) -> Iterator[None]:
    """Release local checkpoints if the block raises."""
    try:
        yield
    except BaseException:
        release(frames)
        raise
