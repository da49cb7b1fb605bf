"""Failed records by cause: counts per hour, and the largest causes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection

from arrester.controlplane.domain.state.states import GroupState, GroupStatus
from arrester.controlplane.models.counts import STEPS
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.failure_history.error_groups import groups_by_key
from arrester.controlplane.queries.failure_history.trends import HOUR, tallies
from arrester.controlplane.queries.results import Cause, Tally

Key = tuple[str, str]
#: Up to this many causes are summed one by one.
FEW = 1000
_QUIET = [status.value for status in GroupStatus if status is not GroupStatus.UNRESOLVED]
_NOT_QUIET = """NOT EXISTS (SELECT FROM error_group AS quiet WHERE quiet.first_seen IS NOT NULL
    AND quiet.status = ANY(%s::text[]) AND quiet.application = cause.application
    AND quiet.fingerprint = cause.fingerprint)"""
# Each hour individually: the key's order is application, hour, fingerprint.
_ONE_BY_ONE = """LATERAL (SELECT sum(count) AS number FROM hour_count
    WHERE hour_count.application = cause.application
    AND hour_count.fingerprint = cause.fingerprint
    AND hour_count.hour = ANY(%s::timestamptz[])) AS summed"""
# Large counts are found by the step that they have reached, which has an index.
_LIKELY = f"""
WITH cause AS MATERIALIZED (
    SELECT application, fingerprint FROM hour_count AS cause WHERE hour >= %s AND hour < %s
    AND step >= %s AND count >= %s AND {_NOT_QUIET} ORDER BY count DESC LIMIT %s
)
SELECT DISTINCT application, fingerprint, number FROM cause CROSS JOIN {_ONE_BY_ONE}
ORDER BY number DESC LIMIT %s
"""
_ANY_HOUR = """
SELECT DISTINCT application, fingerprint FROM hour_count
WHERE hour >= %s AND hour < %s AND step >= %s AND count >= %s LIMIT %s
"""
_OF_THESE = f"""
SELECT application, fingerprint, number
FROM unnest(%s::text[], %s::text[]) AS cause (application, fingerprint)
CROSS JOIN {_ONE_BY_ONE} WHERE {_NOT_QUIET} ORDER BY number DESC, 1, 2 LIMIT %s
"""


def failed_by_group(
    groups: Iterable[GroupState], *, since: datetime, until: datetime
) -> tuple[Tally, ...]:
    """Return failed records per hour of [since, until) of some error groups."""
    wanted = list(groups)
    return tallies(
        "SELECT hour, application, fingerprint, count FROM hour_count"
        " JOIN unnest(%s::text[], %s::text[]) AS wanted (application, fingerprint)"
        " USING (application, fingerprint) WHERE hour = ANY(%s::timestamptz[]) ORDER BY 1, 2, 3",
        [
            [each.application for each in wanted],
            [each.fingerprint for each in wanted],
            _hours(since, until),
        ],
    )


def top_causes(
    *, since: datetime, until: datetime, application: str | None = None, limit: int = 8
) -> tuple[Cause, ...]:
    """Return the UNRESOLVED groups with most failed records in the hours of [since, until)."""
    bounded = cursors.bounded(limit)
    if application is not None:
        found = _all(since, until, limit=bounded, application=application)
    else:
        candidates = _candidates(since, until, limit=bounded)
        if len(candidates) > FEW:
            found = _all(since, until, limit=bounded)
        else:
            found = _of_these(candidates, since, until, limit=bounded)
    known = groups_by_key(found)
    return tuple(
        Cause(group=known[key], count=count) for key, count in found.items() if key in known
    )


def _candidates(since: datetime, until: datetime, *, limit: int) -> list[Key]:
    """Return all causes that can be among the largest, and more than FEW if there are many.

    The largest of the last full hour give a lower bound of failures; a cause that has as many in
    total has at least their mean in one hour.
    """
    hours = _hours(since, until)
    for many in (STEPS[0], 1):
        last_hour = [until - 2 * HOUR, until - HOUR]
        asked = [*last_hour, _step(many), many, _QUIET, 3 * limit, hours, limit]
        likely = [int(number) for *_, number in _rows(_LIKELY, asked)]
        if len(likely) == limit:
            break
    least = -(-likely[-1] // len(hours)) if len(likely) == limit else 0
    asked = [since, until, _step(least), least, FEW + 1]
    return [(name, mark) for name, mark in _rows(_ANY_HOUR, asked)]


def _step(count: int) -> int:
    """Return the number of steps that a count has reached, as PostgreSQL computes it."""
    return bisect_right(STEPS, count)


def _of_these(
    causes: Sequence[Key], since: datetime, until: datetime, *, limit: int
) -> dict[Key, int]:
    names, marks = [name for name, _ in causes], [mark for _, mark in causes]
    asked = [names, marks, _hours(since, until), _QUIET, limit]
    return {(name, mark): int(number) for name, mark, number in _rows(_OF_THESE, asked)}


def _all(
    since: datetime, until: datetime, *, limit: int, application: str | None = None
) -> dict[Key, int]:
    where, parameters = cursors.where({"application": application}, "hour", None)
    statement = (
        "SELECT application, fingerprint, sum(count) FROM hour_count AS cause"
        f" WHERE hour >= %s AND hour < %s AND {where} AND {_NOT_QUIET}"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %s"
    )
    found = _rows(statement, [since, until, *parameters, _QUIET, limit])
    return {(name, mark): int(number) for name, mark, number in found}


def _hours(since: datetime, until: datetime) -> list[datetime]:
    return [since + HOUR * number for number in range(-(-(until - since) // HOUR))]


def _rows(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
