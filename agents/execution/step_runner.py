"""All guarded steps of a pipeline over a micro-batch: in one go, or one by one to find the guilty.

A step that runs Python code, or a transform, may fail as a Spark job: by a crash of the worker, or
by what a transform raised. Then each such step runs by itself over a local checkpoint of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.isolation import Blame, Suspect
from arrester.agents.execution.step_segments import after_steps, segments
from arrester.agents.execution.transforms import transformed, transformed_on
from arrester.agents.executor.columns import FATE, SOURCE
from arrester.agents.spark.job_attempts import AttemptFailed, Operation, attempted
from arrester.agents.spark.local_checkpoint import checkpointed, level_beside
from arrester.agents.spark.row_counters import metered
from arrester.controlplane.domain.error_policy.policy import Policy

#: Local checkpoints that were made on the way, to be given back.
Kept = list[DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What steps are run with."""

    policy: Policy = field(default_factory=Policy)
    #: The columns of the source, which steps may replace.
    source: Sequence[str] = ()
    #: Puts all columns of ours beside the author's.
    shown: Callable[[DataFrame], DataFrame] = lambda frame: frame
    #: Whether nobody knows that the objects of so many rows fit into memory.
    is_large: bool = False
    #: Whether records are likely to fail: the first job brings them then.
    fails: bool = False


class Survived(NamedTuple):
    """Rows with the fates of the records that a step failed of, and what it makes of the rest."""

    marked: DataFrame
    made: DataFrame
    #: How many records were found.
    blamed: int


def in_one_go(frame: DataFrame, steps: Sequence[Step], way: Way, *, kept: Kept) -> DataFrame:
    """Return `frame` after `steps`; what fails as a job, fails when it is evaluated."""
    source = way.source
    for number, segment in segments(steps, first=SOURCE + 1):
        if isinstance(segment[0], Transform):
            frame = transformed_on(keep(way.shown(frame), kept), segment[0])
            source = ()
        else:
            frame = after_steps(frame, segment, policy=way.policy, first=number, source=source)
    return frame


def one_by_one(frame: DataFrame, steps: Sequence[Step], way: Way, *, kept: Kept) -> DataFrame:
    """Return `frame` after `steps`, where the records that a step fails for have failed there.

    Raises StepFailed where a step fails and no record is to blame; what the source raises, raises.
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
        frame = survived(keep(frame, kept), run, suspect, policy=policy, kept=kept).made
    return frame


def after_tail(
    frame: DataFrame, step: Transform, *, number: int, policy: Policy, kept: Kept
) -> Survived:
    """Return `frame`, a local checkpoint, with failures of the last step, and what the step made.

    What it made does not know its records.
    """
    return survived(
        frame,
        partial(after_transform, step=step),
        _suspect(number, [step], policy),
        policy=policy,
        kept=kept,
    )


def after_transform(frame: DataFrame, step: Transform) -> DataFrame:
    """Return what a transform makes of the rows that have no fate."""
    return transformed(frame.where(F.col(FATE).isNull()), step)


def survived(
    base: DataFrame,
    run: Operation,
    suspect: Suspect,
    *,
    policy: Policy,
    kept: Kept,
) -> Survived:
    """Return `base` with the fates of failing records, and what `run` makes of the others."""
    blame = Blame(base, suspect, policy)
    while True:
        marked = blame.marked()
        made = partial(_evaluated, run, marked, kept)
        try:
            return Survived(marked, attempted(base.sparkSession, made), blame.blamed)
        except AttemptFailed as exc:
            blame.blame(exc.failed)


def _evaluated(run: Operation, frame: DataFrame, kept: Kept) -> DataFrame:
    level = level_beside(frame.sparkSession)
    evaluated = checkpointed(metered(run(frame)), level=level)
    kept.append(evaluated)
    return evaluated


def keep(frame: DataFrame, kept: Kept) -> DataFrame:
    """Return `frame` evaluated, in a local checkpoint."""
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
