"""Aggregate failed records: groups with one response, and the content of the report.

A few records are rows on the driver, one for each. Of many, Spark combines those that are counted
only into one row per task and cause; the rest of the aggregation is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from arrester.agents.failures.pause_offsets import pause_offset_of, place, value_of_task
from arrester.agents.journal.entries import Cursor, SkippedRecords
from arrester.agents.spark.frames.local_checkpoint import ID
from arrester.agents.worker.columns import ENTRY, ERROR, OUTCOME, POSITION, TASK
from arrester.domain.error_policy.exception_identity import Cause

#: The rank of a record in its cause; the number of a record that is not combined with others.
_RANK, _SINGLE = "__arrester_rank", "__arrester_single"

#: The column of the hash of each record; NULL if it is not needed.
HASH: Final = "__arrester_hash"

#: A task and a position in it.
Coordinates = tuple[str | None, int | None]
#: An entry, and a position in it; NULL precedes all numbers.
_Place = tuple[int, bool, int]


class FailureSummary(NamedTuple):
    """The deciding parts of a failed record; or of several, as the first of them and a count."""

    id: int
    task: str | None
    entry: int
    position: int | None
    #: The number of the step.
    number: int
    kind: str | None = None
    exception_class: str | None = None
    frame: str | None = None
    cause: Cause = Cause(names=())
    attempts: int = 1
    records: int = 1
    #: Whether each has a position, and the extremes of the positions.
    placed: bool = True
    first: int | None = None
    last: int | None = None
    #: The hash of the source record, if it was collected; those of several are combined by XOR.
    record_hash: int | None = None

    @classmethod
    def of(cls, row: Row) -> FailureSummary:
        """Return the record in a numbered row of an evaluated frame."""
        position, error = row[POSITION], row[ERROR]
        single = cls(
            *(row[ID], row[TASK], row[ENTRY], position, row[OUTCOME]),
            placed=position is not None,
            first=position,
            last=position,
        )
        if error is None:
            return single
        return single._replace(
            kind=error["kind"],
            exception_class=error["exception_class"],
            frame=error["frame"],
            cause=Cause(names=tuple(error["names"] or ()), condition=error["condition"]),
            attempts=error["attempts"] or 1,
        )

    @property
    def place(self) -> _Place:
        """Its order within the task."""
        return _place(self.entry, self.position)

    @property
    def order(self) -> tuple[bool, str, _Place]:
        """Its order among all records, as Spark sorts them."""
        return self.task is not None, self.task or "", self.place

    @property
    def counted_with(self) -> tuple[int, str | None, str | None, int]:
        """What failures must have in common to be counted together."""
        return self.number, self.exception_class, self.frame, self.attempts


#: Records in order, each with its rank in its cause.
Ranking = list[tuple[int, FailureSummary]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The content of the report about failed records."""

    #: The numbers of those reported in full.
    examples: Sequence[int]
    #: Further records that stop tasks, in order.
    stopped_tasks: Sequence[FailureSummary]
    #: Records that are counted only, by task and cause.
    counted: Sequence[FailureSummary]


def grouped(rows: Iterable[FailureSummary], by_class: Collection[int]) -> list[FailureSummary]:
    """Return the records by task, step and kind; for steps in `by_class` also by cause."""
    groups: defaultdict[object, list[FailureSummary]] = defaultdict(list)
    for row in rows:
        cause = row.cause if row.number in by_class else None
        groups[row.task, row.number, row.kind, cause].append(row)
    return [_merged(group) for group in groups.values()]


def _merged(rows: Sequence[FailureSummary]) -> FailureSummary:
    """Return several summaries as one."""
    return min(rows, key=lambda row: row.place)._replace(
        records=sum(row.records for row in rows),
        placed=all(row.placed for row in rows),
        first=min((row.first for row in rows if row.first is not None), default=None),
        last=max((row.last for row in rows if row.last is not None), default=None),
    )


def report(
    ranked: Iterable[tuple[int, FailureSummary]],
    *,
    limit: int,
    in_full: Collection[Coordinates],
    pause_offsets: Mapping[str, Cursor],
) -> FailureReport:
    """Return the report about ranked failed records.

    Up to `limit` of each cause are reported in full, by task and position, and all at `in_full`.
    Records that stop tasks are reported one by one, all others counted exactly.
    """
    examples: list[int] = []
    stopped_tasks: list[FailureSummary] = []
    counted: defaultdict[object, list[FailureSummary]] = defaultdict(list)
    for rank, row in ranked:
        if rank <= limit or (row.task, row.position) in in_full:
            examples.append(row.id)
        elif row.place == _pause_place(row, pause_offsets):
            stopped_tasks.append(row)
        else:
            counted[row.task, row.counted_with].append(row)
    return FailureReport(
        examples=examples,
        stopped_tasks=stopped_tasks,
        counted=[_merged(rows) for rows in counted.values()],
    )


