"""Appending to the log: how events are laid out as rows, and how the rows get in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import get_args
from uuid import UUID

import msgspec
from django.db import connection
from msgspec.structs import replace

from controlplane.columns import fit, fit_or_none, saturated
from controlplane.domain import wire
from controlplane.domain.events import (
    FAILED,
    CommandIssued,
    Event,
    NoteAdded,
    StoredEvent,
    TaskEvent,
)
from controlplane.domain.names import task_digest
from controlplane.store.streams import Stream, copy_in

#: What `_row` gives, in its order.
_EVENT = {
    "application": "text",
    "sequence": "int8",
    "day": "date",
    "received_at": "timestamptz",
    "occurred_at": "timestamptz",
    "type": "text",
    "schema_version": "int2",
    "batch": "uuid",
    "instance": "uuid",
    "pipeline": "text",
    "checkpoint": "text",
    "epoch": "int8",
    "caused_by": "uuid",
    "task": "uuid",
    "stage": "text",
    "exception_class": "text",
    "fingerprint": "text",
    "count": "int8",
    "command": "uuid",
    "actor": "text",
    "data": "bytea",
}
_EVENT_BODY = {
    "application": "text",
    "sequence": "int8",
    "day": "date",
    "count": "int4",
    "packed": "bytea",
}
_BATCH_SEEN = {
    "application": "text",
    "batch": "uuid",
    "first_sequence": "int8",
    "count": "int4",
    "received_at": "timestamptz",
}
_TASK_EVENTS = get_args(TaskEvent)
CHANNEL = "arrester"
Row = tuple[object, ...]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events under the id that they were sent under."""

    id: UUID
    events: Sequence[Event]
    #: The bytes that they came in, where those hold just these events and their bodies.
    packed: bytes | None = None


def remember(stream: Stream, batches: Iterable[Batch], *, received_at: datetime) -> None:
    """Note that `batches` follow the end of the log."""
    first, rows = stream.sequence + 1, []
    for batch in batches:
        rows.append((stream.application, batch.id, first, len(batch.events), received_at))
        first += len(batch.events)
    copy_in("batch_seen", _BATCH_SEEN, rows)


def append(
    stream: Stream, batches: Iterable[Batch], *, received_at: datetime
) -> tuple[Stream, list[StoredEvent]]:
    """Append batches to a locked stream; return it with its new length, and what was stored."""
    received_at = stream.moment(received_at)
    layout = lay_out(stream, batches, received_at=received_at)
    stored = layout.stored
    if not stored:
        return stream, []
    copy(layout)
    end = stored[-1].sequence
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE stream SET sequence = %s, received_at = %s WHERE application = %s",
            [end, received_at, stream.application],
        )
    stream = replace(stream, sequence=end, received_at=received_at)
    notify(stream)
    return stream, stored


def notify(stream: Stream) -> None:
    """Let live pages know, once the transaction is committed, that the application has moved."""
    with connection.cursor() as cursor:
        payload = f"{stream.application} {stream.sequence}"
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Events as they follow the end of the log, and the rows that they become."""

    stored: list[StoredEvent]
    events: list[Row]
    bodies: list[Row]


def lay_out(stream: Stream, batches: Iterable[Batch], *, received_at: datetime) -> Layout:
    """Return what `copy` puts into the tables."""
    name, day = stream.application, received_at.astimezone(UTC).date()
    stored: list[StoredEvent] = []
    bodies: list[Row] = []
    for batch in batches:
        first = stream.sequence + len(stored) + 1
        stored += [
            StoredEvent(
                application=name,
                sequence=sequence,
                received_at=received_at,
                batch=batch.id,
                event=event,
            )
            for sequence, event in enumerate(batch.events, first)
        ]
        packed = batch.packed
        if packed is None and any(event.body is not None for event in batch.events):
            packed = wire.encode_batch(batch.events)
        if packed is not None and batch.events:
            bodies.append((name, first, day, len(batch.events), packed))
    return Layout(stored=stored, events=[_row(each, day) for each in stored], bodies=bodies)


def copy(layout: Layout) -> None:
    """Copy rows into their tables."""
    copy_in("event", _EVENT, layout.events)
    copy_in("event_body", _EVENT_BODY, layout.bodies)


def _row(stored: StoredEvent, day: date) -> Row:
    event, run = stored.event, stored.event.run
    return (
        stored.application,
        stored.sequence,
        day,
        stored.received_at,
        event.occurred_at,
        event.type,
        event.schema_version,
        stored.batch,
        event.instance,
        *((None, None, None) if run is None else (run.pipeline, run.checkpoint, run.epoch)),
        event.caused_by,
        _task_digest(stored),
        *_failure_columns(event),
        getattr(event.data, "command", None),
        _actor(event),
        wire.encode_data(event.data),
    )


def _failure_columns(event: Event) -> tuple[str | int | None, ...]:
    data = event.data
    failure = getattr(data, "failure", None)
    if failure is None:
        return (None, None, getattr(data, "fingerprint", None), None)
    count = saturated(data.count) if isinstance(data, FAILED) else None
    return (fit(failure.stage), fit(failure.exception_class), failure.fingerprint, count)


def _actor(event: Event) -> str | None:
    """Return who did it; what follows from a command is told by the command."""
    return fit_or_none(getattr(event.data, "actor", None)) if event.caused_by is None else None


def _task_digest(stored: StoredEvent) -> UUID | None:
    """Return the task that an event, or a command, is about."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, _TASK_EVENTS) and run is not None:
        pipeline, checkpoint = run.pipeline, run.checkpoint
    elif isinstance(data, CommandIssued | NoteAdded) and data.pipeline and data.checkpoint:
        pipeline, checkpoint = data.pipeline, data.checkpoint
    else:
        return None
    return _uuid(task_digest(stored.application, pipeline, checkpoint, data.task))


#: One object for each task, not for each of its events.
_uuid = lru_cache(maxsize=10_000)(UUID)


def ensure_partitions(first: date, *, days: int) -> int:
    """Make the partitions of `days` days; return how many were missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_ensure_partitions(%s, %s)", [first, days])
        (made,) = cursor.fetchone()
        return int(made)


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """What retention took out of the log."""

    partitions: int
    bytes: int


def drop_days(before: date, *, batches_before: date) -> Dropped:
    """Drop the days before one of events, and of batches seen; bases have to cover the events."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM arrester_drop_days(%s, %s)", [before, batches_before])
        partitions, size = cursor.fetchone()
    return Dropped(partitions=partitions, bytes=size)
