"""A record is all or nothing, also where several of its rows went through further steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    FATE,
    FILTERED,
    ORDINAL,
    POSITION,
    SOURCE,
    TASK,
)

#: Up to so many records are sent to every executor, whatever Spark estimates.
BROADCAST_RECORDS = 200_000
_FAILED = "__arrester_failed"


def may_part(steps: Sequence[Step]) -> bool:
    """Whether rows of one record can have fates of their own: a step follows one that adds rows.

    Python steps in a row judge the record themselves.
    """
    return any(
        isinstance(one, Transform) or (isinstance(one, Process) and not isinstance(other, Process))
        for one, other in pairwise(steps)
    )


def made_whole(frame: DataFrame) -> DataFrame:
    """Return an evaluated frame in which a record with a failed row has failed.

    Its first row has the fate, of the earliest step that failed; its other rows are left out.
    """
    here = (TASK, ENTRY, POSITION)
    first = F.struct(FATE, ORDINAL, ERROR)
    order = F.struct(FATE, ORDINAL)
    failed = (
        frame.where(F.col(FATE) > SOURCE)
        .groupBy(*[F.col(name).alias(f"{name}_failed") for name in here])
        .agg(F.min_by(first, order).alias(_FAILED))
    )
    same = [F.col(name).eqNullSafe(F.col(f"{name}_failed")) for name in here]
    joined = frame.join(broadcast_if_small(failed), same, "left")
    known, first_row = F.col(_FAILED).isNotNull(), F.col(ORDINAL) == 0
    return joined.withColumns(
        {
            FATE: _of_record(known, first_row, F.lit(FILTERED), FATE),
            ERROR: _of_record(known, first_row, F.lit(None), ERROR),
        }
    ).select(*frame.columns)


def broadcast_if_small(frame: DataFrame) -> DataFrame:
    """Return a frame to join with: a broadcast leaves the rows of the other one in their order."""
    few = frame.limit(BROADCAST_RECORDS + 1).count() <= BROADCAST_RECORDS
    return F.broadcast(frame) if few else frame


def _of_record(known: Column, first_row: Column, otherwise: Column, name: str) -> Column:
    """Return what the first row of a failed record gets, and what its other rows get."""
    return (
        F.when(known & first_row, F.col(_FAILED)[name])
        .when(known, otherwise)
        .otherwise(F.col(name))
    )