def ranked_on_driver(
    rows: Iterable[FailureSummary], pause_offsets: Mapping[str, Cursor]
) -> Ranking:
    """Return the rows in order, without held ones, each with its rank in its cause."""
    ranks: Counter[object] = Counter()
    ranked = []
    for row in sorted(rows, key=lambda row: row.order):
        pause = _pause_place(row, pause_offsets)
        if pause is None or row.place <= pause:
            ranks[row.counted_with] += 1
            ranked.append((ranks[row.counted_with], row))
    return ranked


def ranked_in_spark(
    records: DataFrame,
    *,
    limit: int,
    in_full: Collection[Coordinates],
    pause_offsets: Mapping[str, Cursor],
) -> Ranking:
    """Return the same of many records, with one row for those that are counted only."""
    single = F.col(_RANK) <= limit
    if in_full:
        single = single | _at(in_full)
    if pause_offsets:
        pause = pause_offset_of(pause_offsets)
        records = records.where(pause.isNull() | (place() <= pause))
        single = single | F.coalesce(place() == pause, F.lit(False))
    attempts = F.coalesce(F.col(ERROR)["attempts"], F.lit(1))
    cause = (F.col(OUTCOME), F.col(ERROR)["exception_class"], F.col(ERROR)["frame"], attempts)
    order = Window.partitionBy(*cause).orderBy(F.col(TASK).asc_nulls_first(), place().asc())
    ranked = records.withColumn(_RANK, F.row_number().over(order))
    rows = _combined(ranked.withColumn(_SINGLE, F.when(single, F.col(ID))))
    return sorted(rows, key=lambda each: each[1].order)


def combined_in_spark(records: DataFrame) -> list[FailureSummary]:
    """Return one row for all records of a task and cause."""
    nothing = F.lit(None).cast("long")
    return [row for _, row in _combined(records.withColumns({_SINGLE: nothing, _RANK: nothing}))]


def _combined(records: DataFrame) -> Ranking:
    """Return one row for all records of a task and cause with the same value of _SINGLE."""
    fields = ("kind", "exception_class", "frame", "names", "condition", "attempts")
    record = F.struct(ID, TASK, ENTRY, POSITION, OUTCOME, ERROR)
    rows = records.groupBy(_SINGLE, TASK, OUTCOME, *(F.col(ERROR)[name] for name in fields)).agg(
        F.min(_RANK).alias("rank"),
        F.min_by(record, place()).alias("record"),
        F.count(F.lit(1)).alias("count"),
        F.count(POSITION).alias("placed"),
        F.min(POSITION).alias("first"),
        F.max(POSITION).alias("last"),
        F.bit_xor(HASH).alias("hash"),
    )
    return [
        (
            row["rank"],
            FailureSummary.of(row["record"])._replace(
                records=row["count"],
                placed=row["placed"] == row["count"],
                first=row["first"],
                last=row["last"],
                record_hash=row["hash"],
            ),
        )
        for row in rows.collect()
    ]


def _at(coordinates: Collection[Coordinates]) -> Column:
    """Return whether a row is at one of these coordinates, which may be those of many tasks."""
    positions: defaultdict[str, list[int]] = defaultdict(list)
    others = []
    for task, position in coordinates:
        if task is not None and position is not None:
            positions[task].append(position)
        else:
            is_same_position = F.col(POSITION).eqNullSafe(F.lit(position))
            others.append(F.col(TASK).eqNullSafe(F.lit(task)) & is_same_position)
    is_listed = F.array_contains(value_of_task(positions, "array<bigint>"), F.col(POSITION))
    return reduce(Column.__or__, others, F.coalesce(is_listed, F.lit(False)))


def skipped_coordinates(
    rows: Iterable[FailureSummary], pause_offsets: Mapping[str, Cursor]
) -> tuple[SkippedRecords, ...]:
    """Return the coordinates of records that are skipped and not held."""
    positions: defaultdict[tuple[str | None, int], list[int | None]] = defaultdict(list)
    for row in rows:
        pause = _pause_place(row, pause_offsets)
        if pause is None or row.place < pause:
            positions[row.task, row.entry].append(row.position)
    return tuple(
        SkippedRecords(task=task, entry=entry, positions=tuple(some))
        for (task, entry), some in positions.items()
    )


def _pause_place(row: FailureSummary, pause_offsets: Mapping[str, Cursor]) -> _Place | None:
    """Return the place at which the row's task stops."""
    pause = None if row.task is None else pause_offsets.get(row.task)
    return None if pause is None else _place(pause.entry, pause.position)


def _place(entry: int, position: int | None) -> _Place:
    return entry, position is not None, position or 0
