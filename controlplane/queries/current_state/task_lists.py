"""Lists and counts for pages, charts and buttons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection

from arrester.controlplane import redis_client, store
from arrester.controlplane.domain.events import StoredEvent
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.state.states import (
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
)
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.current_state import live_runs
from arrester.controlplane.queries.filters import TaskFilter
from arrester.controlplane.queries.results import Neighbours, Page
from arrester.controlplane.views import row_mapping

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
#: A task that never changed its status sorts last.
_SINCE = "coalesce(since, to_timestamp(0))"


def positions() -> dict[str, int]:
    """Return the length of each application's log."""
    return {stream.application: stream.sequence for stream in store.all_streams()}


def tasks(wanted: TaskFilter, *, cursor: str | None = None, limit: int = 50) -> Page[TaskState]:
    """Return tasks, those with the newest change of status first."""
    before = cursors.unpack(cursor, tuple[datetime, UUID])
    equal = {
        "application": wanted.application,
        "pipeline": wanted.pipeline,
        "status": wanted.state,
        "fingerprint": wanted.cause,
    }
    where, parameters = cursors.where(equal, f"{_SINCE}, digest", before)
    if wanted.key:
        where, parameters = f"{where} AND starts_with(key, %s)", [*parameters, wanted.key]
    if wanted.live:
        shown = live_runs.shown(row_mapping.THREADS.readable("true", []))
        where, parameters = (
            f"{where} AND {live_runs.OF_LINES}",
            [*parameters, *live_runs.columns(shown)],
        )
    found = row_mapping.TASKS.load(
        f"{where} ORDER BY {_SINCE} DESC, digest DESC LIMIT %s",
        [*parameters, cursors.bounded(limit) + 1],
    )
    return cursors.page(
        found, limit=limit, key=lambda task: (task.since or _EARLIEST, UUID(task.id.digest))
    )


def open_commands(application: str) -> tuple[CommandState, ...]:
    """Return the open commands of an application, newest first."""
    where = "application = %s AND open ORDER BY issued_at DESC, id"
    return tuple(row_mapping.COMMANDS.load(where, [application]))


def stopped_by_group(groups: Iterable[GroupState]) -> Counter[tuple[str, str]]:
    """Return the number of tasks stopped by each group, by application and fingerprint."""
    applications = sorted({group.application for group in groups})
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, fingerprint, count(*) FROM task"
            " WHERE status <> 'RUNNING' AND application = ANY(%s) GROUP BY 1, 2",
            [applications],
        )
        return Counter({(name, cause): count for name, cause, count in cursor.fetchall()})


def neighbours(stored: StoredEvent) -> Neighbours:
    """Return the occurrences of the same group before and after one that was reported in full."""
    return Neighbours(
        older=store.read_next(stored, newer=False), newer=store.read_next(stored, newer=True)
    )


def heard(instances: Sequence[InstanceState]) -> dict[UUID, datetime]:
    """Return when the heartbeat of each instance was last received; empty while Redis is
    unreachable.

    It is computed from the remaining lifetime of the heartbeat, so the agent's clock does not
    matter.
    """
    now = datetime.now(UTC)
    try:
        with redis_client.client().pipeline(transaction=False) as pipe:
            for each in instances:
                pipe.pttl(redis_keys.heartbeat(each.application, each.id))
            left: list[int] = pipe.execute()
    except redis_client.RedisError:
        return {}
    life = timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    return {
        each.id: now - life + timedelta(milliseconds=milliseconds)
        for each, milliseconds in zip(instances, left, strict=True)
        if milliseconds >= 0
    }
