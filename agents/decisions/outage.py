"""The outage guard: more than a share of a micro-batch fails alike, and it is not the records."""

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

#: Of a native step so many failures are looked at, to tell what share of them has one cause.
_SAMPLE = 20
#: So many causes are told apart: an outage is one of the biggest.
_CAUSES = 10
_LAST, _LAST_TASK = "__arrester_last", "__arrester_last_task"


#: What failures at the end of a pipeline are told apart by: class and top frame.
Alike = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """How much of a micro-batch has come to the end of its pipeline, where records failed."""

    #: Whether a record is at, or behind, the one that its task has stopped at.
    stopped: Column
    #: Whether it is behind that one: then it was not tried.
    untried: Column
    #: Failures that were decided about before, in earlier rounds.
    before: Mapping[Alike, int] = field(default_factory=dict)

    def records(self, frame: DataFrame, steps: Sequence[Step]) -> int:
        """Count the records that were tried."""
        came = F.col(FATE).isNull() | (F.col(FATE) >= 0)
        return records_in(frame.where(came & ~self.untried), steps)

    def not_overtaken(self, failed: DataFrame, frame: DataFrame) -> DataFrame:
        """Return the failed records behind which nothing of their task was sent."""
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
    #: In the micro-batch, failed or not.
    records: int
    response: Response
    #: `failed` is an estimate from a sample: the step is native.
    estimated: bool
    #: Where each task halts: its first such record.
    pause_offsets: Mapping[str, Cursor]

    def __str__(self) -> str:
        """Say it in one line, for the log and the thread's reason."""
        about = "about " if self.estimated else ""
        cause = f"{self.example.stage}: {self.example.problem.exception_class}"
        return f"outage: {about}{self.failed:,} of {self.records:,} records failed alike at {cause}"


def detect_outage(
    failures: Failures, pipeline: Pipeline, policy: OutagePolicy, tried: SinkProgress | None = None
) -> Outage | None:
    """Return the outage that the failures of an evaluated micro-batch are, if they are one.

    Causes of Python steps are told apart by class and frame, exactly; those of native ones by a
    sample. `tried` is given where the records have failed at the end of the pipeline.
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
        # Whatever failed, later records of its task were sent: there is no outage any more.
        return None
    return Outage(
        example=example,
        failed=failed,
        records=records,
        # Where some have no task or no place, there is nothing to hold them by.
        response=Response.FAIL if pause_offsets is None else Response.PAUSE,
        estimated=native and count > len(sample),
        pause_offsets=pause_offsets or {},
    )


def _firsts(alike: Failures, tried: SinkProgress | None) -> dict[str, Cursor] | None:
    """Return where the first of these records is in each task; None: one has no place.

    What a task has sent behind a failed record is not sent again, and not held before it: such a
    task halts at the first one that nothing was sent behind, if there is one.
    """
    records = alike.records
    if not records.where(F.col(TASK).isNull() | F.col(POSITION).isNull()).isEmpty():
        return None
    if tried is not None:
        records = tried.not_overtaken(records, alike.frame)
    rows = records.groupBy(TASK).agg(F.min(place()).alias("first")).collect()
    return {row[TASK]: Cursor(**row["first"].asDict()) for row in rows}


def records_in(rows: DataFrame, steps: Sequence[Step]) -> int:
    """Count the records of rows that came to the end of a pipeline with these steps."""
    if may_split_records(steps):
        # Behind a transform a record's first row is none of those that it became.
        return rows.select(TASK, ENTRY, POSITION).distinct().count()
    return rows.where(F.col(ORDINAL) == 0).count()


def _was_evaluated() -> Column:
    fate = F.col(FATE)
    return fate.isNull() | (fate >= 0) | (fate == FILTERED)


def _is_of(cause: Row) -> Column:
    step: Column = F.col(FATE) == cause[FATE]
    kind = F.col(ERROR)["exception_class"].eqNullSafe(F.lit(cause["kind"]))
    return step & kind & F.col(ERROR)["frame"].eqNullSafe(F.lit(cause["frame"]))
