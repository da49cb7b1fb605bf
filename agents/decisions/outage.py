"""Outage guard: detect that too large a share of a micro-batch fails alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import may_split_records
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Step
from arrester.agents.executor.columns import ENTRY, ERROR, FATE, FILTERED, ORDINAL, POSITION, TASK
from arrester.agents.failures.failed_record import FailedRecord, is_native
from arrester.agents.failures.failure_set import Failures
from arrester.agents.failures.pause_offsets import place
from arrester.agents.journal.entries import Cursor
from arrester.controlplane.domain.error_policy.outage import OutagePolicy
from arrester.controlplane.domain.events import Response

#: Native failures that are diagnosed to estimate the share of one cause.
_SAMPLE = 20
#: Causes that are counted separately: an outage is among the largest.
_CAUSES = 10
_LAST, _LAST_TASK = "__arrester_last", "__arrester_last_task"


#: What groups failures at the sink: class and top frame.
Alike = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """The part of a micro-batch that reached the sink, if records failed there."""

    #: Whether a record is at or after the one at which its task stopped.
    stopped: Column
    #: Whether it comes after that one: then it was not tried.
    untried: Column
    #: Failures decided in earlier rounds.
    before: Mapping[Alike, int] = field(default_factory=dict)

    def records(self, frame: DataFrame, steps: Sequence[Step]) -> int:
        """Count the records that were tried."""
        came = F.col(FATE).isNull() | (F.col(FATE) >= 0)
        return records_in(frame.where(came & ~self.untried), steps)

    def not_overtaken(self, failed: DataFrame, frame: DataFrame) -> DataFrame:
        """Return the failed records after which nothing of their task was sent."""
        sent = frame.where(F.col(FATE).isNull() & ~self.stopped)
        last = sent.groupBy(F.col(TASK).alias(_LAST_TASK)).agg(F.max(place()).alias(_LAST))
        found = failed.join(last, F.col(TASK) == F.col(_LAST_TASK), "left")
        return found.where(F.col(_LAST).isNull() | (place() > F.col(_LAST)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Records of a micro-batch that failed alike, too many of them to be bad records."""

    #: The first of them.
    example: FailedRecord
    failed: int
    #: All records of the micro-batch.
    records: int
    response: Response
    #: `failed` is an estimate from a sample: the step is native.
    estimated: bool
    #: The stop of each task: its first such record.
    pause_offsets: Mapping[str, Cursor]

    def __str__(self) -> str:
        """Return one line for the log and the thread's reason."""
        about = "about " if self.estimated else ""
        cause = f"{self.example.stage}: {self.example.problem.exception_class}"
        return f"outage: {about}{self.failed:,} of {self.records:,} records failed alike at {cause}"


def detect_outage(
    failures: Failures, pipeline: Pipeline, policy: OutagePolicy, tried: SinkProgress | None = None
) -> Outage | None:
    """Return the outage in the failures of an evaluated micro-batch, if there is one.

    Causes of Python steps are counted exactly by class and frame; those of native steps by a
    sample. `tried` is given if the records failed at the sink.
    """
    if policy.share is None:
        return None
    if tried is None:
        records = failures.frame.where((F.col(ORDINAL) == 0) & _was_evaluated()).count()
    else:
        records = tried.records(failures.frame, pipeline.steps)
    causes = failures.in_one(failures.records).groupBy(
        FATE, F.col(ERROR)["exception_class"].alias("kind"), F.col(ERROR)["frame"].alias("frame")
    )
    biggest = causes.count().orderBy(F.col("count").desc()).limit(_CAUSES).collect()
    for cause in biggest:
        before = 0 if tried is None else tried.before.get((cause["kind"], cause["frame"]), 0)
        if policy.is_outage(before + cause["count"], records):
            alike = failures.where(_is_of(cause))
            found = _outage(alike, cause, before, records, pipeline, policy, tried)
            if found is not None:
                return found
    return None


def _outage(
    alike: Failures,
    cause: Row,
    before: int,
    records: int,
    pipeline: Pipeline,
    policy: OutagePolicy,
    tried: SinkProgress | None,
) -> Outage | None:
    native = is_native(pipeline, cause[FATE])
    count: int = cause["count"]
    ordered = alike.records.orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    sample = alike.load(pipeline, ordered.limit(_SAMPLE if native else 1))
    kinds = Counter((each.problem.exception_class, each.problem.condition) for each in sample)
    kind, seen = kinds.most_common(1)[0]
    failed = before + count * seen // len(sample)
    if not policy.is_outage(failed, records):
        return None
    example = next(
        each for each in sample if (each.problem.exception_class, each.problem.condition) == kind
    )
    pause_offsets = _firsts(alike, tried) if policy.response is Response.PAUSE else None
    if pause_offsets == {}:
        # Later records of its task were sent: the outage is over.
        return None
    return Outage(
        example=example,
        failed=failed,
        records=records,
        # Records without a task or position cannot be held.
        response=Response.FAIL if pause_offsets is None else Response.PAUSE,
        estimated=native and count > len(sample),
        pause_offsets=pause_offsets or {},
    )


def _firsts(alike: Failures, tried: SinkProgress | None) -> dict[str, Cursor] | None:
    """Return the first of these records in each task; None if one has no position.

    Records that a task sent after a failed one are neither sent again nor held before it. Such a
    task stops at the first record after which nothing was sent, if there is one.
    """
    records = alike.records
    if not records.where(F.col(TASK).isNull() | F.col(POSITION).isNull()).isEmpty():
        return None
    if tried is not None:
        records = tried.not_overtaken(records, alike.frame)
    rows = records.groupBy(TASK).agg(F.min(place()).alias("first")).collect()
    return {row[TASK]: Cursor(**row["first"].asDict()) for row in rows}


def records_in(rows: DataFrame, steps: Sequence[Step]) -> int:
    """Count the records of rows that reached the sink after these steps."""
    if may_split_records(steps):
        # After a transform, the row that represents a record is none of the rows it became.
        return rows.select(TASK, ENTRY, POSITION).distinct().count()
    return rows.where(F.col(ORDINAL) == 0).count()


def _was_evaluated() -> Column:
    fate = F.col(FATE)
    return fate.isNull() | (fate >= 0) | (fate == FILTERED)


def _is_of(cause: Row) -> Column:
    step: Column = F.col(FATE) == cause[FATE]
    kind = F.col(ERROR)["exception_class"].eqNullSafe(F.lit(cause["kind"]))
    return step & kind & F.col(ERROR)["frame"].eqNullSafe(F.lit(cause["frame"]))
