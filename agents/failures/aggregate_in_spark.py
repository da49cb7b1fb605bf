"""Failed records counted: in groups that are answered alike, and as they are told of.

In Spark, however many they are; of a few the same is asked in Python (`aggregate_on_driver`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from arrester.agents.executor.columns import ERROR, FATE, POSITION, TASK
from arrester.agents.failures.pause_offsets import cut_of, place
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import ID, checkpointed, release
from arrester.controlplane.domain.error_policy.exception_identity import Cause

_RANK = "__arrester_rank"
#: What becomes of a failed record: it is described, its task halts at it, it is counted.
_EXAMPLE, _HALTS, _REST = 0, 1, 2

#: A task and a position in it.
Coordinates = tuple[str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failed records of one task, step and kind; where `known`, of one cause."""

    task: str | None
    number: int
    kind: str | None
    #: Of one of them.
    cause: Cause
    known: bool
    count: int
    #: The first place among them; None: one has no position.
    first: Cursor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Failed records of one task and cause that are counted, not described."""

    task: str | None
    number: int
    exception_class: str | None
    frame: str | None
    #: Of each of them.
    attempts: int
    count: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """A record that a task halts at, told without its row: of its cause enough are described."""

    task: str
    position: int | None
    number: int
    exception_class: str | None
    frame: str | None
    attempts: int
    #: The task dies of it, alone.
    dies: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of failed records."""

    #: The numbers of those that are described.
    examples: Sequence[int]
    #: Where tasks halt, besides, in their order.
    halted: Sequence[Halted]
    rest: Sequence[Rest]


def grouped(records: DataFrame, by_class: Collection[int]) -> list[Group]:
    """Return the records by task, step and kind; of steps in `by_class` by their cause, too."""
    by, numbers = _numbers_by(tuple(by_class))
    return [
        Group(
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


def told(
    records: DataFrame,
    *,
    limit: int,
    described: Collection[Coordinates],
    cuts: Mapping[str, Cursor],
    dead: Set[str],
) -> Told:
    """Return what is told of failed records, without those that are held behind a cut.

    So many of each cause are described, by task and position, and all at `described`. Those that
    tasks halt at are told one by one, all others counted exactly.
    """
    cut = cut_of(cuts)
    standing = records.where(cut.isNull() | (place() <= cut)) if cuts else records
    is_example = F.col(_RANK) <= limit
    if described:
        is_example = is_example | _at(described)
    rank = F.when(is_example, _EXAMPLE)
    rank = rank.when(F.coalesce(place() == cut, F.lit(False)), _HALTS) if cuts else rank
    ranked = standing.withColumn(_RANK, _rank_of_cause())
    block = checkpointed(ranked.withColumn(_RANK, rank.otherwise(_REST)))
    try:
        examples = block.where(F.col(_RANK) == _EXAMPLE).select(ID).collect()
        return Told(
            examples=[row[ID] for row in examples],
            halted=_halts(block.where(F.col(_RANK) == _HALTS), dead) if cuts else (),
            rest=_counted(block.where(F.col(_RANK) == _REST)),
        )
    finally:
        release([block])


# Made once: to make Columns takes many calls to the JVM.
@cache
def _causes() -> tuple[Column, ...]:
    """Return what failures have to have in common to be counted together."""
    error = F.col(ERROR)
    attempts = F.coalesce(error["attempts"], F.lit(1))
    found = (F.col(FATE), error["exception_class"], error["frame"], attempts)
    return tuple(each.alias(f"cause{number}") for number, each in enumerate(found))


@cache
def _rank_of_cause() -> Column:
    """Return the number of a failed record among those of its cause, by task and position."""
    order = Window.partitionBy(*_causes()).orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    return F.row_number().over(order)


@cache
def _numbers() -> tuple[Column, ...]:
    position = F.col(POSITION)
    first, last = F.min(position), F.max(position)
    return F.count(F.lit(1)).alias("n"), first.alias("first"), last.alias("last")


@cache
def _numbers_by(by_class: tuple[int, ...]) -> tuple[list[Column], list[Column]]:
    """Return what failures are told apart by, and what is counted of those alike."""
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


def _halts(failed: DataFrame, dead: Set[str]) -> list[Halted]:
    """Bring where tasks halt, and of what, in the order of tasks; no rows, no traces."""
    return [
        Halted(
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


def _counted(failed: DataFrame) -> list[Rest]:
    """Count failed records by task and cause, exactly."""
    rows = failed.groupBy(TASK, *_causes()).agg(*_numbers()).collect()
    return [
        Rest(
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
