"""Finding failures: of applications, groups or tasks, newest first, and never more than so many.

What no index has is asked of the rows that an index gives in order, as many as `CANDIDATES` says:
a page ends where they end, and says so. `failure_pages` puts together what several days have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.store import hash_keys, prepared_statements
from arrester.controlplane.store.batches import PLACE, Place
from arrester.controlplane.store.column_limits import MOST, fit
from arrester.controlplane.store.day_partitions import among
from arrester.controlplane.store.log import Newest, Parameter

#: So many rows are looked at for one page, all scans together, and at least a page's for each.
CANDIDATES = 500
#: So many entries of an index are read for one page, where it has all that is asked.
ENTRIES = 10_000
#: From so many scans on, fewer rows of each are tried first: so many, and so many times their share
#: of the page; and then so many times more.
_MANY, _SOME, _TIMES = 5, 8, 4
#: The same where something is asked of the rows of fewer scans.
_TWICE = 2
_BY_TIME = "occurred_at DESC, sequence DESC"
_AS_TOLD = "sequence DESC"
_COLUMNS = "stream, day, sequence, place, occurred_at"
#: In the order of its characters, as Python has it.
_NAME = 'name COLLATE "C"'


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures to read; what is None does not matter."""

    #: Neither tasks nor groups say where to look: all that failed in these.
    applications: Sequence[str] = ()
    #: (application, fingerprint) of the groups that it can only be; None: it may be any.
    groups: Sequence[tuple[str, str]] | None = None
    #: How many records of these groups failed.
    failed: int = 0
    #: (application, digest) of the tasks that it can only be.
    tasks: Sequence[tuple[str, UUID]] | None = None
    #: All that these tasks have is looked at, or, where none are given, all that these groups have.
    whole: bool = False
    #: Little of what is looked at is meant, probably: a page is not full soon.
    rare: bool = False
    task: UUID | None = None
    pipeline: str | None = None
    stage: str | None = None
    exception_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: No failure of a task that occurred before `until` stands behind this position.
    until_position: int = MOST
    #: The row that the page before this one ended with: occurred_at, application, sequence.
    before: Newest | None = None

    @property
    def names(self) -> set[str]:
        """The applications in whose logs they can be."""
        return {name for name, _ in self.tasks or self.groups or ()} or set(self.applications)

    @property
    def end(self) -> int:
        """A position that all of a task stand before."""
        before = MOST if self.before is None else self.before[2]
        return min(self.until_position + 1, before)

    def has(self, stored: StoredEvent) -> bool:
        """Return whether an event is one of these, where its row's numbers say so."""
        event = stored.event
        failure = getattr(event.data, "failure", None)
        return (
            event.run is not None
            and failure is not None
            and self.pipeline in (None, event.run.pipeline)
            and self.stage in (None, fit(failure.stage))
            and self.exception_class in (None, fit(failure.exception_class))
        )


class Row(NamedTuple):
    """Where a failure is, and what it is sorted by."""

    place: Place
    key: Newest


class Found(NamedTuple):
    """Failures in the order of `Failures.order`, all that there are up to `end`; None: no more."""

    rows: list[Row]
    end: Newest | None


