"""The rows that events are searched by, as COPY takes them in binary: numbers of a fixed width.

What an event says is in its batch. Laid out by `struct`, most rows in one step: handed to psycopg
value by value, they would cost as much as PostgreSQL takes to store them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from struct import Struct
from typing import get_args
from uuid import UUID

from controlplane.columns import fit, fit_or_none, saturated
from controlplane.domain.events import (
    FAILED,
    CommandIssued,
    Event,
    NoteAdded,
    StoredEvent,
    TaskEvent,
)
from controlplane.domain.names import task_digest
from controlplane.store import marks

#: In the order of what `packed` gives.
COLUMNS = (
    "stream",
    "day",
    "sequence",
    "occurred_at",
    "place",
    "type",
    "task",
    "cause",
    "count",
    "pipeline",
    "stage",
    "exception_class",
    "command",
    "actor",
)
BEGIN, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_TASK_EVENTS = get_args(TaskEvent)
_EPOCH, _FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC), date(2000, 1, 1)
#: Each value behind its length; -1 is NULL.
_ALWAYS = Struct(">h ii ii iq iq ii ii")
_FAILURE = Struct(">h ii ii iq iq ii ii i16s iq iq ii ii ii ii")
_LONG, _INT, _NULL = Struct(">iq"), Struct(">ii"), b"\xff\xff\xff\xff"


def packed(stream: int, day: date, stored: Iterable[StoredEvent]) -> Iterator[bytes]:
    """Yield the rows of the events of one batch, in their order."""
    days = (day - _FIRST_DAY).days
    for place, each in enumerate(stored):
        event = each.event
        data, run = event.data, event.run
        since = event.occurred_at - _EPOCH
        moment = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        type = marks.of_text(data.__class__.__name__)
        if isinstance(data, FAILED) and run is not None:
            name, failure = each.application, data.failure
            yield _FAILURE.pack(
                len(COLUMNS),
                *(4, stream, 4, days, 8, each.sequence, 8, moment, 4, place, 4, type),
                16,
                _uuid(task_digest(name, run.pipeline, run.checkpoint, data.task)),
                8,
                marks.of_cause(name, failure.fingerprint),
                8,
                saturated(data.count),
                *(4, marks.of_text(run.pipeline), 4, of_cut(failure.stage)),
                *(4, of_cut(failure.exception_class), -1, -1),
            )
            continue
        yield _ALWAYS.pack(
            len(COLUMNS),
            *(4, stream, 4, days, 8, each.sequence, 8, moment, 4, place, 4, type),
        ) + b"".join(_rest(each))


#: One object for each task, not for each of its events.
_uuid = lru_cache(maxsize=10_000)(bytes.fromhex)


def of_cut(text: str) -> int:
    """Return the number of a text that lists show cut, and are asked for so."""
    return marks.of_text(fit(text))


def _rest(stored: StoredEvent) -> Iterator[bytes]:
    """Yield what most events that are no failures have not."""
    event, name = stored.event, stored.application
    data = event.data
    digest, fingerprint = task_of(stored), fingerprint_of(event)
    failure, command = getattr(data, "failure", None), getattr(data, "command", None)
    yield _bytes(None if digest is None else _uuid(digest))
    yield _long(None if fingerprint is None else marks.of_cause(name, fingerprint))
    yield _NULL
    yield _int(None if event.run is None else marks.of_text(event.run.pipeline))
    yield _int(None if failure is None else of_cut(failure.stage))
    yield _int(None if failure is None else of_cut(failure.exception_class))
    yield _bytes(command.bytes if isinstance(command, UUID) else None)
    actor = actor_of(event)
    yield _bytes(None if actor is None else actor.encode())


def _long(value: int | None) -> bytes:
    return _NULL if value is None else _LONG.pack(8, value)


def _int(value: int | None) -> bytes:
    return _NULL if value is None else _INT.pack(4, value)


def _bytes(value: bytes | None) -> bytes:
    return _NULL if value is None else len(value).to_bytes(4) + value


def fingerprint_of(event: Event) -> str | None:
    """Return the error group that an event is about."""
    failure = getattr(event.data, "failure", None)
    found = getattr(event.data if failure is None else failure, "fingerprint", None)
    return None if found is None else str(found)


def actor_of(event: Event) -> str | None:
    """Return who did it; what follows from a command is told by the command."""
    return fit_or_none(getattr(event.data, "actor", None)) if event.caused_by is None else None


def task_of(stored: StoredEvent) -> str | None:
    """Return the digest of the task that an event, or a command, is about."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, _TASK_EVENTS) and run is not None:
        pipeline, checkpoint = run.pipeline, run.checkpoint
    elif isinstance(data, CommandIssued | NoteAdded) and data.pipeline and data.checkpoint:
        pipeline, checkpoint = data.pipeline, data.checkpoint
    else:
        return None
    return task_digest(stored.application, pipeline, checkpoint, data.task)
