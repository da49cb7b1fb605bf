"""Run the guarded steps of a micro-batch: native expressions, Python steps and transforms.

Adjacent native and adjacent Python steps run as one segment, a transform alone. All segments run at
once. A Python segment fails as a Spark job if its worker crashes, a transform if it raises. Then
each such segment runs separately over a local checkpoint of its input.

Each row carries the internal columns of its record. A record's first row has ORDINAL 0 and
represents it. A record fails or passes as a whole (`batch.record_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.isolation import Isolation, IsolationResult, Segment
from arrester.agents.execution.row_steps import after_steps
from arrester.agents.execution.transforms import after_transform, transformed
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.frames.local_checkpoint import Checkpoints
from arrester.agents.spark.job_attempts import is_cancelled
from arrester.agents.worker.columns import OUTCOME, SOURCE
from arrester.domain.error_policy.policy import Policy


def unchanged(rows: DataFrame) -> DataFrame:
    """Return rows that already have all internal columns."""
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunner:
    """Runs steps over rows with internal columns."""

    steps: Sequence[Step]
    policy: Policy
    #: The names of the source's columns, which steps may replace.
    source_names: Sequence[str] = ()
    #: Adds the missing internal columns to the rows.
    add_internal_columns: Callable[[DataFrame], DataFrame] = unchanged

    def run_at_once(self, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
        """Return `frame` after the steps. Only the inputs of transforms are evaluated here."""
        source_names = self.source_names
        for number, steps in segments(self.steps, first=SOURCE + 1):
            if isinstance(steps[0], Transform):
                frame = checkpoints.add(self.add_internal_columns(frame))
                frame = after_transform(frame, steps[0])
                source_names = ()
            else:
                frame = after_steps(
                    frame, steps, policy=self.policy, first=number, source_names=source_names
                )
        return frame

    def run_step_by_step(self, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
        """Return `frame` after the steps, with the failing records of each step isolated.

        Raises StepFailed if a step fails without a failing record. Exceptions of the source are
        raised.
        """
        frame = checkpoints.add(self.add_internal_columns(frame))
        for number, steps in segments(self.steps, first=SOURCE + 1):
            if not isinstance(steps[0], Process | Transform):
                frame = after_steps(frame, steps, policy=self.policy, first=number)
                continue
            segment = _segment(number, steps, self.policy)
            operation = segment.all_steps
            if isinstance(steps[0], Transform):
                operation = partial(after_transform, step=steps[0])
            isolation = Isolation(checkpoints.add(frame), segment, self.policy)
            frame = isolation.run(operation, checkpoints).result
        return frame

    def may_isolate(self, exc: Exception) -> bool:
        """Whether records may be the cause of a failed job.

        The author's functions run in it, it was not cancelled, and no step failed as a whole.
        """
        has_functions = any(isinstance(step, Process | Transform) for step in self.steps)
        return has_functions and not is_cancelled(exc) and not isinstance(exc, StepFailed)


def run_final_transform(
    frame: DataFrame, step: Transform, *, number: int, policy: Policy, checkpoints: Checkpoints
) -> IsolationResult:
    """Return `frame`, a local checkpoint, with failures of the last step, and the step's result.

    The rows of the result have no columns that identify their records.
    """
    segment = _segment(number, [step], policy)
    return Isolation(frame, segment, policy).run(
        lambda rows: transformed(rows.where(F.col(OUTCOME).isNull()), step), checkpoints
    )


def segments(steps: Sequence[Step], *, first: int) -> Iterator[tuple[int, Sequence[Step]]]:
    """Yield the steps of each segment with the number of the first; a transform is one alone."""
    number = first
    for _, numbered_steps in groupby(enumerate(steps), key=lambda pair: _segment_key(*pair)):
        of_segment = [step for _, step in numbered_steps]
        yield number, of_segment
        number += len(of_segment)


def _segment_key(index: int, step: Step) -> object:
    """Return a value that adjacent steps of one segment share."""
    return (type(step), index) if isinstance(step, Transform) else isinstance(step, Process)


def _segment(number: int, steps: Sequence[Step], policy: Policy) -> Segment:
    step = steps[0]
    if isinstance(step, Transform):
        return Segment(
            stage=step.stage,
            crashes_only=False,
            stateful=step.stateful,
            prefixes=[(number, partial(transformed, step=step))],
        )
    prefixes = [
        (
            number + count - 1,
            partial(after_steps, steps=steps[:count], policy=policy, first=number),
        )
        for count in range(1, len(steps) + 1)
    ]
    return Segment(stage=step.stage, crashes_only=True, prefixes=prefixes)
