"""The slow path: evaluate all records of a micro-batch once, and mark the failed ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import make_atomic, may_split_records
from arrester.agents.batch.record_columns import prepared, with_all
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Process, Step, Transform
from arrester.agents.execution.step_runner import (
    StepOptions,
    after_tail,
    run_at_once,
    run_step_by_step,
)
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
    partitions_of,
    release,
    releasing,
)
from arrester.agents.spark.local_relation import number_of
from arrester.controlplane.domain.error_policy.policy import Policy


def unchanged(rows: DataFrame) -> DataFrame:
    """Return rows that already have all internal columns."""
    return rows


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An evaluated micro-batch or chunk in local checkpoints."""

    #: The evaluated rows: the author's columns and some internal ones.
    rows: DataFrame
    #: Adds the other internal columns: hundreds of JVM calls, not needed while nothing fails.
    shown: Callable[[DataFrame], DataFrame] = unchanged
    #: The local checkpoints to release.
    blocks: tuple[DataFrame, ...]
    failed: int = 0
    held: int = 0
    #: Attempts after the first, also of successful records.
    retries: int = 0
    #: Whether rows of one record may have failed separately.
    parted: bool = False
    #: The result of the pipeline's tail for all successful rows; None: no tail, or the rows have
    #: changed.
    made: DataFrame | None = None
    #: Its failed records, if they are collected already.
    known: Failures | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The rows with all internal columns."""
        return self.shown(self.rows)

    @cached_property
    def failures(self) -> Failures:
        """The failed records, without their rows."""
        return self.known or Failures.of(self.frame, failed=self.failed)

    def with_frame(self, frame: DataFrame, *, failed: int) -> Evaluated:
        """Return it with other rows, of which this many records have failed."""
        return replace(self, rows=frame, shown=unchanged, failed=failed, made=None, known=None)

    @property
    def clean(self) -> bool:
        """Whether no record failed and none is to be held."""
        return self.failed == 0 and self.held == 0

    def passed(self, pipeline: Pipeline, held: Column | None = None) -> DataFrame:
        """Return the rows for the sink: successful ones without `held` ones."""
        tail = pipeline.tail
        if tail is not None and held is None and self.made is not None:
            return self.made
        all_of_ours = held is not None or tail is not None
        rows = (self.frame if all_of_ours else self.rows).where(f"{FATE} IS NULL")
        rows = rows if held is None else rows.where(~held)
        if tail is not None:
            return transformed(rows, tail)
        # As text: a Column of each name would take several JVM calls.
        return rows.selectExpr(*[in_quotes(name) for name in pipeline.columns])

    def release(self) -> None:
        """Release the local checkpoints."""
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
    """Run the steps of `pipeline` over `source`, each record separately.

    Held rows have a column ENTRY in addition to the source's; the position is unique within an
    entry. Tasks in `blocked` are not evaluated: their records are held. `marks` gives known
    decisions by task, entry and position. `is_large`: the rows may not fit into memory as objects.
    `fails`: some records are likely to fail.
    """
    names = [name for name in source.columns if name != ENTRY]
    begun = prepared(source, pipeline, blocked, marks)
    shown = partial(with_all, names=names, plain=pipeline.plain)
    way = StepOptions(source=names, shown=shown, policy=policy, is_large=is_large, fails=fails)
    evaluated = _evaluated(begun, way, pipeline.guarded, holds=bool(blocked))
    if pipeline.tail is None:
        return evaluated
    return _with_tail(evaluated, pipeline.tail, len(pipeline.steps), policy)


def _evaluated(
    begun: DataFrame, way: StepOptions, steps: Sequence[Step], *, holds: bool
) -> Evaluated:
    try:
        with releasing() as kept:
            evaluated = _checkpointed(run_at_once(begun, steps, way, kept=kept), way, holds=holds)
    except Exception as exc:  # a step failed as a whole, or the source
        if not _may_be_searched(exc, steps):
            raise
        with releasing() as kept:
            evaluated = _checkpointed(
                run_step_by_step(begun, steps, way, kept=kept), way, holds=holds
            )
    return _whole(evaluated) if evaluated.parted and may_split_records(steps) else evaluated


def _may_be_searched(exc: Exception, steps: Sequence[Step]) -> bool:
    """Whether records may be the cause: the author's code ran in the job, and the run is not
    stopping."""
    ran = any(isinstance(step, Process | Transform) for step in steps)
    return ran and not is_cancelled(exc) and not isinstance(exc, StepFailed)


def _whole(evaluated: Evaluated) -> Evaluated:
    try:
        return _checkpointed(make_atomic(evaluated.frame), StepOptions(), holds=evaluated.held > 0)
    finally:
        evaluated.release()


def _with_tail(evaluated: Evaluated, step: Transform, number: int, policy: Policy) -> Evaluated:
    """Run the last step, a transform: mark its failures and keep its result."""
    kept: list[DataFrame] = []
    made: DataFrame | None
    try:
        frame, made, blamed = after_tail(
            evaluated.frame, step, number=number, policy=policy, kept=kept
        )
        if blamed and ORDINAL not in evaluated.rows.columns:
            # Each row is a record of its own, so only the outcome of the isolated ones changes.
            evaluated = evaluated.with_frame(frame, failed=evaluated.failed + blamed)
        elif blamed:
            marked = _checkpointed(frame, StepOptions(), holds=evaluated.held > 0)
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


def _checkpointed(frame: DataFrame, way: StepOptions, *, holds: bool) -> Evaluated:
    """Evaluate `frame` once. `holds`: some of its records may be held."""
    if ORDINAL in frame.columns:
        return _observed(frame, way, holds=holds)
    # Each record is one row, and the counting job fills the local checkpoint.
    block = (
        in_columns(frame)
        if way.is_large
        else frame.localCheckpoint(eager=False, storageLevel=AS_OBJECTS)
    )
    evaluated = Evaluated(rows=block, shown=way.shown, blocks=(block,))
    try:
        # Held records are counted, not collected.
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


def _observed(frame: DataFrame, way: StepOptions, *, holds: bool) -> Evaluated:
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


# Cached: making a Column takes many calls to the JVM.
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
    """Collect the failed records with the job that fills the local checkpoint; None: too many."""
    partitions = partitions_of(evaluated.rows)
    return Failures.collect_few(evaluated.frame, partitions=partitions)


def _known(evaluated: Evaluated, failures: Failures) -> Evaluated:
    failed = len(failures.listed)
    return replace(evaluated, rows=evaluated.frame, shown=unchanged, failed=failed, known=failures)


def _counted(evaluated: Evaluated, *, rows: int) -> Evaluated:
    """Count the failed records among this many failed rows."""
    frame = evaluated.frame
    failures = Failures.of(frame, failed=rows)
    failed = len(failures.listed) if are_few(rows) else failures.light.count()
    return replace(evaluated, rows=frame, shown=unchanged, failed=failed, known=failures)
