"""Failed records that are not described: where tasks halt, and how many there are of a cause."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from agents.held import place
from agents.worker.columns import ERROR, FATE, POSITION, TASK


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


# Made once: to make Columns takes many calls to the JVM.
@cache
def _causes() -> tuple[Column, ...]:
    """Return what failures have to have in common to be counted together."""
    error = F.col(ERROR)
    attempts = F.coalesce(error["attempts"], F.lit(1))
    found = (F.col(FATE), error["exception_class"], error["frame"], attempts)
    return tuple(each.alias(f"cause{number}") for number, each in enumerate(found))


@cache
def rank_of_cause() -> Column:
    """Return the number of a failed record among those of its cause, by task and position."""
    order = Window.partitionBy(*_causes()).orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    return F.row_number().over(order)


@cache
def _numbers() -> tuple[Column, ...]:
    position = F.col(POSITION)
    first, last = F.min(position), F.max(position)
    return F.count(F.lit(1)).alias("n"), first.alias("first"), last.alias("last")


def told_halts(failed: DataFrame, dead: Set[str]) -> list[Halted]:
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


def counted(failed: DataFrame) -> list[Rest]:
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
