"""Local checkpoints: their storage level, and the release of their blocks.

Objects are the fastest form. If they do not fit into memory, blocks go to disk and are read back
for each job. As bytes, rows take a third of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import analysed, node_name

#: The storage levels for objects and for bytes.
AS_OBJECTS, AS_BYTES = StorageLevel.MEMORY_AND_DISK_DESER, StorageLevel.MEMORY_AND_DISK
#: The column that numbers the rows of a local checkpoint.
ID: Final = "__arrester_id"
#: The partition is in the bits above these, the row's index in the partition in these.
PLACE_BITS: Final = 33
#: Results may take more memory than their input, and more still while they are being stored.
_ROOM = 2
#: The local property that Spark records as the origin of an RDD.
_MADE_AT = "callSite.short"


def checkpointed(frame: DataFrame, *, level: StorageLevel = AS_OBJECTS) -> DataFrame:
    """Return `frame` evaluated in a local checkpoint; if that raises, release its blocks.

    Otherwise the blocks evaluated until then would stay until Spark's cleaner runs: no caller has
    the frame to release them.
    """
    context: Any = frame.sparkSession.sparkContext._jsc
    before, here = context.getLocalProperty(_MADE_AT), f"checkpoint {uuid4().hex}"
    context.setLocalProperty(_MADE_AT, here)
    try:
        return frame.localCheckpoint(eager=True, storageLevel=level)
    except BaseException:
        _give_back_made_at(here, context)
        raise
    finally:
        context.setLocalProperty(_MADE_AT, before)


def _give_back_made_at(here: str, context: Any) -> None:
    for kept in context.getPersistentRDDs().values():
        # Not what the author's code has cached in the meantime.
        if kept.rdd().getCreationSite() == here and kept.rdd().isLocallyCheckpointed():
            kept.unpersist(False)


def storage_level(spark: SparkSession) -> StorageLevel:
    """Return the storage level for results of a local checkpoint that is kept too."""
    return AS_BYTES if is_memory_short(spark) else AS_OBJECTS


def is_memory_short(spark: SparkSession) -> bool:
    """Whether free memory is less than what is stored already."""
    core: Any = spark.sparkContext._jsc.sc()
    kept = list(core.getRDDStorageInfo())
    if any(each.diskSize() for each in kept):
        return True
    executors = core.getExecutorMemoryStatus().valuesIterator()
    free = 0
    while executors.hasNext():
        free += executors.next()._2()
    return bool(free < _ROOM * sum(each.memSize() for each in kept))


def numbered(frame: DataFrame) -> DataFrame:
    """Return a local checkpoint's rows with their numbers, which never change."""
    return frame.withColumn(ID, F.monotonically_increasing_id())


def partitions_of(frame: DataFrame) -> int:
    """Return the number of partitions of a local checkpoint."""
    return int(_kept(frame).getNumPartitions())


def give_back(frame: DataFrame) -> None:
    """Release the blocks of a row or columnar local checkpoint."""
    _kept(frame).unpersist(False)


def release(frames: Sequence[DataFrame]) -> None:
    """Release the blocks of several local checkpoints."""
    for frame in frames:
        give_back(frame)


@contextmanager
def releasing() -> Iterator[list[DataFrame]]:
    """Give a list; release all local checkpoints in it at the end of the block."""
    kept: list[DataFrame] = []
    try:
        yield kept
    finally:
        release(kept)


def _kept(frame: DataFrame) -> Any:
    """Return the RDD of a local checkpoint."""
    plan = analysed(frame)
    is_columnar = node_name(plan) == "InMemoryRelation"
    return plan.cacheBuilder().cachedColumnBuffers() if is_columnar else plan.rdd()
