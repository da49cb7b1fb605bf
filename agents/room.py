"""How a local checkpoint is kept: as objects, the fastest way, or as bytes where room is short.

What does not fit into memory is written to disk and read back for each job, after others were
driven out to make room for it. As bytes rows take a third of the room.
"""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

#: The levels for that.
AS_OBJECTS, AS_BYTES = StorageLevel.MEMORY_AND_DISK_DESER, StorageLevel.MEMORY_AND_DISK
#: What is made of rows may take more room than they do, and more still while it is being stored.
_ROOM = 2


def checkpointed(frame: DataFrame) -> DataFrame:
    """Return `frame` evaluated, in a local checkpoint beside the one that it is made of."""
    level = AS_BYTES if is_short(frame.sparkSession) else AS_OBJECTS
    return frame.localCheckpoint(eager=True, storageLevel=level)


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
