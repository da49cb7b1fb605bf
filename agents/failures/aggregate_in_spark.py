"""Count failed records in Spark: in groups with the same response, and for the report.

For any number of records; few are aggregated in Python (`aggregate_on_driver`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from arrester.agents.executor.columns import ERROR, FATE, POSITION, TASK
from arrester.agents.failures.pause_offsets import pause_offset_of, place
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import ID, checkpointed, release
from arrester.controlplane.domain.error_policy.exception_identity import Cause

_RANK = "__arrester_rank"
#: A failed record is reported in full, stops its task, or is counted only.
_EXAMPLE, _HALTS, _REST = 0, 1, 2

#: A task and a position in it.
Coordinates = tuple[str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failed records of one task, step and kind; if `known`, also of one cause."""

    task: str | None
    number: int
    kind: str | None
    #: The cause of one of them.
    cause: Cause
    known: bool
    count: int
    #: The first position among them; None: one of them has no position.
    first: Cursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedFailures:
    """Failed records of one task and cause that are counted only."""

    task: str | None
    number: int
    exception_class: str | None
    frame: str | None
    #: The same for each of them.
    attempts: int
    count: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedTask:
    """A record that stops its task, without its row: enough of its cause are reported in full."""

    task: str
    position: int | None
    number: int
    exception_class: str | None
    frame: str | None
    attempts: int
    #: The task dies alone.
    dies: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The content of the report about failed records."""

    #: The numbers of those reported in full.
    examples: Sequence[int]
    #: Further records that stop tasks, in order.
    halted: Sequence[StoppedTask]
    rest: Sequence[CountedFailures]


def grouped(records: DataFrame, by_class: Collection[int]) -> list[FailureGroup]:
    """Return the records by task, step and kind; for steps in `by_class` also by cause."""
    by, numbers = _numbers_by(tuple(by_class))
    return [
        FailureGroup(
            task=row[TASK],
            number=row[FATE],
            kind=row["kind"],
            cause=Cause(names=tuple(row["names"] or ()), condition=row["condition"]),
            known=row["known"] is not None,
            count=row["count"],
            first=None if row["without"] else Cursor(**row["first"].asDict()),
        )
        for row in records.groupBy(*by).agg(*numbers).collect()
    ]


def report(
    records: DataFrame,
    *,
    limit: int,
    described: Collection[Coordinates],
    pause_offsets: Mapping[str, Cursor],
    dead: Set[str],
) -> FailureReport:
    """Return the report about failed records, without those held after a pause offset.

    Up to `limit` of each cause are reported in full, by task and position, and all at `described`.
    Records that stop tasks are reported one by one, all others counted exactly.
    """
    cut = pause_offset_of(pause_offsets)
    not_held = records.where(cut.isNull() | (place() <= cut)) if pause_offsets else records
    is_example = F.col(_RANK) <= limit
    if described:
        is_example = is_example | _at(described)
    rank = F.when(is_example, _EXAMPLE)
    rank = rank.when(F.coalesce(place() == cut, F.lit(False)), _HALTS) if pause_offsets else rank
    ranked = not_held.withColumn(_RANK, _rank_of_cause())
    block = checkpointed(ranked.withColumn(_RANK, rank.otherwise(_REST)))
    try:
        examples = block.where(F.col(_RANK) == _EXAMPLE).select(ID).collect()
        return FailureReport(
            examples=[row[ID] for row in examples],
            halted=_halts(block.where(F.col(_RANK) == _HALTS), dead) if pause_offsets else (),
            rest=_counted(block.where(F.col(_RANK) == _REST)),
        )
    finally:
        release([block])


# Cached: making a Column takes many calls to the JVM.
@cache
def _causes() -> tuple[Column, ...]:
    """Return what failures must have in common to be counted together."""
    error = F.col(ERROR)
    attempts = F.coalesce(error["attempts"], F.lit(1))
    found = (F.col(FATE), error["exception_class"], error["frame"], attempts)
    return tuple(each.alias(f"cause{number}") for number, each in enumerate(found))


@cache
def _rank_of_cause() -> Column:
    """Return the rank of a failed record in its cause, by task and position."""
    order = Window.partitionBy(*_causes()).orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    return F.row_number().over(order)


@cache
def _numbers() -> tuple[Column, ...]:
    position = F.col(POSITION)
    first, last = F.min(position), F.max(position)
    return F.count(F.lit(1)).alias("n"), first.alias("first"), last.alias("last")


@cache
def _numbers_by(by_class: tuple[int, ...]) -> tuple[list[Column], list[Column]]:
    """Return the grouping columns, and the aggregates of each group."""
    error = F.col(ERROR)
    cause = F.struct(error["names"], error["condition"])
    known = F.when(F.col(FATE).isin(*by_class), cause) if by_class else F.lit(None)
    with_position = F.col(POSITION).isNotNull()
    return [F.col(TASK), F.col(FATE), error["kind"].alias("kind"), known.alias("known")], [
        F.first(error["names"]).alias("names"),
        F.first(error["condition"]).alias("condition"),
        F.count(F.lit(1)).alias("count"),
        F.count_if(~with_position).alias("without"),
        F.min(F.when(with_position, place())).alias("first"),
    ]


def _at(places: Collection[Coordinates]) -> Column:
    """Return whether a row is at one of `places`."""
    conditions = [
        F.col(TASK).eqNullSafe(F.lit(task)) & F.col(POSITION).eqNullSafe(F.lit(position))
        for task, position in places
    ]
    return reduce(lambda one, other: one | other, conditions, F.lit(False))


def _halts(failed: DataFrame, dead: Set[str]) -> list[StoppedTask]:
    """Return the records that stop tasks, by task, without rows and stack traces."""
    return [
        StoppedTask(
            task=row[TASK],
            position=row[POSITION],
            number=row["cause0"],
            exception_class=row["cause1"],
            frame=row["cause2"],
            attempts=row["cause3"],
            dies=row[TASK] in dead,
        )
        for row in failed.select(TASK, POSITION, *_causes()).orderBy(TASK).collect()
    ]


def _counted(failed: DataFrame) -> list[CountedFailures]:
    """Count failed records by task and cause."""
    rows = failed.groupBy(TASK, *_causes()).agg(*_numbers()).collect()
    return [
        CountedFailures(
            task=row[TASK],
            number=row["cause0"],
            exception_class=row["cause1"],
            frame=row["cause2"],
            attempts=row["cause3"],
            count=row["n"],
            first=row["first"],
            last=row["last"],
        )
        for row in rows
    ]
