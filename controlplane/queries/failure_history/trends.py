"""The data of charts: failed records over time, and changes of states.

Each is one statement for any length of time: the count of a minute or an hour is a row.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from arrester.controlplane import store
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.filters import task_id
from arrester.controlplane.queries.results import Page, Tally
from arrester.controlplane.store.column_limits import MOST

HOUR = timedelta(hours=1)


def failed_by_application(
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    application: str | None = None,
    fingerprint: str | None = None,
    apart: int | None = None,
) -> tuple[Tally, ...]:
    """Return failed records by application and step of [since, until), without empty ones.

    Steps begin at `since`; steps of whole hours are read from the counts per hour. With `apart`, if
    more applications have any, all but the largest `apart` - 1 are combined without a name.
    """
    moment = "hour" if _by_hours(since, step) else "minute"
    table = f"{moment}_total" if fingerprint is None else f"{moment}_count"
    one = {"application": application, "fingerprint": fingerprint}
    where, parameters = cursors.where(one, moment, None)
    most = apart or MOST
    return tallies(
        f"WITH counted AS MATERIALIZED (SELECT date_bin(%s, {moment}, %s) AS moment, application,"
        f" sum(count) AS number FROM {table} WHERE {moment} >= %s AND {moment} < %s AND {where}"
        " GROUP BY 1, 2), ranked AS (SELECT application, count(*) OVER () AS many,"
        " row_number() OVER (ORDER BY sum(number) DESC, application) AS place"
        " FROM counted GROUP BY 1)"
        " SELECT moment, CASE WHEN many <= %s OR place < %s THEN application ELSE '' END, NULL,"
        " sum(number) FROM counted JOIN ranked USING (application) GROUP BY 1, 2 ORDER BY 1, 2",
        [step, since, since, until, *parameters, most, most],
    )


def turns(application: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredEvent]:
    """Return the events that changed a state in an application, newest first: its timeline.

    Failed records are in the lists of errors; here are their consequences.
    """
    before = cursors.unpack(cursor, int)
    found = store.read_state_changes(application, before=before, limit=cursors.bounded(limit) + 1)
    return cursors.page(found, limit=limit, key=lambda each: each.sequence)


def task_turns(digest: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredEvent]:
    """Return the events that changed a task's state, and its commands, newest first."""
    before = cursors.unpack(cursor, int)
    found = store.read_task_state_changes(
        task_id(digest), before=before, limit=cursors.bounded(limit) + 1
    )
    return cursors.page(found, limit=limit, key=lambda each: each.sequence)


def _by_hours(since: datetime, step: timedelta) -> bool:
    return step % HOUR == timedelta(0) and since.minute == since.second == 0


def tallies(statement: str, parameters: list[Any]) -> tuple[Tally, ...]:
    """Return the rows of a statement: times, applications, fingerprints and counts."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return tuple(
            Tally(moment=moment, application=name, fingerprint=fingerprint, count=int(count))
            for moment, name, fingerprint, count in cursor.fetchall()
        )
