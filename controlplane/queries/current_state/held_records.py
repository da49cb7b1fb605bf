"""Held records: now, by task, and over time.

Only of live checkpoints: what tasks of older checkpoints hold is not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, takewhile
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.utils import timezone
from msgspec import Meta

from arrester.controlplane import store
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.failure_history.counts import IntervalCount
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.events import RecordsHeld
from arrester.domain.state.states import TaskState, TaskStatus, ThreadState

#: The events of a task among which its reports of held records are looked for, and the longest time
#: since the last event.
_REPORTS, _RECENT = 50, timedelta(minutes=2)
# Few tasks hold anything, and they have an index, which the planner does not choose beside a list
# of pipelines.
_HOLDING = """
WITH holding AS MATERIALIZED (
    SELECT application, pipeline, checkpoint, held FROM task WHERE held > 0
)
"""
# Materialized: otherwise the planner reads the changes of an application once for each of its
# pipelines.
_BY_HOUR = f"""
{_HOLDING}, hourly AS MATERIALIZED (
    SELECT * FROM held_change WHERE hour >= %s AND {{where}}
)"""
# Minutes divide their hour. Changes of which the minute is unknown, like those before an upgrade,
# stay at the begin of the hour.
_BY_MINUTE = f"""
{_BY_HOUR}, minutely AS MATERIALIZED (
    SELECT * FROM held_minute WHERE minute >= %s AND minute < %s AND {{where}}
), divided AS MATERIALIZED (
    SELECT date_bin(%s, minute, %s) AS moment,
    date_bin(%s, date_bin('1 hour', minute, %s), %s) AS hour, application, sum(change) AS change
    FROM minutely WHERE {live_checkpoints.OF_THREADS} GROUP BY 1, 2, 3
)"""
_DIVIDED = """
UNION ALL SELECT moment, application, change FROM divided
UNION ALL SELECT hour, application, -change FROM divided
"""
_LEVELS = f"""
{{changes}} SELECT NULL, application, sum(held) FROM holding
WHERE {live_checkpoints.OF_THREADS} GROUP BY 2
UNION ALL
SELECT date_bin(%s, hour, %s), application, sum(change) FROM hourly
WHERE {live_checkpoints.OF_THREADS} GROUP BY 1, 2 {{divided}}
"""
_HOUR = timedelta(hours=1)


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a RUNNING task processes its held records."""

    records_per_second: float
    done_at: Annotated[datetime, Meta(description="When it has processed all, at this rate.")]


def drain(task: TaskState) -> Drain | None:
    """Return how fast a task processes its held records now; None if it is not known.

    The rate is that between its newest reports of held records, by the clock of the agent.
    """
    if task.status is not TaskStatus.RUNNING or not task.held:
        return None
    events = store.read_task_history(
        task.id.application, task=UUID(task.id.digest), commands=(), before=None, limit=_REPORTS
    )
    reports = [(each.event.occurred_at, each.event.data) for each in events]
    levels = [(at, data.held) for at, data in reports if isinstance(data, RecordsHeld)]
    if not events or timezone.now() - events[0].received_at > _RECENT:
        return None
    # Newest first: an earlier report with fewer records is of the time before they were held.
    falling = [*takewhile(lambda pair: pair[0][1] < pair[1][1], pairwise(levels))]
    if not falling:
        return None
    (last_at, last), (first_at, first) = falling[0][0], falling[-1][1]
    seconds = (last_at - first_at).total_seconds()
    if seconds <= 0:
        return None
    rate = (first - last) / seconds
    return Drain(records_per_second=rate, done_at=last_at + timedelta(seconds=task.held / rate))


def held(
    application: str | None = None, *, cursor: str | None = None, limit: int = 50
) -> Page[TaskState]:
    """Return the tasks that hold records, most records first."""
    before = paging.unpack(cursor, tuple[int, UUID], of="held records")
    where, parameters = sql.where({"application": application}, "held, digest", before)
    rows = row_mapping.TASKS.load(
        f"held > 0 AND {where} AND {live_checkpoints.OF_THREADS}"
        " ORDER BY held DESC, digest DESC LIMIT %s",
        [*parameters, *_shown(application), paging.checked(limit) + 1],
    )
    return paging.page(
        rows,
        of="held records",
        limit=limit,
        key=lambda task: (task.held, UUID(task.id.digest)),
    )


