"""The careful path: all records of a micro-batch evaluated once, each with its fate beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import made_whole, may_part
from arrester.agents.batch.record_columns import prepared, with_all
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.step_runner import Way, after_tail, in_one_go, one_by_one
from arrester.agents.execution.step_segments import in_quotes
from arrester.agents.execution.transforms import transformed
from arrester.agents.executor.columns import ENTRY, FATE, HELD, ORDINAL, RETRIES, SOURCE
from arrester.agents.failures.failure_set import Failures, are_few
from arrester.agents.spark.columnar_cache import in_columns
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.job_attempts import is_cancelled
from arrester.agents.spark.local_checkpoint import (
    AS_BYTES,
    AS_OBJECTS,
    checkpointed,
    given_back,
    partitions_of,
    release,
)
from arrester.agents.spark.local_relation import number_of
from arrester.controlplane.domain.error_policy.policy import Policy


def as_it_is(rows: DataFrame) -> DataFrame:
    """Return rows that have all columns of ours already."""
    return rows


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A micro-batch (or chunk) after its steps, in a local checkpoint, and what is in it."""

    #: Its rows as they were evaluated: their fates and the author's columns, and some of ours.
    rows: DataFrame
    #: Gives them the rest of ours: hundreds of calls to the JVM, of no use while nothing fails.
    shown: Callable[[DataFrame], DataFrame] = as_it_is
    #: The local checkpoints that it is made of, to be given back.
    blocks: tuple[DataFrame, ...]
    failed: int = 0
    held: int = 0
    #: Attempts after the first that its records took, of those that passed too.
    retries: int = 0
    #: Whether a record that became several rows may have failed in some of them only.
    parted: bool = False
    #: What the pipeline's tail made of all that passed; None: there is none, or rows have changed.
    made: DataFrame | None = None
    #: Its failed records, where they are known already.
    known: Failures | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The rows with all columns of ours beside the author's."""
        return self.shown(self.rows)

    @cached_property
    def failures(self) -> Failures:
        """The failed records, without their rows."""
        return self.known or Failures.of(self.frame, failed=self.failed)

    def with_frame(self, frame: DataFrame, *, failed: int) -> Evaluated:
        """Return it with other rows, of whose records so many have failed."""
        return replace(self, rows=frame, shown=as_it_is, failed=failed, made=None, known=None)

    @property
    def clean(self) -> bool:
        """Whether nothing failed and nothing is to be held."""
        return self.failed == 0 and self.held == 0

    def passed(self, pipeline: Pipeline, held: Column | None = None) -> DataFrame:
        """Return the rows for the sink: what passed all steps, without what is `held`."""
        tail = pipeline.tail
        if tail is not None and held is None and self.made is not None:
            return self.made
        all_of_ours = held is not None or tail is not None
        rows = (self.frame if all_of_ours else self.rows).where(f"{FATE} IS NULL")
        rows = rows if held is None else rows.where(~held)
        if tail is not None:
            return transformed(rows, tail)
        # As texts: a Column of each name would be several calls to the JVM.
        return rows.selectExpr(*[in_quotes(name) for name in pipeline.columns])

    def release(self) -> None:
        """Give the blocks of the local checkpoints back."""
        release(self.blocks)


def evaluate(
    source: DataFrame,
    pipeline: Pipeline,
    *,
    blocked: Collection[str | None] = (),
    marks: DataFrame | None = None,
    policy: Policy = Policy(),  # noqa: B008 (frozen)
    is_large: bool = False,
    fails: bool = False,
) -> Evaluated:
    """Run the steps of `pipeline` over `source`, each record by itself.

    Held rows have a column ENTRY beside the source's own; the position is unique within an entry.
    Tasks in `blocked` are not evaluated: their records are to be held. `marks` gives fates that
    are known already, by task, entry and position. `is_large`: its rows may not fit as objects.
    `fails`: some of its records are likely to fail.
    """
    names = [name for name in source.columns if name != ENTRY]
    begun = prepared(source, pipeline, blocked, marks)
    shown = partial(with_all, names=names, plain=pipeline.plain)
    way = Way(source=names, shown=shown, policy=policy, is_large=is_large, fails=fails)
    evaluated = _evaluated(begun, way, pipeline.guarded, holds=bool(blocked))
    if pipeline.tail is None:
        return evaluated
    return _with_tail(evaluated, pipeline.tail, len(pipeline.steps), policy)


def _evaluated(begun: DataFrame, way: Way, steps: Sequence[Step], *, holds: bool) -> Evaluated:
    try:
        with given_back() as kept:
            evaluated = _checkpointed(in_one_go(begun, steps, way, kept=kept), way, holds=holds)
    except Exception as exc:  # a step failed as a whole, or the source
        if not _may_be_searched(exc, steps):
            raise
        with given_back() as kept:
            evaluated = _checkpointed(one_by_one(begun, steps, way, kept=kept), way, holds=holds)
    return _whole(evaluated) if evaluated.parted and may_part(steps) else evaluated


