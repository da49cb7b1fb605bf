"""What a native step was given: failed records as they were before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.step_runner import Way, in_one_go, keep
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    INTERNAL,
    ORDINAL,
    POSITION,
    RETRIES,
    ROW,
    TASK,
)
from arrester.agents.spark.catalyst import collected
from arrester.controlplane.domain.error_policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Rows that some records had become, for the native steps that come next."""

    #: With the author's columns; its plan is a projection of what `rows` are of.
    frame: DataFrame
    #: The native steps from there on; the last one is the step that failed.
    steps: Sequence[Step]
    #: For each record, the rows of the JVM that it had become.
    rows: Sequence[Sequence[Any]]


def runs_again(steps: Sequence[Step]) -> bool:
    """Whether some of these steps are not native: they run again to see what came out of them."""
    return any(isinstance(step, Process | Transform) for step in steps)


def inputs_of(examples: DataFrame, steps: Sequence[Step], number: int) -> Inputs:
    """Return what the native step `number` was given for the records that failed there, in order.

    `examples` are gathered, with the source row in their column ROW. Python steps and
    transforms come before it: they run again on these few records, once each.
    """
    done = max(at for at, step in enumerate(steps[:number], start=1) if runs_again([step]))
    again = _again(examples.where(F.col(FATE) == number), steps[:done])
    place, fate = again.columns.index(POSITION), again.columns.index(FATE)
    grouped: dict[int, list[Any]] = {}
    for row in collected(again):
        grouped.setdefault(row.getLong(place), []).extend([row] if row.isNullAt(fate) else [])
    frame = again.drop(*INTERNAL)
    return Inputs(
        frame=frame, steps=steps[done:number], rows=[grouped[at] for at in sorted(grouped)]
    )


def _again(examples: DataFrame, steps: Sequence[Step]) -> DataFrame:
    """Run steps again over a few records; their position is their place among the examples."""
    prepared = examples.select(
        ROW,
        F.lit(None).cast("string").alias(TASK),
        F.monotonically_increasing_id().alias(POSITION),
        F.lit(0).alias(ENTRY),
        F.lit(None).cast("int").alias(FATE),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
        F.lit(0).alias(ORDINAL),
        F.lit(0).cast("long").alias(RETRIES),
        f"{ROW}.*",
    )
    return keep(in_one_go(prepared, steps, Way(policy=Policy()), kept=[]), [])


def unwrapped(examples: DataFrame) -> DataFrame:
    """Return a frame without rows whose plan takes the source's columns out of `examples`.

    Over the rows themselves Spark would compute what it can when it plans, and raise there.
    """
    return examples.sparkSession.createDataFrame([], examples.schema).select(f"{ROW}.*")
