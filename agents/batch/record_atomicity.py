"""A record fails or passes as a whole, also if it became several rows."""

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

#: Up to this many records are broadcast, whatever Spark estimates.
BROADCAST_RECORDS = 200_000
_FAILED = "__arrester_failed"


def may_split_records(steps: Sequence[Step]) -> bool:
    """Whether rows of one record can fail separately: a step follows one that adds rows.

    Adjacent Python steps treat the record as a whole themselves.
    """
    return any(
        isinstance(one, Transform) or (isinstance(one, Process) and not isinstance(other, Process))
        for one, other in pairwise(steps)
    )


def make_atomic(frame: DataFrame) -> DataFrame:
    """Return an evaluated frame in which a record with a failed row has failed.

    Its first row gets the failure of the earliest step; its other rows are dropped.
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
    """Return a frame to join with: a broadcast keeps the other side's order."""
    few = frame.limit(BROADCAST_RECORDS + 1).count() <= BROADCAST_RECORDS
    return F.broadcast(frame) if few else frame


def _of_record(known: Column, first_row: Column, otherwise: Column, name: str) -> Column:
    """Return the value for the first row of a failed record, and for its other rows."""
    return (
        F.when(known & first_row, F.col(_FAILED)[name])
        .when(known, otherwise)
        .otherwise(F.col(name))
    )
