"""The outage guard: more than a share of a micro-batch fails alike, and it is not the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from agents.entries import Cursor
from agents.failed import FailedRecord, is_native
from agents.failures import Failures
from agents.held import place
from agents.pipeline import Pipeline
from agents.worker.columns import ERROR, FATE, FILTERED, ORDINAL, POSITION, TASK
from controlplane.domain.events import Response
from controlplane.domain.outage import OutagePolicy

#: Of a native step so many failures are looked at, to tell what share of them has one cause.
_SAMPLE = 20
#: So many causes are told apart: an outage is one of the biggest.
_CAUSES = 10


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
    cuts: Mapping[str, Cursor]

    def __str__(self) -> str:
        """Say it in one line, for the log and the thread's reason."""
        about = "about " if self.estimated else ""
        cause = f"{self.example.stage}: {self.example.problem.exception_class}"
        return f"outage: {about}{self.failed:,} of {self.records:,} records failed alike at {cause}"


def outage_in(failures: Failures, pipeline: Pipeline, policy: OutagePolicy) -> Outage | None:
    """Return the outage that the failures of an evaluated micro-batch are, if they are one.

    Causes of Python steps are told apart by class and frame,
    exactly; those of native ones by a sample.
    """
    if policy.share is None:
        return None
    records = failures.frame.where((F.col(ORDINAL) == 0) & _was_evaluated()).count()
    causes = failures.in_one(failures.records).groupBy(
        FATE, F.col(ERROR)["exception_class"].alias("kind"), F.col(ERROR)["frame"].alias("frame")
    )
    biggest = causes.count().orderBy(F.col("count").desc()).limit(_CAUSES).collect()
    for cause in biggest:
        if policy.is_outage(cause["count"], records):
            found = _outage(failures.where(_is_of(cause)), cause, records, pipeline, policy)
            if found is not None:
                return found
    return None


def _outage(
    alike: Failures, cause: Row, records: int, pipeline: Pipeline, policy: OutagePolicy
) -> Outage | None:
    native = is_native(pipeline, cause[FATE])
    count: int = cause["count"]
    ordered = alike.records.orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    sample = alike.bring(pipeline, ordered.limit(_SAMPLE if native else 1))
    kinds = Counter((each.problem.exception_class, each.problem.condition) for each in sample)
    kind, seen = kinds.most_common(1)[0]
    failed = count * seen // len(sample)
    if not policy.is_outage(failed, records):
        return None
    example = next(
        each for each in sample if (each.problem.exception_class, each.problem.condition) == kind
    )
    cuts = _firsts(alike.records) if policy.response is Response.PAUSE else None
    return Outage(
        example=example,
        failed=failed,
        records=records,
        # Where some have no task or no place, there is nothing to hold them by.
        response=Response.FAIL if cuts is None else Response.PAUSE,
        estimated=native and count > len(sample),
        cuts=cuts or {},
    )


def _firsts(alike: DataFrame) -> dict[str, Cursor] | None:
    """Return where the first of these records is in each task; None: one has no place."""
    if not alike.where(F.col(TASK).isNull() | F.col(POSITION).isNull()).isEmpty():
        return None
    rows = alike.groupBy(TASK).agg(F.min(place()).alias("first")).collect()
    return {row[TASK]: Cursor(**row["first"].asDict()) for row in rows}


def _was_evaluated() -> Column:
    fate = F.col(FATE)
    return fate.isNull() | (fate >= 0) | (fate == FILTERED)


def _is_of(cause: Row) -> Column:
    step: Column = F.col(FATE) == cause[FATE]
    kind = F.col(ERROR)["exception_class"].eqNullSafe(F.lit(cause["kind"]))
    return step & kind & F.col(ERROR)["frame"].eqNullSafe(F.lit(cause["frame"]))
