"""Counts of failed records over time: by application, by error group, and the largest causes.

Each is one statement for any length of time: the count of a minute or an hour is a row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from arrester.controlplane.models.counts import STEPS
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.failure_history.error_groups import groups_by_key
from arrester.controlplane.queries.failure_history.series import (
    HOUR,
    SeriesFilter,
    failure_series,
)
from arrester.domain.state.states import GroupState, GroupStatus

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


class IntervalCount(msgspec.Struct, frozen=True, kw_only=True):
    """Failed or held records of a step of time: of an application, or of an error group."""

    moment: datetime
    application: str
    fingerprint: str | None = None
    count: int


class GroupCount(msgspec.Struct, frozen=True, kw_only=True):
    """An error group, and its failed records in the requested time range."""

    group: GroupState
    count: int


def failed_by_application(
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    application: str | None = None,
    fingerprint: str | None = None,
    max_names: int | None = None,
) -> tuple[IntervalCount, ...]:
    """Return failed records by application and step of [since, until), without empty ones.

    Steps begin at `since`; steps of whole hours are read from the counts per hour. If more than
    `max_names` applications have any, all but the largest `max_names` - 1 are combined without a
    name.
    """
    found = failure_series(
        SeriesFilter(application=application, fingerprint=fingerprint),
        by="application",
        since=since,
        until=until,
        step=step,
        names=max_names,
    )
    return tuple(
        IntervalCount(moment=each.began_at, application=each.application or "", count=each.count)
        for each in found
    )


def failed_by_stage(
    application: str, pipeline: str, *, since: datetime, until: datetime
) -> dict[str, int]:
    """Return the failed records of a pipeline by stage, in the minutes of [since, until)."""
    rows = sql.rows(
        "SELECT stage, sum(count) FROM minute_count WHERE application = %s AND pipeline = %s"
        " AND minute >= %s AND minute < %s GROUP BY 1",
        [application, pipeline, since, until],
    )
    return {stage: int(count) for stage, count in rows}


def failed_by_group(
    groups: Iterable[GroupState], *, since: datetime, until: datetime
) -> tuple[IntervalCount, ...]:
    """Return failed records per hour of [since, until) of some error groups."""
    wanted = list(groups)
    return _tallies(
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
) -> tuple[GroupCount, ...]:
    """Return the UNRESOLVED groups with most failed records in the hours of [since, until)."""
    bounded = paging.checked(limit)
    if application is not None:
        counts = _all(since, until, limit=bounded, application=application)
    else:
        candidates = _candidates(since, until, limit=bounded)
        if len(candidates) > FEW:
            counts = _all(since, until, limit=bounded)
        else:
            counts = _of_these(candidates, since, until, limit=bounded)
    groups = groups_by_key(counts)
    return tuple(
        GroupCount(group=groups[key], count=count) for key, count in counts.items() if key in groups
    )


def _candidates(since: datetime, until: datetime, *, limit: int) -> list[Key]:
    """Return all causes that can be among the largest, and more than FEW if there are many.

    The largest of the last full hour give a lower bound of failures; a cause that has as many in
    total has at least their mean in one hour.
    """
    hours = _hours(since, until)
    for many in (STEPS[0], 1):
        last_hour = [until - 2 * HOUR, until - HOUR]
        parameters = [*last_hour, _step(many), many, _QUIET, 3 * limit, hours, limit]
        likely = [int(number) for *_, number in sql.rows(_LIKELY, parameters)]
        if len(likely) == limit:
            break
    least = -(-likely[-1] // len(hours)) if len(likely) == limit else 0
    parameters = [since, until, _step(least), least, FEW + 1]
    return [(name, fingerprint) for name, fingerprint in sql.rows(_ANY_HOUR, parameters)]


def _step(count: int) -> int:
    """Return the number of steps that a count has reached, as PostgreSQL computes it."""
    return bisect_right(STEPS, count)


def _of_these(
    causes: Sequence[Key], since: datetime, until: datetime, *, limit: int
) -> dict[Key, int]:
    names, fingerprints = [name for name, _ in causes], [fingerprint for _, fingerprint in causes]
    parameters = [names, fingerprints, _hours(since, until), _QUIET, limit]
    return {
        (name, fingerprint): int(number)
        for name, fingerprint, number in sql.rows(_OF_THESE, parameters)
    }


def _all(
    since: datetime, until: datetime, *, limit: int, application: str | None = None
) -> dict[Key, int]:
    where, parameters = sql.where({"application": application})
    statement = (
        "SELECT application, fingerprint, sum(count) FROM hour_count AS cause"
        f" WHERE hour >= %s AND hour < %s AND {where} AND {_NOT_QUIET}"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %s"
    )
    rows = sql.rows(statement, [since, until, *parameters, _QUIET, limit])
    return {(name, fingerprint): int(number) for name, fingerprint, number in rows}


def _hours(since: datetime, until: datetime) -> list[datetime]:
    return [since + HOUR * number for number in range(-(-(until - since) // HOUR))]


def _tallies(statement: str, parameters: Sequence[object]) -> tuple[IntervalCount, ...]:
    """Return the rows of a statement: times, applications, fingerprints and counts."""
    return tuple(
        IntervalCount(moment=moment, application=name, fingerprint=fingerprint, count=int(count))
        for moment, name, fingerprint, count in sql.rows(statement, parameters)
    )
