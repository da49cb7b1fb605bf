"""Read pages of failures: of applications, error groups or a task, newest first.

One statement reads a page. It scans an index once for each application, group or task, newest
rows first, and filters the rows that the index gives. `CANDIDATES` bounds the rows that one page
reads, so a page of rare values can be short; then it has the time up to which it searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple
from uuid import UUID

import msgspec

from arrester.controlplane.store import batches, column_values, prepared_statements
from arrester.controlplane.store.batches import PLACE, Place
from arrester.controlplane.store.column_values import MAX_BIGINT, fit
from arrester.controlplane.store.log import Newest, Parameter
from arrester.domain.events import StoredEvent

#: The rows of the log that one page reads at most, of all scans together; a scan may always read
#: as many as the page has.
CANDIDATES = 5_000
#: The first attempt reads this many times a scan's share of the page, and at least `_LEAST` rows,
#: or a whole page where rows are filtered; each further attempt reads `_GROWTH` times as many.
_SHARES, _LEAST, _GROWTH = 4, 8, 8
_NAME = 'log.name COLLATE "C"'  # Python's order of texts


class FailureQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures to read; None means any."""

    #: Where to search unless groups or a task are given.
    applications: Sequence[str] = ()
    #: (application, fingerprint) of the groups to search.
    groups: Sequence[tuple[str, str]] | None = None
    #: (application, digest) of the task to search.
    task: tuple[str, UUID] | None = None
    pipeline: str | None = None
    stage: str | None = None
    exception_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Failures of a task after this log position occurred at `until` or later.
    until_sequence: int = MAX_BIGINT
    #: The last row of the previous page: occurred_at, application, sequence.
    before: Newest | None = None

    def matches(self, stored: StoredEvent) -> bool:
        """Return whether an event has the names asked for: two names can share one hash key."""
        event = stored.event
        failure = getattr(event.data, "failure", None)
        return (
            event.run is not None
            and failure is not None
            and self.pipeline in (None, event.run.pipeline)
            and (self.stage is None or self.stage == fit(failure.stage))
            and (
                self.exception_class is None or self.exception_class == fit(failure.exception_class)
            )
        )


class FoundFailures(NamedTuple):
    """Failures in order, and the key to which the search is complete; None: there are no more."""

    events: list[StoredEvent]
    end: Newest | None


def read_failures(wanted: FailureQuery, *, limit: int) -> FoundFailures:
    """Return up to `limit` failures without bodies, by time of occurrence, newest first.

    Failures of a task are in the order of the log, as its index is.
    """
    scans = _scans(wanted)
    max_rows = max(limit, CANDIDATES // scans.size)
    min_rows = limit if _filters(wanted) else _LEAST
    rows = min(max(min_rows, _SHARES * limit // scans.size), max_rows)
    while True:
        places, end = _read(wanted, scans, limit=limit, max_rows=rows)
        if len(places) == limit or end is None or rows == max_rows:
            break
        rows = min(_GROWTH * rows, max_rows)
    events = batches.read_at(places)
    return FoundFailures([each for each in events if wanted.matches(each)], end)


class _Scans(NamedTuple):
    """Index scans: rows (name, key) as SQL, its parameters, and how many rows there are."""

    sql: str
    parameters: list[Parameter]
    size: int


def _scans(wanted: FailureQuery) -> _Scans:
    if wanted.task is not None:
        return _Scans("(SELECT %s::text AS name, %s::uuid AS key) AS log", [*wanted.task], 1)
    if wanted.groups is not None:
        names, keys = [name for name, _ in wanted.groups], _causes(wanted.groups)
        sql = "unnest(%s::text[], %s::bigint[]) AS log (name, key)"
        return _Scans(sql, [names, keys], len(keys))
    sql = "SELECT application AS name, id AS key FROM stream WHERE application = ANY(%s::text[])"
    return _Scans(f"({sql}) AS log", [list(wanted.applications)], len(wanted.applications))


def _read(
    wanted: FailureQuery, scans: _Scans, *, limit: int, max_rows: int
) -> tuple[list[Place], Newest | None]:
    """Read a page, `max_rows` rows of each scan; return it, and the key to which it is complete."""
    order = "sequence DESC" if wanted.task else "occurred_at DESC, sequence DESC"
    page_order = order if wanted.task else f"occurred_at DESC, {_NAME} DESC, sequence DESC"
    bounds, filters = _bounds(wanted), _filters(wanted)
    # The last row of a full scan is returned even if it does not match: older rows of that scan are
    # unknown, so the page ends there.
    rows = prepared_statements.rows(
        f"SELECT {PLACE}, occurred_at, name, sequence, matches, is_last FROM {scans.sql}"
        " CROSS JOIN LATERAL (SELECT *,"
        f" row_number() OVER (ORDER BY {order}) = {max_rows} AS is_last"
        " FROM (SELECT stream, day, sequence, place, occurred_at,"
        f" {' AND '.join(filters) or 'true'} AS matches FROM event WHERE {' AND '.join(bounds)}"
        f" ORDER BY {order} LIMIT {max_rows}) AS candidate) AS event"
        f" WHERE matches OR is_last ORDER BY {page_order} LIMIT {limit:d}",
        [*scans.parameters, *chain(*filters.values()), *chain(*bounds.values())],
    )
    end = next((number for number, row in enumerate(rows, 1) if row[-1]), None)
    places = [Place(*row[:4]) for row in rows[:end] if row[-2]]
    if end is None and len(rows) < limit:
        return places, None
    return places, rows[:end][-1][4:7]


#: SQL of conditions, and the parameters of each.
_Conditions = dict[str, list[Parameter]]


def _bounds(wanted: FailureQuery) -> _Conditions:
    """Return the part of the index that each scan reads."""
    if wanted.task is not None:
        before = MAX_BIGINT if wanted.before is None else wanted.before[2]
        return {"task = log.key": [], "sequence < %s": [min(wanted.until_sequence + 1, before)]}
    column = "stream" if wanted.groups is None else "cause"
    conditions: _Conditions = {
        f"{column} = log.key": [],
        "count IS NOT NULL": [],
        **_occurred(wanted),
    }
    if wanted.before is not None:
        # The index starts at the first condition; the second is exact.
        conditions["occurred_at <= %s"] = [wanted.before[0]]
        conditions[f"(occurred_at, {_NAME}, sequence) < (%s, %s, %s)"] = [*wanted.before]
    return conditions


def _filters(wanted: FailureQuery) -> _Conditions:
    """Return the conditions on the rows that the index gives."""
    conditions: _Conditions = {
        f"{column} = %s": [column_values.hash_text(name)]
        for column in ("pipeline", "stage", "exception_class")
        if (name := getattr(wanted, column)) is not None
    }
    if wanted.task is not None:
        conditions |= {"count IS NOT NULL": [], **_occurred(wanted)}
        if wanted.groups is not None:
            conditions["cause = ANY(%s::bigint[])"] = [_causes(wanted.groups)]
    return conditions


def _causes(groups: Sequence[tuple[str, str]]) -> list[int]:
    return [column_values.hash_group(*group) for group in groups]


def _occurred(wanted: FailureQuery) -> _Conditions:
    limits = {"occurred_at >= %s": wanted.since, "occurred_at < %s": wanted.until}
    return {condition: [moment] for condition, moment in limits.items() if moment is not None}
