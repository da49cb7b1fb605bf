"""Local checkpoints: their forms, the release of their blocks, and a few rows on the driver.

Rows are stored as objects, the fastest form, or as bytes. Blocks that do not fit into memory go to
disk. A micro-batch that the fast path has aborted is stored in columns, the format of Spark's
cache. They take less memory, and a job over a few columns reads only these.
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

from arrester.agents.spark.catalyst import analysed, array_as_seq, frame_of, has_classic, node_name
from arrester.agents.spark.jvm import jvm_class
from arrester.agents.spark.session_conf import conf

_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER
#: Rows as bytes take a third of the memory: for a result that is stored beside its input.
AS_BYTES: Final = StorageLevel.MEMORY_AND_DISK
#: The column that numbers the rows of a local checkpoint.
ID: Final = "__arrester_id"
#: The partition is in the bits above these, the row's index in the partition in these.
ROW_INDEX_BITS: Final = 33
#: The local property that Spark records as the origin of an RDD.
_CALL_SITE = "callSite.short"


#: The types that Spark's cache supports. Types inside structs, arrays and maps are copied.
_CACHED_TYPES: Final = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType),
    *(T.DecimalType, T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
    *(T.StructType, T.ArrayType, T.MapType),
)
#: Whether the storage level of a local checkpoint can be chosen, as since 4.0.
_TAKES_LEVEL = "storageLevel" in signature(DataFrame.localCheckpoint).parameters
_IN_MEMORY_RELATION = "org.apache.spark.sql.execution.columnar.InMemoryRelation"
_LOCAL_RELATION = "org.apache.spark.sql.catalyst.plans.logical.LocalRelation"
#: Compression takes 1.5 times as long as storing.
_UNCOMPRESSED: Final = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


def checkpointed(frame: DataFrame, *, level: StorageLevel = _LEVEL) -> DataFrame:
    """Return `frame` evaluated in a local checkpoint; if that raises, release its blocks.

    Otherwise the blocks evaluated until then would stay until Spark's cleaner runs: no caller has
    the frame to release them.
    """
    context: Any = frame.sparkSession.sparkContext._jsc
    before, here = context.getLocalProperty(_CALL_SITE), f"checkpoint {uuid4().hex}"
    context.setLocalProperty(_CALL_SITE, here)
    try:
        return _local_checkpoint(frame, eager=True, level=level)
    except BaseException:
        _release_created_at(here, context)
        raise
    finally:
        context.setLocalProperty(_CALL_SITE, before)


def _local_checkpoint(frame: DataFrame, *, eager: bool, level: StorageLevel) -> DataFrame:
    # Spark's own level stores rows as bytes.
    options: dict[str, Any] = {"storageLevel": level} if _TAKES_LEVEL else {}
    return frame.localCheckpoint(eager=eager, **options)


def _release_created_at(here: str, context: Any) -> None:
    for stored in context.getPersistentRDDs().values():
        # Not what the author's code has cached in the meantime.
        if stored.rdd().getCreationSite() == here and stored.rdd().isLocallyCheckpointed():
            _unpersist(context, stored)


def numbered(frame: DataFrame) -> DataFrame:
    """Return a local checkpoint's rows with their numbers, which never change."""
    return frame.withColumn(ID, F.monotonically_increasing_id())


def partitions_of(frame: DataFrame) -> int:
    """Return the number of partitions of a local checkpoint."""
    return int(_rdd(frame).getNumPartitions())


def release(frames: Sequence[DataFrame]) -> None:
    """Release the blocks of local checkpoints."""
    for frame in frames:
        _unpersist(frame.sparkSession.sparkContext._jsc, _rdd(frame))


def _unpersist(context: Any, rdd: Any) -> None:
    """Release an RDD's blocks; RDD.unpersist would warn that they cannot be computed again."""
    context.sc().unpersistRDD(rdd.id(), False)


class Checkpoints(list[DataFrame]):
    """Local checkpoints to release later."""

    def add(self, frame: DataFrame, *, level: StorageLevel = _LEVEL) -> DataFrame:
        """Return `frame` evaluated in a local checkpoint of these."""
        self.append(checkpointed(frame, level=level))
        return self[-1]


@contextmanager
def releasing() -> Iterator[Checkpoints]:
    """Give a list; release all local checkpoints in it at the end of the block."""
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


def _rdd(frame: DataFrame) -> Any:
    """Return the RDD of a local checkpoint."""
    plan = analysed(frame)
    is_columnar = node_name(plan) == "InMemoryRelation"
    return plan.cacheBuilder().cachedColumnBuffers() if is_columnar else plan.rdd()


def lazy_checkpoint(frame: DataFrame, *, columnar: bool = False) -> DataFrame:
    """Return `frame` in a local checkpoint that its first job fills.

    Spark does not list a columnar one as cached, so other plans neither read nor release it. Types
    that Spark's cache does not support are stored as objects.
    """
    supported = all(type(field.dataType) in _CACHED_TYPES for field in frame.schema.fields)
    if not columnar or not supported:
        return _local_checkpoint(frame, eager=False, level=_LEVEL)
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    # "Deserialized" for the JVM: in memory, columns are byte arrays anyway.
    level = jvm_class(jvm, "org.apache.spark.storage.StorageLevel").MEMORY_AND_DISK()
    with conf(spark, _UNCOMPRESSED):
        # Each plan class has its own method `apply`, which hides that of the companion object.
        made = getattr(jvm_class(jvm, f"{_IN_MEMORY_RELATION}$"), "MODULE$")
        nothing = jvm_class(jvm, "scala.Option").empty()
        relation = made.apply(level, frame._jdf.queryExecution(), nothing)
        columns = relation.cacheBuilder().cachedColumnBuffers()
    # Lost blocks are not evaluated again: the result could differ.
    columns.localCheckpoint()
    return frame_of(spark, relation)


def to_driver(frame: DataFrame) -> DataFrame:
    """Return a frame of the present rows of `frame`, in order.

    They are the JVM's own rows, so nothing is lost in a conversion to Python.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    execution = frame._jdf.queryExecution()
    rows = execution.executedPlan().executeCollect()
    # Since 4.0, it can be the data of a stream.
    no_stream = [jvm_class(jvm, "scala.Option").empty()] if has_classic(jvm) else []
    relation = jvm_class(jvm, _LOCAL_RELATION)(
        execution.analyzed().output(), array_as_seq(spark, rows), False, *no_stream
    )
    return frame_of(spark, relation)


def limit_per_partition(frame: DataFrame, rows: int) -> DataFrame:
    """Return `frame` with at most this many rows of each partition.

    By row number: the code of a limit contains a new name in each plan, which Janino and the JVM
    would compile again.
    """
    return frame.where((F.monotonically_increasing_id() % (1 << ROW_INDEX_BITS)) < rows)


def local_row_count(frame: DataFrame) -> int:
    """Return the number of rows of a gathered frame, without a job."""
    return int(analysed(frame).data().size())


def row_count(frame: DataFrame) -> int:
    """Return the number of rows, counted without a shuffle.

    This job also completes the local checkpoint.
    """
    return int(frame._jdf.queryExecution().toRdd().count())