def held_in_all(application: str | None = None) -> tuple[int, int]:
    """Return the number of held records, and of tasks that hold any."""
    ((records, tasks),) = sql.rows(
        f"{_HOLDING} SELECT coalesce(sum(held), 0), count(*) FROM holding"
        f" WHERE {live_checkpoints.OF_THREADS}",
        _shown(application),
    )
    return int(records), int(tasks)


def held_since(threads: Sequence[ThreadState]) -> dict[tuple[str, str], datetime]:
    """Return since when the oldest task of each pipeline that holds records has stopped.

    For one that is RUNNING and still drains, since when it does; by application and pipeline.
    """
    rows = sql.rows(
        "SELECT application, pipeline, min(since) FROM task WHERE held > 0"
        f" AND {live_checkpoints.OF_THREADS} AND since IS NOT NULL GROUP BY 1, 2",
        live_checkpoints.columns(threads),
    )
    return {(application, pipeline): since for application, pipeline, since in rows}


def held_over_time(
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
    application: str | None = None,
    max_names: int | None = None,
) -> tuple[IntervalCount, ...]:
    """Return the held records of each application at the end of each step of [since, until).

    Steps are whole minutes; for whole hours, fewer rows are read. If more than `max_names`
    applications hold any, all but the largest `max_names` - 1 are combined without a name. It is
    computed backwards from the current number, so the last step agrees with the other lists.
    """
    shown = _shown(application)
    where, own = sql.where({"application": application})
    bins: list[object] = [step, since]
    read, divided, parameters = _BY_HOUR, "", [since, *own]
    if step % _HOUR or since.minute:
        # All minutes of an hour, or none.
        first = since.replace(minute=0)
        end = -(-(until - first) // _HOUR) * _HOUR + first
        read, divided = _BY_MINUTE, _DIVIDED
        parameters = [first, *own, first, end, *own, *bins, step, first, since, *shown]
    statement = _LEVELS.format(changes=read.format(where=where), divided=divided)
    rows = sql.rows(statement, [*parameters, *shown, *bins, *shown])
    now: Counter[str] = Counter()
    changes: dict[str, Counter[datetime]] = defaultdict(Counter)
    names = _names(rows, max_names)
    for moment, name, number in rows:
        if moment is None:
            now[names[name]] += int(number)
        else:
            changes[names[name]][moment] += int(number)
    return tuple(_levels(now, changes, since=since, until=until, step=step))


def _names(rows: Iterable[tuple[Any, ...]], max_names: int | None) -> dict[str, str]:
    """Return the name under which each application is counted."""
    held = {name: number for moment, name, number in rows if moment is None}
    ranked = sorted({name for _, name, _ in rows}, key=lambda name: (-held.get(name, 0), name))
    if max_names is None or len(ranked) <= max_names:
        return {name: name for name in ranked}
    return {name: name if place < max_names else "" for place, name in enumerate(ranked, 1)}


def _levels(
    now: Counter[str],
    changes: dict[str, Counter[datetime]],
    *,
    since: datetime,
    until: datetime,
    step: timedelta,
) -> Iterable[IntervalCount]:
    steps = -(-(until - since) // step)
    for name in sorted(now.keys() | changes.keys()):
        changed = changes[name]
        level = now[name] - sum(change for at, change in changed.items() if at >= until)
        for number in reversed(range(steps)):
            moment = since + step * number
            if level > 0:
                yield IntervalCount(moment=moment, application=name, fingerprint=None, count=level)
            level -= changed[moment]


def _shown(application: str | None) -> list[list[str]]:
    where, parameters = sql.where({"application": application})
    return live_checkpoints.columns(row_mapping.THREADS.load_readable(where, parameters))