def look(wanted: Failures, days: Sequence[date], *, limit: int) -> Found:
    """Return the first failures that came on some days, no more than `limit`."""
    scans = _scans(wanted)
    if wanted.whole:
        return _read(wanted, scans, days, limit=limit, most=None)
    most = max(limit, CANDIDATES // scans.many if _meant(wanted)[0] else 0)
    for few in () if wanted.rare else _few(wanted, scans, limit=limit):
        if few >= most:
            break
        found = _read(wanted, scans, days, limit=limit, most=few)
        if len(found.rows) == limit or found.end is None:
            return found
    return _read(wanted, scans, days, limit=limit, most=most)


def _few(wanted: Failures, scans: _Scans, *, limit: int) -> Sequence[int]:
    """Return how many rows of each scan are tried first, where more may be read."""
    if scans.many < _MANY or not _fills(wanted):
        # What is asked of the rows is frequent, mostly; a cause has it, or not.
        return [limit if wanted.groups is not None else _TWICE * limit]
    # A page has a few of each, mostly: all that it may have of one would be many times more.
    few = max(_SOME, _TIMES * limit // scans.many)
    return [few, _TIMES * few]


def _fills(wanted: Failures) -> bool:
    """Whether most that is read is meant."""
    named = (wanted.task, wanted.tasks, wanted.pipeline, wanted.exception_class)
    return all(each is None for each in named) and (
        wanted.stage is None or wanted.groups is not None
    )


def _read(
    wanted: Failures, scans: _Scans, days: Sequence[date], *, limit: int, most: int | None
) -> Found:
    """Read at most `most` rows of each scan."""
    within, bounds = _bounds(wanted)
    condition, given = among(days)
    within, bounds = [*within, condition], [*bounds, *given]
    meant, values = _meant(wanted)
    order = _AS_TOLD if wanted.task or wanted.tasks is not None else _BY_TIME
    result = _AS_TOLD if wanted.task else f"occurred_at DESC, {_NAME} DESC, sequence DESC"
    ends = f"ORDER BY {order} LIMIT {most}"
    if most is None:
        # All is read, and sorted once.
        within, bounds, ends = [*within, *meant], [*bounds, *values], "LIMIT ALL"
        meant, values = [], []
    # One short index scan for each, whatever the others' size. A subselect with a limit, and be it
    # none, is planned for itself, so what is meant chooses no other index.
    near = (
        f"SELECT {_COLUMNS}, {' AND '.join(meant) or 'true'} AS meant FROM event"
        f" WHERE {' AND '.join(within)} {ends}"
    )
    # The last row that each reads is given too, meant or not: what is older than that is not known.
    # Where all is meant, that is one of so many.
    is_last = f"row_number() OVER (ORDER BY {order}) = {most}" if meant else "false"
    rows = prepared_statements.rows(
        f"SELECT {PLACE}, occurred_at, name, sequence, scan, meant, last FROM {scans.sql}"
        f" CROSS JOIN LATERAL (SELECT *, {is_last} AS last FROM ({near}) AS near) AS event"
        f" WHERE meant OR last ORDER BY {result} LIMIT {limit:d}",
        [*scans.given, *values, *bounds],
    )
    last = _ended(rows, most)
    found = [Row(Place(*row[:4]), row[4:7]) for row in rows[:last] if row[-2]]
    if last is None and len(rows) < limit:
        return Found(found, None)
    return Found(found, rows[:last][-1][4:7])


def _ended(rows: Sequence[tuple[Any, ...]], most: int | None) -> int | None:
    """Return how many rows there are up to the first that is the last of `most` of its scan."""
    told: Counter[Any] = Counter()
    for number, (*_, scan, _, is_last) in enumerate(rows, 1):
        told[scan] += 1
        if is_last or told[scan] == most:
            return number
    return None


class _Scans(NamedTuple):
    """What is read in one go each, as the rows (name, scan) of `log`, and how many these are."""

    sql: str
    given: list[Parameter]
    many: int


def _scans(wanted: Failures) -> _Scans:
    if wanted.tasks is not None:
        return _listed(wanted.tasks, "uuid")
    if wanted.groups is not None:
        found = [(group[0], hash_keys.of_cause(*group)) for group in wanted.groups]
        return _listed(found, "bigint")
    names = list(wanted.applications)
    if len(names) == 1:
        one = "(SELECT id FROM stream WHERE application = %s)"
        return _Scans(f"(SELECT %s::text AS name, {one} AS scan) AS log", [*names, *names], 1)
    many = "SELECT application AS name, id AS scan FROM stream WHERE application = ANY(%s::text[])"
    return _Scans(f"({many}) AS log", [names], len(names))


def _listed(found: Sequence[tuple[str, Parameter]], type: str) -> _Scans:
    """Return the rows of a list. Only one is no join: a page that is full is read no further."""
    if len(found) == 1:
        return _Scans(f"(SELECT %s::text AS name, %s::{type} AS scan) AS log", [*found[0]], 1)
    names, values = [name for name, _ in found], [value for _, value in found]
    rows = f"unnest(%s::text[], %s::{type}[]) AS log (name, scan)"
    return _Scans(rows, [names, values], len(found))


def _bounds(wanted: Failures) -> tuple[list[str], list[Parameter]]:
    """Return which part of an index is read, and the parameters of that."""
    conditions = ["stream = log.scan AND count IS NOT NULL"]
    given: list[Parameter] = []
    if wanted.tasks is not None:
        conditions = ["task = log.scan"]
    elif wanted.groups is not None:
        conditions = ["cause = log.scan AND count IS NOT NULL"]
    if wanted.task is not None:
        conditions.append("sequence < %s")
        given.append(wanted.end)
        return conditions, given
    occurred, moments = _occurred(wanted)
    conditions += occurred
    given += moments
    if wanted.before is not None:
        # The first condition is what the index begins at, the second is exact.
        conditions.append(
            f"occurred_at <= %s AND (occurred_at, log.{_NAME}, sequence) < (%s, %s, %s)"
        )
        given += [wanted.before[0], *wanted.before]
    return conditions, given


def _meant(wanted: Failures) -> tuple[list[str], list[Parameter]]:
    """Return what is asked of each row that is read, and the parameters of that."""
    # A task has one pipeline, and a cause one stage.
    numbers = {
        "task": wanted.task if wanted.tasks is None else None,
        "pipeline": _mark(wanted.pipeline) if wanted.tasks is None else None,
        "stage": _mark(wanted.stage) if wanted.groups is None else None,
        "exception_class": _mark(wanted.exception_class),
    }
    asked = {name: value for name, value in numbers.items() if value is not None}
    conditions = [f"{name} = %s" for name in asked]
    given: list[Parameter] = [*asked.values()]
    if wanted.tasks is not None:
        conditions.append("count IS NOT NULL")
        if wanted.groups is not None:
            conditions.append("cause = ANY(%s::bigint[])")
            given.append(_causes(wanted))
    if wanted.task is not None:
        occurred, moments = _occurred(wanted)
        conditions += occurred
        given += moments
    return conditions, given


def _causes(wanted: Failures) -> list[int]:
    return [hash_keys.of_cause(*group) for group in wanted.groups or ()]


def _occurred(wanted: Failures) -> tuple[list[str], list[Parameter]]:
    bounds = {"occurred_at >= %s": wanted.since, "occurred_at < %s": wanted.until}
    asked = {condition: moment for condition, moment in bounds.items() if moment is not None}
    return [*asked], [*asked.values()]


def _mark(text: str | None) -> int | None:
    return None if text is None else hash_keys.of_text(text)
