"""Count failed records in Python on the driver, without their rows, if they are few.

Many are aggregated in Spark (`aggregate_in_spark`), with the same results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from pyspark.sql import Row

from arrester.agents.executor.columns import ENTRY, ERROR, FATE, POSITION, TASK
from arrester.agents.failures.aggregate_in_spark import (
    Coordinates,
    CountedFailures,
    FailureGroup,
    FailureReport,
    StoppedTask,
)
from arrester.agents.journal.entries import Cursor, Skipped
from arrester.controlplane.domain.error_policy.exception_identity import Cause

#: An entry, and a position in it; NULL precedes all numbers.
_Place = tuple[int, bool, int]


class DriverRecord(NamedTuple):
    """A failed record: its place and the deciding parts of its error."""

    id: int
    task: str | None
    entry: int
    position: int | None
    #: Of the step.
    number: int
    kind: str | None = None
    exception_class: str | None = None
    frame: str | None = None
    cause: Cause = Cause(names=())
    attempts: int = 1

    @classmethod
    def of(cls, row: Row, id: int) -> DriverRecord:
        """Return the record in a row of an evaluated frame."""
        where = row[TASK], row[ENTRY], row[POSITION], row[FATE]
        error = row[ERROR]
        if error is None:
            return cls(id, *where)
        cause = Cause(names=tuple(error["names"] or ()), condition=error["condition"])
        known = error["kind"], error["exception_class"], error["frame"]
        return cls(id, *where, *known, cause, error["attempts"] or 1)

    @property
    def place(self) -> _Place:
        """Its order within the task."""
        return _place(self.entry, self.position)

    @property
    def order(self) -> tuple[bool, str, _Place]:
        """Its order among all records, as Spark sorts them."""
        return self.task is not None, self.task or "", self.place

    @property
    def alike(self) -> tuple[int, str | None, str | None, int]:
        """What failures must have in common to be counted together."""
        return self.number, self.exception_class, self.frame, self.attempts


def grouped(records: Iterable[DriverRecord], by_class: Collection[int]) -> list[FailureGroup]:
    """Return the records by task, step and kind; for steps in `by_class` also by cause."""
    found: dict[object, list[DriverRecord]] = {}
    for each in records:
        known = each.cause if each.number in by_class else None
        found.setdefault((each.task, each.number, each.kind, known), []).append(each)
    return [_group(some, known=some[0].number in by_class) for some in found.values()]


def _group(some: Sequence[DriverRecord], *, known: bool) -> FailureGroup:
    one = some[0]
    first = min(some, key=lambda each: each.place)
    placed = all(each.position is not None for each in some)
    return FailureGroup(
        task=one.task,
        number=one.number,
        kind=one.kind,
        cause=one.cause,
        known=known,
        count=len(some),
        first=Cursor(entry=first.entry, position=first.position) if placed else None,
    )


def report(
    records: Iterable[DriverRecord],
    *,
    limit: int,
    described: Collection[Coordinates],
    pause_offsets: Mapping[str, Cursor],
    dead: Set[str],
) -> FailureReport:
    """Return the report about failed records, as `aggregate_in_spark.report`."""
    examples: list[int] = []
    halts: list[DriverRecord] = []
    rest: dict[object, list[DriverRecord]] = {}
    ranks: dict[object, int] = {}
    for each in sorted(not_held(records, pause_offsets), key=lambda each: each.order):
        rank = ranks[each.alike] = ranks.get(each.alike, 0) + 1
        if rank <= limit or (each.task, each.position) in described:
            examples.append(each.id)
        elif _is_cut(each, pause_offsets):
            halts.append(each)
        else:
            rest.setdefault((each.task, each.alike), []).append(each)
    return FailureReport(
        examples=examples,
        halted=[_halted(each, dead) for each in halts],
        rest=[_rest(some) for some in rest.values()],
    )


def not_held(
    records: Iterable[DriverRecord], pause_offsets: Mapping[str, Cursor]
) -> list[DriverRecord]:
    """Return the records that are not held after a pause offset."""
    return [
        each for each in records if not pause_offsets or each.place <= _cut(each, pause_offsets)
    ]


def skipped(
    records: Iterable[DriverRecord], pause_offsets: Mapping[str, Cursor]
) -> tuple[Skipped, ...]:
    """Return the coordinates of records that are skipped and not held."""
    found: dict[tuple[str | None, int], list[int | None]] = {}
    for each in records:
        if each.task not in pause_offsets or each.place < _cut(each, pause_offsets):
            found.setdefault((each.task, each.entry), []).append(each.position)
    return tuple(
        Skipped(task=task, entry=entry, positions=tuple(positions))
        for (task, entry), positions in found.items()
    )


def _is_cut(each: DriverRecord, pause_offsets: Mapping[str, Cursor]) -> bool:
    return each.task in pause_offsets and each.place == _cut(each, pause_offsets)


def _cut(each: DriverRecord, pause_offsets: Mapping[str, Cursor]) -> _Place:
    cut = None if each.task is None else pause_offsets.get(each.task)
    return each.place if cut is None else _place(cut.entry, cut.position)


def _place(entry: int, position: int | None) -> _Place:
    return entry, position is not None, position or 0


def _halted(each: DriverRecord, dead: Set[str]) -> StoppedTask:
    assert each.task is not None
    return StoppedTask(
        task=each.task,
        position=each.position,
        number=each.number,
        exception_class=each.exception_class,
        frame=each.frame,
        attempts=each.attempts,
        dies=each.task in dead,
    )


def _rest(some: Sequence[DriverRecord]) -> CountedFailures:
    one, positions = some[0], [each.position for each in some if each.position is not None]
    return CountedFailures(
        task=one.task,
        number=one.number,
        exception_class=one.exception_class,
        frame=one.frame,
        attempts=one.attempts,
        count=len(some),
        first=min(positions, default=None),
        last=max(positions, default=None),
    )
