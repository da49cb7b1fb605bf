"""Appending to the log: how events are laid out as rows, and how the rows get in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import get_args
from uuid import UUID

from django.db import connection
from msgspec.structs import replace

from controlplane.columns import fit, saturated
from controlplane.domain import wire
from controlplane.domain.events import (
    CommandIssued,
    Event,
    FailuresCounted,
    RecordFailed,
    StoredEvent,
    TaskEvent,
)
from controlplane.domain.names import TaskId
from controlplane.store.log import STORED
from controlplane.store.streams import Stream, copy_in

#: Beside what a stored event is made of again: what events are searched by.
_SEARCHED = (
    "day, type, task, stage, exception_class, fingerprint, count, position, response, command"
)
_TASK_EVENTS = get_args(TaskEvent)
CHANNEL = "arrester"


def append(
    stream: Stream, batches: Sequence[tuple[UUID, Sequence[Event]]], *, received_at: datetime
) -> tuple[Stream, list[StoredEvent]]:
    """Append batches to a locked stream; return it with its new length, and what was stored."""
    stored = list(numbered(stream, batches, received_at=received_at))
    if not stored:
        return stream, []
    copy(lay_out(stored))
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


def numbered(
    stream: Stream, batches: Sequence[tuple[UUID, Sequence[Event]]], *, received_at: datetime
) -> Iterator[StoredEvent]:
    """Yield the events of `batches` as they follow the end of the log."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Events as rows of the tables event and event_body."""

    events: list[tuple[object, ...]]
    bodies: list[tuple[object, ...]]


def lay_out(stored: Sequence[StoredEvent]) -> Layout:
    """Return the rows that events become."""
    days = [each.received_at.astimezone(UTC).date() for each in stored]
    return Layout(
        events=[_row(each, day) for each, day in zip(stored, days, strict=True)],
        bodies=[
            (each.application, each.sequence, day, wire.encode_body(each.event.body))
            for each, day in zip(stored, days, strict=True)
            if each.event.body is not None
        ],
    )


def copy(layout: Layout) -> None:
    """Copy rows into their tables."""
    copy_in(f"event ({STORED}, {_SEARCHED})", layout.events)
    copy_in("event_body (application, sequence, day, body)", layout.bodies)


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


def ensure_partitions(first: date, *, days: int) -> int:
    """Make the partitions of `days` days; return how many were missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_ensure_partitions(%s, %s)", [first, days])
        (made,) = cursor.fetchone()
        return int(made)
