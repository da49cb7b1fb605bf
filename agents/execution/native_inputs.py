"""The input of a native step for failed records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.step_runner import StepOptions, keep, run_at_once
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
    """The rows that some records had become before the next native steps."""

    #: With the author's columns. Its plan is a projection of the rows in `rows`.
    frame: DataFrame
    #: The native steps from there on; the last one is the failed step.
    steps: Sequence[Step]
    #: For each record, the JVM rows that it had become.
    rows: Sequence[Sequence[Any]]


def needs_rerun(steps: Sequence[Step]) -> bool:
    """Whether some of these steps are not native: they run again to reproduce their output."""
    return any(isinstance(step, Process | Transform) for step in steps)


def inputs_of(examples: DataFrame, steps: Sequence[Step], number: int) -> Inputs:
    """Return the input of the native step `number` for the records that failed there, in order.

    `examples` are gathered, with the source row in their column ROW. Earlier Python steps and
    transforms run again on these few records, once each.
    """
    done = max(at for at, step in enumerate(steps[:number], start=1) if needs_rerun([step]))
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
    """Run steps again over a few records. Their position is their index among the examples."""
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
    return keep(run_at_once(prepared, steps, StepOptions(policy=Policy()), kept=[]), [])


def unwrapped(examples: DataFrame) -> DataFrame:
    """Return an empty frame whose plan takes the source's columns out of `examples`.

    Over the rows themselves Spark would evaluate constants during planning, and raise there.
    """
    return examples.sparkSession.createDataFrame([], examples.schema).select(f"{ROW}.*")
