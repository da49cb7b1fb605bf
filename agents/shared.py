"""Positions that a failed record shares with another one: then neither can be told from the other.

A position is used when its record fails: to skip it on a replay, to tell of it, to pause there. So
only then is it looked whether it is the record's own; among records that pass nobody asks.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from agents.microbatch import Evaluated, as_it_is
from agents.whole import BROADCAST_RECORDS
from agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    FILTERED,
    ORDINAL,
    POSITION,
    SOURCE,
    TASK,
)

_COORDINATES = (TASK, ENTRY, POSITION)
_SHARED = "__arrester_shared"


def blaming_shared(evaluated: Evaluated) -> Evaluated:
    """Return `evaluated` with all records failed that have the position of a failed one."""
    if not evaluated.failed:
        return evaluated
    shared = _shared(evaluated)
    if shared.isEmpty():
        return evaluated
    block = shared.localCheckpoint(eager=True)
    marked = _joined(evaluated.frame, block.withColumn(_SHARED, F.lit(True)), "left")
    here = F.coalesce(F.col(_SHARED), F.lit(False)) & _is_evaluated()
    nothing = F.lit(None).cast(ERROR_TYPE)
    frame = marked.withColumns(
        {
            FATE: F.when(here, F.lit(SOURCE)).otherwise(F.col(FATE)),
            ERROR: F.when(here, nothing).otherwise(F.col(ERROR)),
        }
    ).select(*evaluated.frame.columns)
    failed = frame.where((F.col(ORDINAL) == 0) & (F.col(FATE) >= SOURCE)).count()
    blocks = (*evaluated.blocks, block)
    return replace(evaluated, rows=frame, shown=as_it_is, failed=failed, blocks=blocks, made=None)


def _shared(evaluated: Evaluated) -> DataFrame:
    """Return the coordinates of failed records that are those of another record, too."""
    records = evaluated.frame.where(
        (F.col(ORDINAL) == 0) & F.col(POSITION).isNotNull() & _is_evaluated()
    )
    failed = records.where(F.col(FATE) > SOURCE).select(*_COORDINATES)
    if evaluated.failed <= BROADCAST_RECORDS:
        failed = F.broadcast(failed)
    suspects = _joined(records.select(*_COORDINATES), failed, "left_semi")
    return suspects.groupBy(*_COORDINATES).count().where("count > 1").drop("count")


def _joined(frame: DataFrame, coordinates: DataFrame, how: str) -> DataFrame:
    names = {name: f"{name}_too" for name in _COORDINATES}
    same = [F.col(ours).eqNullSafe(F.col(other)) for ours, other in names.items()]
    return frame.join(coordinates.withColumnsRenamed(names), same, how)


def _is_evaluated() -> Column:
    fate = F.col(FATE)
    return fate.isNull() | (fate == FILTERED) | (fate > SOURCE)
