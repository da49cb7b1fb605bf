"""The log itself: appending to it, and every way of reading it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, get_args
from uuid import UUID

import msgspec
from django.db import connection
from msgspec.structs import replace

from controlplane.columns import MOST, fit, saturated
from controlplane.domain import wire
from controlplane.domain.errors import NotFound
from controlplane.domain.events import (
    CommandIssued,
    Event,
    FailuresCounted,
    RecordFailed,
    Run,
    StoredEvent,
    TaskEvent,
)
from controlplane.domain.names import TaskId
from controlplane.store.streams import Stream, copy_in

#: What a stored event is made of again; the other columns are only searched by.
_STORED = (
    "application, sequence, received_at, occurred_at, schema_version, batch, instance,"
    " pipeline, checkpoint, epoch, caused_by, data"
)
_SEARCHED = (
    "day, type, task, stage, exception_class, fingerprint, count, position, response, command"
)
_TASK_EVENTS = get_args(TaskEvent)
CHANNEL = "arrester"
#: What a row of the database is before it is a StoredEvent, and what a statement is given.
Row = tuple[Any, ...]
Parameter = Any


def append(
    stream: Stream, batches: Sequence[tuple[UUID, Sequence[Event]]], *, received_at: datetime
) -> tuple[Stream, list[StoredEvent]]:
    """Append batches to a locked stream; return it with its new length, and what was stored."""
    stored = list(_numbered(stream, batches, received_at))
    if not stored:
        return stream, []
    day = received_at.astimezone(UTC).date()
    copy_in(f"event ({_STORED}, {_SEARCHED})", [_row(each, day) for each in stored])
    bodies = [
        (each.application, each.sequence, day, wire.encode_body(each.event.body))
        for each in stored
        if each.event.body is not None
    ]
    copy_in("event_body (application, sequence, day, body)", bodies)
    end = stored[-1].sequence
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE stream SET sequence = %s WHERE application = %s", [end, stream.application]
        )
    stream = replace(stream, sequence=end)
    notify(stream)
    return stream, stored


def notify(stream: Stream) -> None:
    """Let live pages know, once the transaction is committed, that the application has moved."""
    with connection.cursor() as cursor:
        payload = f"{stream.application} {stream.sequence}"
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])


def _numbered(
    stream: Stream, batches: Sequence[tuple[UUID, Sequence[Event]]], received_at: datetime
) -> Iterator[StoredEvent]:
    sequence = stream.sequence
    for batch, events in batches:
        for event in events:
            sequence += 1
            yield StoredEvent(
                application=stream.application,
                sequence=sequence,
                received_at=received_at,
                batch=batch,
                event=event,
            )


def _row(stored: StoredEvent, day: date) -> tuple[object, ...]:
    event, run = stored.event, stored.event.run
    return (
        stored.application,
        stored.sequence,
        stored.received_at,
        event.occurred_at,
        event.schema_version,
        stored.batch,
        event.instance,
        *((None, None, None) if run is None else (run.pipeline, run.checkpoint, run.epoch)),
        event.caused_by,
        wire.encode_data(event.data),
        day,
        event.type,
        _task_digest(stored),
        *_failure_columns(event),
        getattr(event.data, "position", None),
        None if (response := getattr(event.data, "response", None)) is None else str(response),
        getattr(event.data, "command", None),
    )


def _failure_columns(event: Event) -> tuple[str | int | None, ...]:
    data = event.data
    failure = getattr(data, "failure", None)
    if failure is None:
        return (None, None, None, None)
    count = saturated(data.count) if isinstance(data, RecordFailed | FailuresCounted) else None
    return (fit(failure.stage), fit(failure.exception_class), failure.fingerprint, count)


def _task_digest(stored: StoredEvent) -> UUID | None:
    """Return the task that an event, or a command, is about."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, _TASK_EVENTS) and run is not None:
        pipeline, checkpoint = run.pipeline, run.checkpoint
    elif isinstance(data, CommandIssued) and data.pipeline and data.checkpoint:
        pipeline, checkpoint = data.pipeline, data.checkpoint
    else:
        return None
    task = TaskId(
        application=stored.application, pipeline=pipeline, checkpoint=checkpoint, key=data.task
    )
    return UUID(task.digest)


def read(application: str, *, after: int = 0, chunk: int = 2000) -> Iterator[StoredEvent]:
    """Return the log in order, without bodies, a chunk at a time."""
    while True:
        rows = _select(
            "WHERE application = %s AND sequence > %s ORDER BY sequence LIMIT %s",
            [application, after, chunk],
        )
        yield from rows
        if len(rows) < chunk:
            return
        after = rows[-1].sequence