def _may_be_searched(exc: Exception, steps: Sequence[Step]) -> bool:
    """Whether records may be to blame: the author's code ran in the job, and nobody stops it."""
    ran = any(isinstance(step, Process | Transform) for step in steps)
    return ran and not is_cancelled(exc) and not isinstance(exc, StepFailed)


def _whole(evaluated: Evaluated) -> Evaluated:
    try:
        return _checkpointed(made_whole(evaluated.frame), Way(), holds=evaluated.held > 0)
    finally:
        evaluated.release()


def _with_tail(evaluated: Evaluated, step: Transform, number: int, policy: Policy) -> Evaluated:
    """Run the last step, a transform: its failures are marked, what it made is kept aside."""
    kept: list[DataFrame] = []
    made: DataFrame | None
    try:
        frame, made, blamed = after_tail(
            evaluated.frame, step, number=number, policy=policy, kept=kept
        )
        if blamed and ORDINAL not in evaluated.rows.columns:
            # Each row is a record of its own: all that changes are the fates of those found.
            evaluated = evaluated.with_frame(frame, failed=evaluated.failed + blamed)
        elif blamed:
            marked = _checkpointed(frame, Way(), holds=evaluated.held > 0)
            evaluated.release()
            evaluated = marked
            if evaluated.parted:
                evaluated = _whole(evaluated)
                made = None
    except BaseException:
        release(kept)
        evaluated.release()
        raise
    blocks = (*evaluated.blocks, *kept)
    return replace(evaluated, made=made, blocks=blocks)


def _checkpointed(frame: DataFrame, way: Way, *, holds: bool) -> Evaluated:
    """Evaluate `frame` once. `holds`: some of its records may be held."""
    if ORDINAL in frame.columns:
        return _observed(frame, way, holds=holds)
    # Each record is one row, and the job that counts is the one that fills the local checkpoint.
    block = (
        in_columns(frame)
        if way.is_large
        else frame.localCheckpoint(eager=False, storageLevel=AS_OBJECTS)
    )
    evaluated = Evaluated(rows=block, shown=way.shown, blocks=(block,))
    try:
        # What is held is counted, not brought.
        failures = _brought(evaluated) if way.fails and not holds else None
        if failures is not None:
            return _known(evaluated, failures) if failures.listed else evaluated
        told = number_of(block.where(f"{FATE} IS NOT NULL"))
        if not told:
            return evaluated
        evaluated = _counted(evaluated, rows=told)
    except BaseException:
        evaluated.release()
        raise
    return replace(evaluated, held=told - evaluated.failed) if holds else evaluated


def _observed(frame: DataFrame, way: Way, *, holds: bool) -> Evaluated:
    """Evaluate a frame once in which a record may have become several rows."""
    seen = Observation()
    observed = frame.observe(seen, *_numbers(holds))
    block = checkpointed(observed, level=AS_BYTES if way.is_large else AS_OBJECTS)
    counts = seen.get
    evaluated = Evaluated(
        rows=block,
        shown=way.shown,
        blocks=(block,),
        held=int(counts.get("held") or 0),
        retries=int(counts["retries"] or 0),
    )
    if not counts["failed"]:
        return evaluated
    parted = bool(counts["rows"] > counts["records"])
    try:
        return replace(_counted(evaluated, rows=counts["failed"]), parted=parted)
    except BaseException:
        evaluated.release()
        raise


# Made once: to make Columns takes many calls to the JVM.
@cache
def _numbers(holds: bool) -> tuple[Column, ...]:
    fate = F.col(FATE)
    found = [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col(ORDINAL) == 0).alias("records"),
        F.count_if(fate >= SOURCE).alias("failed"),
        F.sum(RETRIES).alias("retries"),
    ]
    return (*found, F.count_if(fate == HELD).alias("held")) if holds else tuple(found)


def _brought(evaluated: Evaluated) -> Failures | None:
    """Bring the failed records by the job that fills the local checkpoint; None: too many."""
    partitions = partitions_of(evaluated.rows)
    return Failures.brought_from(evaluated.frame, partitions=partitions)


def _known(evaluated: Evaluated, failures: Failures) -> Evaluated:
    failed = len(failures.listed)
    return replace(evaluated, rows=evaluated.frame, shown=as_it_is, failed=failed, known=failures)


def _counted(evaluated: Evaluated, *, rows: int) -> Evaluated:
    """Count the records that have failed: they have so many failed rows."""
    frame = evaluated.frame
    failures = Failures.of(frame, failed=rows)
    failed = len(failures.listed) if are_few(rows) else failures.light.count()
    return replace(evaluated, rows=frame, shown=as_it_is, failed=failed, known=failures)
