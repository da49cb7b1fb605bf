"""What charts are drawn of: failed records over time and by cause, and what changed a state.

Each is one statement, however long the time is: a minute's or an hour's count is a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from controlplane import rows, store
from controlplane.domain.events import StoredEvent
from controlplane.domain.states import GroupState
from controlplane.queries import cursors
from controlplane.queries.answers import Cause, Page, Tally

HOUR = timedelta(hours=1)


def failed_by_application(
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    application: str | None = None,
    fingerprint: str | None = None,
) -> tuple[Tally, ...]:
    """Return failed records by application and step of [since, until), empty ones left out.

    Steps begin at `since`; of a whole number of hours they are read from the counts per hour.
    """
    table, moment = ("hour_count", "hour") if _by_hours(since, step) else ("minute_count", "minute")
    return _tallies(
        f"SELECT date_bin(%s, {moment}, %s), application, NULL, sum(count) FROM {table}"
        f" WHERE {moment} >= %s AND {moment} < %s AND (%s::text IS NULL OR application = %s)"
        " AND (%s::text IS NULL OR fingerprint = %s) GROUP BY 1, 2 ORDER BY 1, 2",
        [step, since, since, until, application, application, fingerprint, fingerprint],
    )


def failed_by_group(
    groups: Iterable[GroupState], *, since: datetime, until: datetime
) -> tuple[Tally, ...]:
    """Return failed records per hour of [since, until) of some error groups."""
    wanted = list(groups)
    return _tallies(
        "SELECT hour, application, fingerprint, count FROM hour_count"
        " WHERE hour >= %s AND hour < %s"
        " AND (application, fingerprint) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
        " ORDER BY 1, 2, 3",
        [
            since,
            until,
            [each.application for each in wanted],
            [each.fingerprint for each in wanted],
        ],
    )


def top_causes(
    *, since: datetime, until: datetime, application: str | None = None, limit: int = 8
) -> tuple[Cause, ...]:
    """Return the UNRESOLVED groups with most failed records in the hours of [since, until)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, fingerprint, sum(count) FROM hour_count"
            " WHERE hour >= %s AND hour < %s AND (%s::text IS NULL OR application = %s)"
            " AND NOT EXISTS (SELECT FROM error_group AS quiet WHERE quiet.status <> 'UNRESOLVED'"
            " AND quiet.application = hour_count.application"
            " AND quiet.fingerprint = hour_count.fingerprint)"
            " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %s",
            [since, until, application, application, cursors.bounded(limit)],
        )
        found = {(name, mark): int(count) for name, mark, count in cursor.fetchall()}
    keys = [[key[0] for key in found], [key[1] for key in found]]
    where = "(application, fingerprint) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
    known = {(each.application, each.fingerprint): each for each in rows.GROUPS.load(where, keys)}
    return tuple(
        Cause(group=known[key], count=count) for key, count in found.items() if key in known
    )


def turns(application: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredEvent]:
    """Return what changed a state in an application, newest first: its timeline.

    Failed records are in the lists of errors; here is what followed from them.
    """
    before = cursors.unpack(cursor, int)
    found = store.read_turns(application, before=before, limit=cursors.bounded(limit) + 1)
    return cursors.page(found, limit=limit, key=lambda each: each.sequence)


def task_turns(digest: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredEvent]:
    """Return what changed a task's state, or was commanded for it, newest first."""
    before = cursors.unpack(cursor, int)
    found = store.read_task_turns(UUID(hex=digest), before=before, limit=cursors.bounded(limit) + 1)
    return cursors.page(found, limit=limit, key=lambda each: each.sequence)


def _by_hours(since: datetime, step: timedelta) -> bool:
    return step % HOUR == timedelta(0) and since.minute == since.second == 0


def _tallies(statement: str, parameters: list[Any]) -> tuple[Tally, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return tuple(
            Tally(moment=moment, application=name, fingerprint=fingerprint, count=int(count))
            for moment, name, fingerprint, count in cursor.fetchall()
        )