def read_one(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound."""
    where = "WHERE application = %s AND sequence = %s"
    found = _select(where, [application, sequence])
    if not found:
        raise NotFound(f"there is no event {application} @ {sequence}")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT body FROM event_body {where}", [application, sequence])
        row = cursor.fetchone()
    if row is None:
        return found[0]
    return replace(found[0], event=replace(found[0].event, body=wire.decode_body(bytes(row[0]))))


def read_about(
    application: str, *, task: UUID, commands: Sequence[UUID], before: int | None, limit: int
) -> list[StoredEvent]:
    """Return what happened to a task and to the commands for it, newest first."""
    end = MOST if before is None else before
    page = "AND sequence < %s ORDER BY sequence DESC LIMIT %s"
    # Two index scans: one condition with OR would read and sort all of the task's history.
    own = _select(f"WHERE task = %s {page}", [task, end, limit])
    others = _select(
        f"WHERE application = %s AND command = ANY(%s::uuid[]) AND task IS DISTINCT FROM %s {page}",
        [application, list(commands), task, end, limit],
    )
    return sorted([*own, *others], key=lambda each: each.sequence, reverse=True)[:limit]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures to read: columns that must be equal, and a range of `occurred_at`."""

    applications: Sequence[str]
    equal: Mapping[str, str | UUID]
    since: datetime | None = None
    until: datetime | None = None
    #: The row that the page before this one ended with: occurred_at, application, sequence.
    before: tuple[datetime, str, int] | None = None


def read_next(stored: StoredEvent, *, newer: bool) -> int | None:
    """Return the next RecordFailed of the same group that is newer, or older, by sequence."""
    failure = getattr(stored.event.data, "failure", None)
    if failure is None:
        return None
    than, order = (">", "ASC") if newer else ("<", "DESC")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequence FROM event WHERE application = %s AND fingerprint = %s"
            f" AND count IS NOT NULL AND type = 'RecordFailed' AND (occurred_at, sequence) {than}"
            f" (%s, %s) ORDER BY occurred_at {order}, sequence {order} LIMIT 1",
            [stored.application, failure.fingerprint, stored.event.occurred_at, stored.sequence],
        )
        found = cursor.fetchone()
    return None if found is None else int(found[0])


def read_failures(wanted: Failures, *, limit: int) -> list[StoredEvent]:
    """Return failures, those that occurred last first, without bodies."""
    conditions = ["application = name", "count IS NOT NULL"]
    parameters: list[Parameter] = [list(wanted.applications)]
    for column, value in wanted.equal.items():
        conditions.append(f"{column} = %s")
        parameters.append(value)
    if wanted.since is not None:
        conditions.append("occurred_at >= %s")
        parameters.append(wanted.since)
    if wanted.until is not None:
        conditions.append("occurred_at < %s")
        parameters.append(wanted.until)
    if wanted.before is not None:
        # The first condition is what the index begins at, the second is exact.
        conditions.append(
            "occurred_at <= %s AND (occurred_at, application, sequence) < (%s, %s, %s)"
        )
        parameters += [wanted.before[0], *wanted.before]
    # One short index scan for each application, whatever the others' size.
    statement = (
        "SELECT found.* FROM unnest(%s::text[]) AS name CROSS JOIN LATERAL ("
        f"SELECT {_STORED} FROM event WHERE {' AND '.join(conditions)}"
        " ORDER BY occurred_at DESC, sequence DESC LIMIT %s) AS found"
        " ORDER BY occurred_at DESC, application DESC, sequence DESC LIMIT %s"
    )
    return _fetch(statement, [*parameters, limit, limit])


def ensure_partitions(first: date, *, days: int) -> int:
    """Make the partitions of `days` days; return how many were missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_ensure_partitions(%s, %s)", [first, days])
        (made,) = cursor.fetchone()
        return int(made)


def _select(where: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    return _fetch(f"SELECT {_STORED} FROM event {where}", parameters)


def _fetch(statement: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [_stored(row) for row in cursor.fetchall()]


def _stored(row: Row) -> StoredEvent:
    (application, sequence, received_at, occurred_at, schema_version, batch, *rest) = row
    instance, pipeline, checkpoint, epoch, caused_by, data = rest
    run = None if pipeline is None else Run(pipeline=pipeline, checkpoint=checkpoint, epoch=epoch)
    event = Event(
        occurred_at=occurred_at,
        data=wire.decode_data(bytes(data)),
        instance=instance,
        run=run,
        caused_by=caused_by,
        schema_version=schema_version,
    )
    return StoredEvent(
        application=application,
        sequence=sequence,
        received_at=received_at,
        batch=batch,
        event=event,
    )
