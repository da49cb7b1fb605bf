"""The careful path: all records of a micro-batch evaluated once, each with its fate beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from agents.failures import Failures, are_few, has_failed, light
from agents.gathered import gathered
from agents.pipeline import Pipeline
from agents.prepared import prepared, with_all
from agents.problem import StepFailed
from agents.search import is_cancelled, numbered, release
from agents.segments import in_quotes
from agents.steps import Process, Step, Transform
from agents.stretches import Way, after_tail, in_one_go, one_by_one
from agents.transforms import transformed
from agents.whole import made_whole, may_part
from agents.worker.columns import ENTRY, FATE, FILTERED, HELD, ORDINAL, RETRIES, SOURCE
from controlplane.domain.policy import Policy


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
    records: int
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
) -> Evaluated:
    """Run the steps of `pipeline` over `source`, each record by itself.

    Held rows have a column ENTRY beside the source's own; the position is unique within an entry.
    Tasks in `blocked` are not evaluated: their records are to be held. `marks` gives fates that
    are known already, by task, entry and position.
    """
    names = [name for name in source.columns if name != ENTRY]
    begun = prepared(source, pipeline, blocked, marks)
    shown = partial(with_all, names=names, plain=pipeline.plain)
    evaluated = _evaluated(begun, Way(source=names, shown=shown, policy=policy), pipeline.guarded)
    if pipeline.tail is None:
        return evaluated
    return _with_tail(evaluated, pipeline.tail, len(pipeline.steps), policy)


def _evaluated(begun: DataFrame, way: Way, steps: Sequence[Step]) -> Evaluated:
    kept: list[DataFrame] = []
    try:
        evaluated = _checkpointed(in_one_go(begun, steps, way, kept=kept), way.shown)
    except Exception as exc:  # a step failed as a whole, or the source
        release(kept)
        if not _may_be_searched(exc, steps):
            raise
        kept = []
        evaluated = _checkpointed(one_by_one(begun, steps, way, kept=kept), way.shown)
    release(kept)
    return _whole(evaluated) if evaluated.parted and may_part(steps) else evaluated


def _may_be_searched(exc: Exception, steps: Sequence[Step]) -> bool:
    """Whether records may be to blame: the author's code ran in the job, and nobody stops it."""
    ran = any(isinstance(step, Process | Transform) for step in steps)
    return ran and not is_cancelled(exc) and not isinstance(exc, StepFailed)


def _whole(evaluated: Evaluated) -> Evaluated:
    whole = _checkpointed(made_whole(evaluated.frame), as_it_is)
    evaluated.release()
    return whole


def _with_tail(evaluated: Evaluated, step: Transform, number: int, policy: Policy) -> Evaluated:
    """Run the last step, a transform: its failures are marked, what it made is kept aside."""
    kept: list[DataFrame] = []
    made: DataFrame | None
    frame, made, blamed = after_tail(evaluated.frame, step, number=number, policy=policy, kept=kept)
    if blamed and ORDINAL not in evaluated.rows.columns:
        # Each row is a record of its own: all that changes are the fates of those found.
        evaluated = evaluated.with_frame(frame, failed=evaluated.failed + blamed)
    elif blamed:
        evaluated = _checkpointed(frame, as_it_is)
        if evaluated.parted:
            evaluated = _whole(evaluated)
            made = None
    return replace(evaluated, made=made, blocks=(*evaluated.blocks, *kept))


def _checkpointed(frame: DataFrame, shown: Callable[[DataFrame], DataFrame]) -> Evaluated:
    """Evaluate `frame` once; `shown` gives what is seen of it its columns."""
    seen = Observation()
    may_be_several = ORDINAL in frame.columns
    observed = frame.observe(seen, *_numbers(may_be_several))
    block = observed.localCheckpoint(eager=True)
    counts = seen.get
    evaluated = Evaluated(
        rows=block,
        shown=shown,
        blocks=(block,),
        records=int(counts["records"]),
        retries=int(counts.get("retries") or 0),
    )
    if not counts["told"]:
        return evaluated
    several = may_be_several and counts["rows"] > counts["records"]
    return _counted(evaluated, told=counts["told"], several=several)


# Made once: to make Columns takes many calls to the JVM.
@cache
def _is_told() -> Column:
    """Return whether a row has a fate that is told or obeyed."""
    return F.col(FATE).isNotNull() & (F.col(FATE) != FILTERED)


@cache
def _numbers(may_be_several: bool) -> tuple[Column, ...]:
    """Return what is observed of a micro-batch, whose records may have become several rows."""
    rows, told = F.count(F.lit(1)), F.count_if(_is_told()).alias("told")
    if not may_be_several:
        return rows.alias("records"), told
    records, retries = F.count_if(F.col(ORDINAL) == 0), F.sum(RETRIES)
    return records.alias("records"), told, retries.alias("retries"), rows.alias("rows")


@cache
def _kinds() -> tuple[Column, ...]:
    fate, first = F.col(FATE), F.col(ORDINAL) == 0
    return (
        F.count_if(first & (fate >= SOURCE)).alias("failed"),
        F.count_if(first & (fate == HELD)).alias("held"),
        F.count_if(fate > SOURCE).alias("failed_rows"),
    )


def _counted(evaluated: Evaluated, *, told: int, several: bool) -> Evaluated:
    """Count what did not pass: so many rows; `several`: a record may have more than one."""
    whole = numbered(evaluated.frame)
    rows = light(whole.where(_is_told()))
    few = are_few(told)
    rows = gathered(rows) if few else rows
    counts = (rows.coalesce(1) if few else rows).agg(*_kinds()).collect()[0]
    return replace(
        evaluated,
        rows=evaluated.frame,
        shown=as_it_is,
        failed=counts["failed"],
        held=counts["held"],
        parted=bool(several and counts["failed_rows"]),
        known=Failures(records=rows.where(has_failed()), frame=whole, few=few),
    )
