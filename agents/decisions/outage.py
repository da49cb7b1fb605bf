"""Outage guard: detect that too large a share of a micro-batch fails alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import may_split_records
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.steps import Step
from arrester.agents.failures.aggregate import FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.failure_set import FailureSet
from arrester.agents.failures.pause_offsets import place
from arrester.agents.journal.entries import Cursor
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    FILTERED,
    ORDINAL,
    OUTCOME,
    POSITION,
    TASK,
)
from arrester.domain.error_policy.policy import OutagePolicy
from arrester.domain.events import FinalResponse

#: Native failures that are diagnosed to estimate the share of one cause.
_SAMPLE = 20
#: Causes that are counted separately: an outage is among the largest.
_CAUSES = 10
_LAST, _LAST_TASK = "__arrester_last", "__arrester_last_task"


#: Groups failures at the sink: class and top frame.
ClassAndFrame = tuple[str | None, str | None]
#: A step, the class and the top frame.
_Cause = tuple[int, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """The part of a micro-batch that reached the sink, if records failed there."""

    #: Whether a record is at or after the one at which its task stopped.
    stopped: Column
    #: Whether it comes after that one: then it was not sent.
    not_sent: Column
    #: Failures decided in earlier rounds.
    decided: Mapping[ClassAndFrame, int] = field(default_factory=dict)

    def records(self, frame: DataFrame, steps: Sequence[Step]) -> int:
        """Count the records that were sent."""
        reached = F.col(OUTCOME).isNull() | (F.col(OUTCOME) >= 0)
        return records_in(frame.where(reached & ~self.not_sent), steps)

    def not_overtaken(self, failed: DataFrame, frame: DataFrame) -> DataFrame:
        """Return the failed records after which nothing of their task was sent."""
        sent = frame.where(F.col(OUTCOME).isNull() & ~self.stopped)
        last = sent.groupBy(F.col(TASK).alias(_LAST_TASK)).agg(F.max(place()).alias(_LAST))
        joined = failed.join(last, F.col(TASK) == F.col(_LAST_TASK), "left")
        return joined.where(F.col(_LAST).isNull() | (place() > F.col(_LAST)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Records of a micro-batch that failed alike, too many of them to be bad records."""

    #: The first of them.
    example: FailedRecord
    failed: int
    #: All records of the micro-batch.
    records: int
    response: FinalResponse
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
    failures: FailureSet,
    pipeline: Pipeline,
    policy: OutagePolicy,
    progress: SinkProgress | None = None,
) -> Outage | None:
    """Return the outage in the failures of an evaluated micro-batch, if there is one.

    Causes of Python steps are counted exactly by class and frame; those of native steps by a
    sample. `progress` is given if the records failed at the sink.
    """
    if policy.share is None:
        return None
    if failures.evaluated is not None:
        records = failures.evaluated
    elif progress is None:
        records = failures.frame.where((F.col(ORDINAL) == 0) & _was_evaluated()).count()
    else:
        records = progress.records(failures.frame, pipeline.steps)
    causes: Counter[_Cause] = Counter()
    for each in failures.summaries:
        causes[_cause(each)] += each.records
    for cause, count in causes.most_common(_CAUSES):
        earlier = 0 if progress is None else progress.decided.get(cause[1:], 0)
        if policy.is_outage(earlier + count, records):
            example, failed, is_sample = _sample(failures, cause, count, pipeline)
            failed += earlier
            if not policy.is_outage(failed, records):
                continue
            pause_offsets: dict[str, Cursor] | None = None
            if policy.response is FinalResponse.PAUSE:
                pause_offsets = _first_records(failures.where(_is_of(cause)), progress)
            if pause_offsets == {}:
                # Later records of its task were sent: the outage is over.
                continue
            return Outage(
                example=example,
                failed=failed,
                records=records,
                # Records without a task or position cannot be held.
                response=FinalResponse.FAIL if pause_offsets is None else FinalResponse.PAUSE,
                estimated=is_sample,
                pause_offsets=pause_offsets or {},
            )
    return None


def _sample(
    failures: FailureSet, cause: _Cause, count: int, pipeline: Pipeline
) -> tuple[FailedRecord, int, bool]:
    """Return the first record of a cause, the number of such records, and whether it is estimated.

    The causes of native failures are known only for the records that are diagnosed.
    """
    native = pipeline.is_native(cause[0])
    ids = (each.id for each in failures.ordered() if _cause(each) == cause)
    sample = failures.load_by_id(pipeline, list(islice(ids, _SAMPLE if native else 1)))
    classes = [(each.problem.exception_class, each.problem.condition) for each in sample]
    largest, seen = Counter(classes).most_common(1)[0]
    failed = count * seen // len(sample)
    return sample[classes.index(largest)], failed, native and count > len(sample)


def _first_records(failures: FailureSet, progress: SinkProgress | None) -> dict[str, Cursor] | None:
    """Return the first of these records in each task; None if one has no position.

    Records that a task sent after a failed one are neither sent again nor held before it. Such a
    task stops at the first record after which nothing was sent, if there is one.
    """
    records = failures.records
    if not records.where(F.col(TASK).isNull() | F.col(POSITION).isNull()).isEmpty():
        return None
    if progress is not None:
        records = progress.not_overtaken(records, failures.frame)
    rows = records.groupBy(TASK).agg(F.min(place()).alias("first")).collect()
    return {row[TASK]: Cursor(**row["first"].asDict()) for row in rows}


def records_in(rows: DataFrame, steps: Sequence[Step]) -> int:
    """Count the records of rows that reached the sink after these steps."""
    if may_split_records(steps):
        # After a transform, the row that represents a record is none of the rows it became.
        return rows.select(TASK, ENTRY, POSITION).distinct().count()
    return rows.where(F.col(ORDINAL) == 0).count()


def _was_evaluated() -> Column:
    outcome = F.col(OUTCOME)
    return outcome.isNull() | (outcome >= 0) | (outcome == FILTERED)


def _cause(failure: FailureSummary) -> _Cause:
    return failure.number, failure.exception_class, failure.frame


def _is_of(cause: _Cause) -> Column:
    number, exception_class, frame = cause
    same_class = F.col(ERROR)["exception_class"].eqNullSafe(F.lit(exception_class))
    same_frame = F.col(ERROR)["frame"].eqNullSafe(F.lit(frame))
    return (F.col(OUTCOME) == number) & same_class & same_frame
