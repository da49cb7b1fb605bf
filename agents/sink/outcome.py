"""A micro-batch after its sink was called: the failures there and the earlier decisions."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import make_atomic, may_split_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import (
    DECIDED,
    ENTRY,
    ERROR,
    FATE,
    HELD,
    ORDINAL,
    POSITION,
    RETRIES,
    SOURCE,
    TASK,
)
from arrester.agents.failures.failed_record import produce_number
from arrester.agents.spark.error_columns import error_column, error_row
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.local_checkpoint import checkpointed, releasing

_FOUND: Final = {name: f"{name}_found" for name in (TASK, ENTRY, POSITION, ERROR, RETRIES)}


def all_failed(
    evaluated: Evaluated, held: Column, problem: Problem, pipeline: Pipeline
) -> Evaluated:
    """Return the batch with all rows for the sink as failed at stage produce."""
    number = produce_number(pipeline)
    passed = F.col(FATE).isNull() & ~held
    error = error_column(error_row(problem))
    frame = evaluated.frame.withColumns(
        {
            FATE: F.when(passed, F.lit(number)).otherwise(obeyed(held)),
            ERROR: F.when(passed, error).otherwise(F.col(ERROR)),
            RETRIES: F.lit(0).cast("long"),
        }
    )
    if may_split_records(pipeline.steps):
        # The rows written may differ from the row that represents the record.
        frame = make_atomic(frame)
    return evaluated_again(frame, number)


def some_failed(
    evaluated: Evaluated, held: Column, found: DataFrame, number: int, *, whole: bool = False
) -> Evaluated:
    """Return the batch with the records of `found` as failed at stage produce, its `number`.

    `found` has TASK, ENTRY, POSITION, ERROR and RETRIES; a record without an error passed. `whole`:
    the rows written may differ from the row that represents the record.
    """
    right = found.select(*[F.col(name).alias(other) for name, other in _FOUND.items()])
    same = [F.col(name).eqNullSafe(F.col(_FOUND[name])) for name in (TASK, ENTRY, POSITION)]
    fresh = F.col(FATE).isNull() & ~held
    error = F.col(_FOUND[ERROR])
    frame = evaluated.frame.join(right, [*same, fresh], "left").withColumns(
        {
            FATE: F.when(fresh & error.isNotNull(), F.lit(number)).otherwise(obeyed(held)),
            ERROR: F.when(fresh, error).otherwise(F.col(ERROR)),
            RETRIES: F.coalesce(F.col(_FOUND[RETRIES]), F.lit(0)),
        }
    )
    frame = frame.drop(*_FOUND.values())
    return evaluated_again(make_atomic(frame) if whole else frame, number)


def obeyed(held: Column) -> Column:
    """Return the fate of a record according to durable decisions."""
    decided = (F.col(FATE) >= SOURCE) | (F.col(FATE) == HELD) | held
    return F.when(F.coalesce(decided, F.lit(False)), F.lit(DECIDED)).otherwise(F.col(FATE))


def evaluated_again(frame: DataFrame, number: int) -> Evaluated:
    """Return a micro-batch after its sink was called, in a local checkpoint."""
    first = F.col(ORDINAL) == 0
    with releasing() as kept:
        kept.append(checkpointed(frame))
        counts = (
            kept[0]
            .agg(
                F.count_if(first & (F.col(FATE) == number)).alias("failed"),
                F.sum(F.when(first, F.col(RETRIES))).alias("retries"),
            )
            .collect()[0]
        )
        rows = kept.pop()
    return Evaluated(
        rows=rows,
        failed=counts["failed"],
        held=0,
        retries=counts["retries"] or 0,
        blocks=(rows,),
    )
