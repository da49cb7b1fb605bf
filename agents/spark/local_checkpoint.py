"""Local checkpoints: how they are kept, as objects or as bytes, and how their room is given back.

Objects are the fastest way. What does not fit into memory is written to disk and read back for each
job, after others were driven out to make room for it. As bytes rows take a third of the room.
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

#: The levels for that.
AS_OBJECTS, AS_BYTES = StorageLevel.MEMORY_AND_DISK_DESER, StorageLevel.MEMORY_AND_DISK
#: Numbers the rows of a local checkpoint.
ID: Final = "__arrester_id"
#: In a number the partition stands before the place in it, as Spark makes them.
PLACE_BITS: Final = 33
#: What is made of rows may take more room than they do, and more still while it is being stored.
_ROOM = 2
#: Where an RDD was made: each notes what its thread says here.
_MADE_AT = "callSite.short"


def checkpointed(frame: DataFrame, *, level: StorageLevel = AS_OBJECTS) -> DataFrame:
    """Return `frame` evaluated, in a local checkpoint; where that raises, nothing is kept of it.

    What was evaluated by then, nearly all of it perhaps, would stay until Spark's cleaner comes:
    nobody was given the frame whose blocks it is.
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
        # Not what the author's code has cached meanwhile.
        if kept.rdd().getCreationSite() == here and kept.rdd().isLocallyCheckpointed():
            kept.unpersist(False)


def level_beside(spark: SparkSession) -> StorageLevel:
    """Return how to keep what is made of a local checkpoint that stays beside it."""
    return AS_BYTES if is_short(spark) else AS_OBJECTS


def is_short(spark: SparkSession) -> bool:
    """Whether there is not room enough for as much again as is kept already."""
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
    """Return a local checkpoint's rows with their numbers, the same ones whenever it is asked."""
    return frame.withColumn(ID, F.monotonically_increasing_id())


def partitions_of(frame: DataFrame) -> int:
    """Return how many partitions a local checkpoint has."""
    return int(_kept(frame).getNumPartitions())


def give_back(frame: DataFrame) -> None:
    """Give the blocks of a local checkpoint back, of rows or of columns."""
    _kept(frame).unpersist(False)


def release(frames: Sequence[DataFrame]) -> None:
    """Give the blocks of local checkpoints back."""
    for frame in frames:
        give_back(frame)


@contextmanager
def given_back() -> Iterator[list[DataFrame]]:
    """Give the blocks of all local checkpoints in the list back afterwards, whatever happens."""
    kept: list[DataFrame] = []
    try:
        yield kept
    finally:
        release(kept)


def _kept(frame: DataFrame) -> Any:
    """Return the RDD that a local checkpoint is kept in."""
    plan = analysed(frame)
    is_columnar = node_name(plan) == "InMemoryRelation"
    return plan.cacheBuilder().cachedColumnBuffers() if is_columnar else plan.rdd()
