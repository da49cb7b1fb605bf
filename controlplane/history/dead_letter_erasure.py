"""Erase the record of a dead letter from the log, and find where copies of it remain."""

from __future__ import annotations

from uuid import UUID

import msgspec

from arrester.controlplane import models, store
from arrester.controlplane.history import erasure
from arrester.controlplane.views import row_mapping
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import RecordFailed, RecordsDeadLettered, StoredEvent
from arrester.domain.identity.names import TaskId
from arrester.domain.wire.dead_letter_columns import dead_letters_of


class Copy(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A destination that a dead letter was written to."""

    place: str
    format: str


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """The result of erasing the record of a dead letter."""

    #: The events whose bodies were erased.
    sequences: tuple[int, ...]
    copies: tuple[Copy, ...]


def erase(application: str, id: str, *, actor: str, reason: str) -> Erased:
    """Erase the bodies of all failures of a dead letter's record.

    Each is its own transaction: a repetition erases the rest. Requires the owner's connection.
    Raises NotFound for an unknown dead letter, InvalidValue if its record has no position.
    """
    task, position = _record(application, id)
    erased = []
    for failed in store.read_of_task(UUID(hex=task.digest), RecordFailed):
        data = failed.event.data
        if not isinstance(data, RecordFailed) or data.position != position:
            continue
        body = store.read_one(application, failed.sequence).event.body
        if body is not None and not body.erased:
            erasure.erase(application, failed.sequence, actor=actor, reason=reason)
            erased.append(failed.sequence)
    return Erased(sequences=tuple(erased), copies=_copies(task, position, bytes.fromhex(id)))


def _record(application: str, id: str) -> tuple[TaskId, int]:
    """Return the task and the position of a dead letter."""
    try:
        key = UUID(hex=id)
    except ValueError:
        raise InvalidValue("dead letter", id, "32 hexadecimal digits") from None
    stream = store.read_stream(application).id
    row = models.DeadLetter.objects.filter(stream=stream, id=key).first()
    if row is None:
        raise NotFound(f"there is no dead letter {id!r} of {application}")
    if row.position is None:
        event = f"{application} @ {row.sequence:,}"
        allowed = f"one with a position: search its failure near {event}, and erase it by its event"
        raise InvalidValue("dead letter", id, allowed)
    return row_mapping.task_state(row.task.hex).id, row.position


def _copies(task: TaskId, position: int, id: bytes) -> tuple[Copy, ...]:
    events = store.read_of_task(UUID(hex=task.digest), RecordsDeadLettered)
    return tuple(sorted({each for stored in events if (each := _copy(stored, position, id))}))


def _copy(stored: StoredEvent, position: int, id: bytes) -> Copy | None:
    """Return the destination of an event that reports the dead letter."""
    data, run = stored.event.data, stored.event.run
    if not isinstance(data, RecordsDeadLettered) or run is None:
        return None
    first, last = data.first_position, data.last_position
    if first is None or last is None or not first <= position <= last:
        return None
    if id not in dead_letters_of(stored.application, run, data).ids:
        return None
    return Copy(place=data.place, format=data.format)
