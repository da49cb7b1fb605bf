"""The slow path: evaluate all records of a micro-batch once, and mark the failed ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import (
    make_atomic,
    may_split_records,
    with_internal_columns,
    with_outcome,
)
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Transform
from arrester.agents.execution.step_runner import StepRunner, run_final_transform, unchanged
from arrester.agents.execution.transforms import transformed
from arrester.agents.failures.failure_set import FailureSet, fits_driver
from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.spark.frames.column_names import with_columns_named
from arrester.agents.spark.frames.local_checkpoint import (
    Checkpoints,
    checkpointed,
    lazy_checkpoint,
    numbered,
    release,
    releasing,
    releasing_on_error,
)
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.agents.spark.jvm.stored_rows import partitions_of, row_count
from arrester.agents.worker.columns import ENTRY, HELD, ORDINAL, OUTCOME, RETRIES, SOURCE
from arrester.domain.error_policy.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An evaluated micro-batch or chunk in local checkpoints."""

    #: The evaluated rows: the author's columns and some internal ones.
    rows: DataFrame
    #: Adds the other internal columns: hundreds of JVM calls, needed only after a failure.
    add_internal_columns: Callable[[DataFrame], DataFrame] = unchanged
    #: The local checkpoints to release.
    blocks: tuple[DataFrame, ...]
    #: All records, if they are counted.
    records: int = 0
    failed: int = 0
    held: int = 0
    #: Attempts after the first, also of successful records.
    retries: int = 0
    #: Whether rows of one record may have failed separately.
    has_split_failures: bool = False
    #: The result of the final transform for all successful rows; None: there is none, or the rows
    #: have changed.
    final_rows: DataFrame | None = None
    #: The failed records, if they are already collected.
    collected_failures: FailureSet | None = None
    #: The hash of its records; None: it is not needed.
    record_hash: RecordHash | None = None
    #: Whether the rows are on the driver: those of records that passed are not among them.
    on_driver: bool = False
    #: The number of records that were evaluated; None: those of the rows.
    evaluated: int | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The rows with all internal columns."""
        return self.add_internal_columns(self.rows)

    @cached_property
    def failures(self) -> FailureSet:
        """The failed records, without their rows."""
        return self.collected_failures or FailureSet.of(
            self.frame,
            failed=self.failed,
            record_hash=self.record_hash,
            evaluated=self.evaluated,
        )

    def with_frame(
        self, frame: DataFrame, *, failed: int, failures: FailureSet | None = None
    ) -> Evaluated:
        """Return the batch with other rows, of which `failed` records have failed."""
        return replace(
            self,
            rows=frame,
            add_internal_columns=unchanged,
            failed=failed,
            final_rows=None,
            collected_failures=failures,
        )

    @property
    def clean(self) -> bool:
        """Whether no record failed and none is to be held."""
        return self.failed == 0 and self.held == 0

    def passed(
        self, pipeline: Pipeline, held: Column | None = None, *, more: Sequence[str] = ()
    ) -> DataFrame:
        """Return the rows for the sink: the successful ones that are not `held`.

        Without a last transform, `more` columns come first.
        """
        transform = pipeline.final_transform
        if transform is not None and held is None and self.final_rows is not None:
            return self.final_rows
        needs_internal = held is not None or transform is not None
        rows = (self.frame if needs_internal else self.rows).where(f"{OUTCOME} IS NULL")
        rows = rows if held is None else rows.where(~held)
        if transform is not None:
            return transformed(rows, transform)
        # As text: a Column of each name would take several JVM calls.
        return with_columns_named(rows, [*more, *pipeline.columns])

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
    expects_failures: bool = False,
    counts_records: bool = False,
    record_hash: RecordHash | None = None,
) -> Evaluated:
    """Run the steps of `pipeline` over `source`, each record separately.

    Held rows have a column ENTRY in addition to the source's; the position is unique within an
    entry. Records of the tasks in `blocked` are held, not evaluated. `marks` has the decisions that
    exist, by task, entry and position. `is_large`: the rows may not fit into memory as objects.
    `expects_failures`: some records are likely to fail; the first job then collects them. With
    `record_hash`, the job that collects failed records also hashes them.
    """
    source_names = [name for name in source.columns if name != ENTRY]
    add_internal_columns = partial(
        with_internal_columns, source_names=source_names, coordinates=pipeline.source_coordinates
    )
    store = partial(
        _stored,
        holds=bool(blocked),
        add_internal_columns=add_internal_columns,
        is_large=is_large,
        expects_failures=expects_failures,
        counts_records=counts_records,
        record_hash=record_hash,
    )
    runner = StepRunner(
        steps=pipeline.guarded_steps,
        policy=policy,
        source_names=source_names,
        add_internal_columns=add_internal_columns,
    )
    evaluated = _run_steps(runner, with_outcome(source, pipeline, blocked, marks), store)
    if evaluated.has_split_failures and may_split_records(pipeline.guarded_steps):
        evaluated = _atomic(evaluated)
    if pipeline.final_transform is None:
        return evaluated
    return _with_final_transform(evaluated, pipeline.final_transform, len(pipeline.steps), policy)


def _run_steps(
    runner: StepRunner, rows: DataFrame, store: Callable[[DataFrame], Evaluated]
) -> Evaluated:
    """Run all steps at once; if this fails and records may be the cause, step by step."""
    try:
        with releasing() as checkpoints:
            return store(runner.run_at_once(rows, checkpoints))
    except Exception as exc:  # a step failed as a whole, or the source
        if not runner.may_isolate(exc):
            raise
        with releasing() as checkpoints:
            return store(runner.run_step_by_step(rows, checkpoints))


def _with_final_transform(
    evaluated: Evaluated, step: Transform, number: int, policy: Policy
) -> Evaluated:
    """Run the last step, a transform: mark its failures and keep its result."""
    blocks = Checkpoints(evaluated.blocks)
    with releasing_on_error(blocks):
        marked, result, isolated = run_final_transform(
            evaluated.frame, step, number=number, policy=policy, checkpoints=blocks
        )
        if isolated and ORDINAL not in evaluated.rows.columns:
            # Each record is one row, so only the outcome of the isolated ones changes.
            evaluated = evaluated.with_frame(marked, failed=evaluated.failed + isolated)
        elif isolated:
            evaluated = _stored_again(marked, evaluated)
            if evaluated.has_split_failures:
                evaluated = _atomic(evaluated)
                return replace(evaluated, blocks=(*blocks, *evaluated.blocks))
            blocks += evaluated.blocks
    return replace(evaluated, final_rows=result, blocks=tuple(blocks))


def _atomic(evaluated: Evaluated) -> Evaluated:
    """Return the batch with records failed as a whole; release the earlier rows."""
    try:
        return _stored_again(make_atomic(evaluated.frame), evaluated)
    finally:
        evaluated.release()


def _stored_again(frame: DataFrame, evaluated: Evaluated) -> Evaluated:
    """Return the batch with other rows of the same records, in another local checkpoint."""
    stored = _stored(frame, holds=evaluated.held > 0, record_hash=evaluated.record_hash)
    return replace(stored, records=evaluated.records)


def _stored(
    frame: DataFrame,
    *,
    holds: bool,
    add_internal_columns: Callable[[DataFrame], DataFrame] = unchanged,
    is_large: bool = False,
    expects_failures: bool = False,
    counts_records: bool = False,
    record_hash: RecordHash | None = None,
) -> Evaluated:
    """Evaluate `frame` once, in a local checkpoint, and count its failed and held records."""
    if ORDINAL in frame.columns:
        return _observed(
            frame, holds=holds, add_internal_columns=add_internal_columns, record_hash=record_hash
        )
    # Each record is one row, and the counting job fills the local checkpoint.
    block = lazy_checkpoint(frame, columnar=is_large)
    evaluated = Evaluated(
        rows=block,
        add_internal_columns=add_internal_columns,
        blocks=(block,),
        record_hash=record_hash,
    )
    with releasing_on_error(evaluated.blocks):
        # Records that may be held are counted, not collected.
        if expects_failures and not holds:
            collected = _collected(evaluated, block, counts_records=counts_records)
            if collected is not None:
                return collected
        rows, count = _rows_and_count(block, counts=counts_records)
        failed = row_count(rows.where(f"{OUTCOME} >= {SOURCE}"))
        records = count()
        held = row_count(block.where(f"{OUTCOME} = {HELD}")) if holds else 0
    return replace(evaluated, records=records, failed=failed, held=held)


def _collected(evaluated: Evaluated, block: DataFrame, *, counts_records: bool) -> Evaluated | None:
    """Return a batch with its failed records, collected by its first job; None: possibly too
    many."""
    rows, count = _rows_and_count(block, counts=counts_records)
    failures = FailureSet.collect(
        evaluated.add_internal_columns(rows),
        partitions=partitions_of(block),
        record_hash=evaluated.record_hash,
    )
    if failures is None:
        return None
    # Later jobs do not count.
    failures.frame = numbered(evaluated.frame)
    evaluated = replace(evaluated, records=count())
    return _with_failures(evaluated, failures, len(failures.on_driver))


def _rows_and_count(block: DataFrame, *, counts: bool) -> tuple[DataFrame, Callable[[], int]]:
    """Return the rows of a local checkpoint for the job that fills it, and how many it read.

    They are counted after they are stored: a repeated task reads what an earlier attempt stored.
    """
    if not counts:
        return block, lambda: 0
    counter = RowCounter(block.sparkSession, name=None, counts_failed_tasks=False)
    return counter.counted(block), lambda: counter.count


def _observed(
    frame: DataFrame,
    *,
    holds: bool,
    add_internal_columns: Callable[[DataFrame], DataFrame],
    record_hash: RecordHash | None,
) -> Evaluated:
    """Evaluate a frame once whose records may have become several rows."""
    observation = Observation()
    observed = frame.observe(observation, *_counters(holds))
    block = checkpointed(observed)
    counts = observation.get
    evaluated = Evaluated(
        rows=block,
        add_internal_columns=add_internal_columns,
        blocks=(block,),
        records=int(counts["records"] or 0),
        held=int(counts.get("held") or 0),
        retries=int(counts["retries"] or 0),
        has_split_failures=bool(counts["failed"] and counts["rows"] > counts["records"]),
        record_hash=record_hash,
    )
    with releasing_on_error(evaluated.blocks):
        return _with_failures_among(evaluated, rows=counts["failed"])


# Cached: making a Column takes many calls to the JVM.
@cache
def _counters(holds: bool) -> tuple[Column, ...]:
    outcome = F.col(OUTCOME)
    counters = [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col(ORDINAL) == 0).alias("records"),
        F.count_if(outcome >= SOURCE).alias("failed"),
        F.sum(RETRIES).alias("retries"),
    ]
    return (*counters, F.count_if(outcome == HELD).alias("held")) if holds else tuple(counters)


def _with_failures_among(evaluated: Evaluated, *, rows: int) -> Evaluated:
    """Return the batch with its failed records; they have at most `rows` rows."""
    if not rows:
        return evaluated
    failures = FailureSet.of(evaluated.frame, failed=rows, record_hash=evaluated.record_hash)
    if fits_driver(rows):
        failed = len(failures.on_driver)
    else:
        failed = row_count(failures.rows.select(OUTCOME))
    return _with_failures(evaluated, failures, failed)


def _with_failures(evaluated: Evaluated, failures: FailureSet, failed: int) -> Evaluated:
    if not failed:
        return evaluated
    return evaluated.with_frame(evaluated.frame, failed=failed, failures=failures)
