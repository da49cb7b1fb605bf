"""Read what changed the states of tasks, runs and drivers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from arrester.controlplane.store import batches, column_values, prepared_statements
from arrester.controlplane.store.batches import PLACE, Place
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.store.log import STREAM, filled, position_at, select, type_of
from arrester.domain.events import (
    InstanceStopped,
    RecordsDeadLettered,
    RecordsHeld,
    RetriesCounted,
    StoredEvent,
    TaskDied,
    TaskPaused,
    ThreadDied,
    ThreadReplaced,
    ThreadStarted,
)
from arrester.domain.state.error_groups import recordless

#: The types that only count, among those that change a state; as in the indexes.
_COUNTS = ", ".join(str(type_of(cls)) for cls in (RetriesCounted, RecordsHeld, RecordsDeadLettered))
_CHANGES_STATE = f"count IS NULL AND type NOT IN ({_COUNTS})"


def read_state_changes(application: str, *, before: int | None, limit: int) -> list[StoredEvent]:
    """Return the events that changed a state in an application, newest first."""
    return select(
        f"WHERE stream = {STREAM} AND sequence < %s AND {_CHANGES_STATE}"
        " ORDER BY sequence DESC LIMIT %s",
        [application, MAX_BIGINT if before is None else before, limit],
    )


def read_task_state_changes(task: UUID, *, before: int | None, limit: int) -> list[StoredEvent]:
    """Return the events that changed a task's state, and its commands, newest first."""
    return select(
        f"WHERE task = %s AND sequence < %s AND {_CHANGES_STATE} ORDER BY sequence DESC LIMIT %s",
        [task, MAX_BIGINT if before is None else before, limit],
    )


def count_replaced_threads(application: str, *, since: datetime) -> dict[int, int]:
    """Return how often threads were replaced, by the number of their pipeline's name.

    See `column_values.hash_text`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT pipeline, count(*) FROM event WHERE stream = {STREAM} AND sequence > %s"
            f" AND {_CHANGES_STATE} AND type = {type_of(ThreadReplaced)} GROUP BY 1",
            [application, position_at(application, since)],
        )
        return dict(cursor.fetchall())


#: The types with which a run or a driver ends.
_ENDS = ", ".join(str(type_of(cls)) for cls in (ThreadDied, InstanceStopped))


def read_ends(application: str, fingerprint: str, *, limit: int) -> list[StoredEvent]:
    """Return the ends of runs and drivers by one failure that no failed record has reported,
    newest first."""

    def read(before: int | None) -> list[StoredEvent]:
        return select(
            f"WHERE stream = {STREAM} AND {_CHANGES_STATE} AND type IN ({_ENDS}) AND cause = %s"
            " AND sequence < %s ORDER BY sequence DESC LIMIT %s",
            [
                *(application, column_values.hash_group(application, fingerprint)),
                *(MAX_BIGINT if before is None else before, limit),
            ],
        )

    def has(stored: StoredEvent) -> bool:
        failure = recordless(stored.event.data)
        return failure is not None and failure.fingerprint == fingerprint

    return filled(read, has, key=lambda each: each.sequence, before=None, limit=limit)


#: The types with which a run begins and ends; as in the index.
_OF_RUNS = ", ".join(str(type_of(cls)) for cls in (ThreadStarted, ThreadDied))
# Two conditions: the first is that of the index.
_RUN_ENDS = f"""
SELECT line.application, line.pipeline, ended.occurred_at, ended.sequence, ended.cause IS NOT NULL
FROM unnest(%s::text[], %s::text[], %s::int[]) AS line (application, pipeline, number)
JOIN stream USING (application) CROSS JOIN LATERAL (
    SELECT occurred_at, event.sequence, cause FROM event
    WHERE event.stream = stream.id AND event.pipeline = line.number
        AND type IN ({_OF_RUNS}) AND type = {type_of(ThreadDied)}
    ORDER BY event.sequence DESC LIMIT %s) AS ended
ORDER BY 1, 2, 4
"""


class RunEnd(NamedTuple):
    """The end of a run, without its content."""

    application: str
    pipeline: str
    ended_at: datetime
    sequence: int
    failed: bool


def read_runs(application: str, pipeline: str, *, limit: int) -> list[StoredEvent]:
    """Return the newest starts and ends of the runs of a pipeline, newest first."""

    def read(before: int | None) -> list[StoredEvent]:
        return select(
            f"WHERE stream = {STREAM} AND pipeline = %s AND type IN ({_OF_RUNS})"
            " AND sequence < %s ORDER BY sequence DESC LIMIT %s",
            [
                *(application, column_values.hash_text(pipeline)),
                *(MAX_BIGINT if before is None else before, limit),
            ],
        )

    def has(stored: StoredEvent) -> bool:
        return stored.event.run is not None and stored.event.run.pipeline == pipeline

    return filled(read, has, key=lambda each: each.sequence, before=None, limit=limit)


def run_ends(pipelines: Sequence[tuple[str, str]], *, each: int) -> list[RunEnd]:
    """Return the newest ends of the runs of pipelines, given by application and name; the newest
    of a pipeline last."""
    if not pipelines:
        return []
    lines = [(name, pipeline, column_values.hash_text(pipeline)) for name, pipeline in pipelines]
    columns = [list(column) for column in zip(*lines, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(_RUN_ENDS, [*columns, each])
        return [RunEnd(*row) for row in cursor.fetchall()]


#: The types with which a task stops.
_STOPS = ", ".join(str(type_of(cls)) for cls in (TaskPaused, TaskDied))


def read_next_stops(asked: Sequence[tuple[UUID, int]]) -> list[StoredEvent | None]:
    """Return for each task and position the event with which the task stopped first after it, None
    if it did not."""
    rows = prepared_statements.rows(
        "SELECT asked.number, stop.* FROM unnest(%s::uuid[], %s::bigint[])"
        f" WITH ORDINALITY AS asked (task, after, number) CROSS JOIN LATERAL (SELECT {PLACE}"
        " FROM event WHERE event.task = asked.task AND event.sequence > asked.after"
        f" AND {_CHANGES_STATE} AND type IN ({_STOPS}) ORDER BY sequence LIMIT 1) AS stop",
        [[task for task, _ in asked], [after for _, after in asked]],
    )
    stops = batches.read_at([Place(*place) for _, *place in rows])
    by_number = {number: stop for (number, *_), stop in zip(rows, stops, strict=True)}
    return [by_number.get(number) for number in range(1, len(asked) + 1)]
