"""Failed records on the driver, without their rows: what is asked of a few is plain Python.

What is asked of many is asked in Spark (`aggregate_in_spark`); the answers are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from pyspark.sql import Row

from arrester.agents.executor.columns import ENTRY, ERROR, FATE, POSITION, TASK
from arrester.agents.failures.aggregate_in_spark import Coordinates, Group, Halted, Rest, Told
from arrester.agents.journal.entries import Cursor, Skipped
from arrester.controlplane.domain.error_policy.exception_identity import Cause

#: An entry, and a position in it; NULL comes before all numbers.
_Place = tuple[int, bool, int]


class Listed(NamedTuple):
    """A failed record: where it is, and what of its error decides."""

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
    def of(cls, row: Row, id: int) -> Listed:
        """Return what stands in a row of an evaluated frame."""
        where = row[TASK], row[ENTRY], row[POSITION], row[FATE]
        error = row[ERROR]
        if error is None:
            return cls(id, *where)
        cause = Cause(names=tuple(error["names"] or ()), condition=error["condition"])
        known = error["kind"], error["exception_class"], error["frame"]
        return cls(id, *where, *known, cause, error["attempts"] or 1)

    @property
    def place(self) -> _Place:
        """Where it stands among those of its task."""
        return _place(self.entry, self.position)

    @property
    def order(self) -> tuple[bool, str, _Place]:
        """Where it stands among all, as Spark sorts them."""
        return self.task is not None, self.task or "", self.place

    @property
    def alike(self) -> tuple[int, str | None, str | None, int]:
        """What failures have in common that are counted together."""
        return self.number, self.exception_class, self.frame, self.attempts


def grouped(records: Iterable[Listed], by_class: Collection[int]) -> list[Group]:
    """Return the records by task, step and kind; of steps in `by_class` by their cause, too."""
    found: dict[object, list[Listed]] = {}
    for each in records:
        known = each.cause if each.number in by_class else None
        found.setdefault((each.task, each.number, each.kind, known), []).append(each)
    return [_group(some, known=some[0].number in by_class) for some in found.values()]


def _group(some: Sequence[Listed], *, known: bool) -> Group:
    one = some[0]
    first = min(some, key=lambda each: each.place)
    placed = all(each.position is not None for each in some)
    return Group(
        task=one.task,
        number=one.number,
        kind=one.kind,
        cause=one.cause,
        known=known,
        count=len(some),
        first=Cursor(entry=first.entry, position=first.position) if placed else None,
    )


def told(
    records: Iterable[Listed],
    *,
    limit: int,
    described: Collection[Coordinates],
    cuts: Mapping[str, Cursor],
    dead: Set[str],
) -> Told:
    """Return what is told of failed records, as `aggregate_in_spark.told` does."""
    examples: list[int] = []
    halts: list[Listed] = []
    rest: dict[object, list[Listed]] = {}
    ranks: dict[object, int] = {}
    for each in sorted(standing(records, cuts), key=lambda each: each.order):
        rank = ranks[each.alike] = ranks.get(each.alike, 0) + 1
        if rank <= limit or (each.task, each.position) in described:
            examples.append(each.id)
        elif _is_cut(each, cuts):
            halts.append(each)
        else:
            rest.setdefault((each.task, each.alike), []).append(each)
    return Told(
        examples=examples,
        halted=[_halted(each, dead) for each in halts],
        rest=[_rest(some) for some in rest.values()],
    )


def standing(records: Iterable[Listed], cuts: Mapping[str, Cursor]) -> list[Listed]:
    """Return the records that are not held behind a cut."""
    return [each for each in records if not cuts or each.place <= _cut(each, cuts)]


def skipped(records: Iterable[Listed], cuts: Mapping[str, Cursor]) -> tuple[Skipped, ...]:
    """Return where the records are that are left out, and not held from a cut on."""
    found: dict[tuple[str | None, int], list[int | None]] = {}
    for each in records:
        if each.task not in cuts or each.place < _cut(each, cuts):
            found.setdefault((each.task, each.entry), []).append(each.position)
    return tuple(
        Skipped(task=task, entry=entry, positions=tuple(positions))
        for (task, entry), positions in found.items()
    )


def _is_cut(each: Listed, cuts: Mapping[str, Cursor]) -> bool:
    return each.task in cuts and each.place == _cut(each, cuts)


def _cut(each: Listed, cuts: Mapping[str, Cursor]) -> _Place:
    cut = None if each.task is None else cuts.get(each.task)
    return each.place if cut is None else _place(cut.entry, cut.position)


def _place(entry: int, position: int | None) -> _Place:
    return entry, position is not None, position or 0


def _halted(each: Listed, dead: Set[str]) -> Halted:
    assert each.task is not None
    return Halted(
        task=each.task,
        position=each.position,
        number=each.number,
        exception_class=each.exception_class,
        frame=each.frame,
        attempts=each.attempts,
        dies=each.task in dead,
    )


def _rest(some: Sequence[Listed]) -> Rest:
    one, positions = some[0], [each.position for each in some if each.position is not None]
    return Rest(
        task=one.task,
        number=one.number,
        exception_class=one.exception_class,
        frame=one.frame,
        attempts=one.attempts,
        count=len(some),
        first=min(positions, default=None),
        last=max(positions, default=None),
    )
