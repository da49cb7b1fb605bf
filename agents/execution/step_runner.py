"""Run all guarded steps of a micro-batch: at once, or step by step to isolate failing records.

A step with Python code, or a transform, can fail as a Spark job: its worker crashes, or the
transform raises. Then each such step runs separately over a local checkpoint of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.isolation import Isolation, Suspect
from arrester.agents.execution.step_segments import after_steps, segments
from arrester.agents.execution.transforms import transformed, transformed_on
from arrester.agents.executor.columns import FATE, SOURCE
from arrester.agents.spark.job_attempts import AttemptFailed, Operation, attempted
from arrester.agents.spark.local_checkpoint import checkpointed, storage_level
from arrester.agents.spark.row_counters import metered
from arrester.controlplane.domain.error_policy.policy import Policy

#: Local checkpoints to release.
Kept = list[DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Options for running steps."""

    policy: Policy = field(default_factory=Policy)
    #: The columns of the source, which steps may replace.
    source: Sequence[str] = ()
    #: Adds all internal columns to the author's.
    shown: Callable[[DataFrame], DataFrame] = lambda frame: frame
    #: Whether this many rows may not fit into memory as objects.
    is_large: bool = False
    #: Whether records are likely to fail: the first job then collects them.
    fails: bool = False


class SurvivingRows(NamedTuple):
    """Rows with the failed records marked, and the step's result for the others."""

    marked: DataFrame
    made: DataFrame
    #: The number of isolated records.
    isolated: int


def run_at_once(
    frame: DataFrame, steps: Sequence[Step], way: StepOptions, *, kept: Kept
) -> DataFrame:
    """Return `frame` after `steps`. A job failure shows at evaluation."""
    source = way.source
    for number, segment in segments(steps, first=SOURCE + 1):
        if isinstance(segment[0], Transform):
            frame = transformed_on(keep(way.shown(frame), kept), segment[0])
            source = ()
        else:
            frame = after_steps(frame, segment, policy=way.policy, first=number, source=source)
    return frame


def run_step_by_step(
    frame: DataFrame, steps: Sequence[Step], way: StepOptions, *, kept: Kept
) -> DataFrame:
    """Return `frame` after `steps`, with the failing records of each step isolated.

    Raises StepFailed if a step fails without a failing record. Exceptions of the source are raised.
    """
    policy = way.policy
    frame = keep(way.shown(frame), kept)
    for number, segment in segments(steps, first=SOURCE + 1):
        if not isinstance(segment[0], Process | Transform):
            frame = after_steps(frame, segment, policy=policy, first=number)
            continue
        suspect = _suspect(number, segment, policy)
        run = suspect.whole
        if isinstance(segment[0], Transform):
            run = partial(transformed_on, step=segment[0])
        frame = run_surviving(keep(frame, kept), run, suspect, policy=policy, kept=kept).made
    return frame


def after_tail(
    frame: DataFrame, step: Transform, *, number: int, policy: Policy, kept: Kept
) -> SurvivingRows:
    """Return `frame`, a local checkpoint, with failures of the last step, and the step's result.

    The result does not identify its records.
    """
    return run_surviving(
        frame,
        partial(after_transform, step=step),
        _suspect(number, [step], policy),
        policy=policy,
        kept=kept,
    )


def after_transform(frame: DataFrame, step: Transform) -> DataFrame:
    """Return the result of a transform for the rows that have not failed."""
    return transformed(frame.where(F.col(FATE).isNull()), step)


def run_surviving(
    base: DataFrame,
    run: Operation,
    suspect: Suspect,
    *,
    policy: Policy,
    kept: Kept,
) -> SurvivingRows:
    """Return `base` with the failing records marked, and the result of `run` for the others."""
    blame = Isolation(base, suspect, policy)
    while True:
        marked = blame.marked()
        made = partial(_evaluated, run, marked, kept)
        try:
            return SurvivingRows(marked, attempted(base.sparkSession, made), blame.isolated)
        except AttemptFailed as exc:
            blame.isolate(exc.failed)


def _evaluated(run: Operation, frame: DataFrame, kept: Kept) -> DataFrame:
    level = storage_level(frame.sparkSession)
    evaluated = checkpointed(metered(run(frame)), level=level)
    kept.append(evaluated)
    return evaluated


def keep(frame: DataFrame, kept: Kept) -> DataFrame:
    """Return `frame` evaluated in a local checkpoint."""
    evaluated = checkpointed(frame)
    kept.append(evaluated)
    return evaluated


def _suspect(number: int, segment: Sequence[Step], policy: Policy) -> Suspect:
    step = segment[0]
    if isinstance(step, Transform):
        return Suspect(
            stage=step.stage,
            crashes_only=False,
            stateful=step.stateful,
            prefixes=[(number, partial(transformed, step=step))],
        )
    prefixes = [
        (
            number + count - 1,
            partial(after_steps, steps=segment[:count], policy=policy, first=number),
        )
        for count in range(1, len(segment) + 1)
    ]
    return Suspect(stage=step.stage, crashes_only=True, prefixes=prefixes)
