"""Rows in the binary format of COPY: of batches, and of the event index, whose columns are numbers
of a fixed width.

The content of an event is in its batch. `struct` lays most rows out in one step: handed to psycopg
value by value, they would cost as much as PostgreSQL takes to store them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import TypeVar, get_args
from uuid import UUID

from arrester.controlplane.domain.events import (
    FAILED,
    CommandIssued,
    Event,
    NoteAdded,
    RecordFailed,
    StoredEvent,
    TaskEvent,
)
from arrester.controlplane.domain.identity.names import is_long, task_digest
from arrester.controlplane.domain.wire.codec import Packed
from arrester.controlplane.domain.wire.failure_columns import Stored, StoredFailures
from arrester.controlplane.store import column_values
from arrester.controlplane.store.column_values import TEXT_LIMIT, fit, fit_or_none

#: In the order of the values of `packed`.
COLUMNS = (
    "stream",
    "day",
    "sequence",
    "occurred_at",
    "place",
    "type",
    "count",
    "task",
    "cause",
    "pipeline",
    "stage",
    "exception_class",
    "command",
    "actor",
)
BATCH_COLUMNS = (
    "stream",
    "day",
    "sequence",
    "count",
    "id",
    "received_at",
    "heads",
    "bodies",
)
BEGIN, END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_TASK_EVENTS = get_args(TaskEvent)
_EPOCH, _FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC), date(2000, 1, 1)
#: The epoch of PostgreSQL's timestamps is this many microseconds later than 1970.
_FROM_1970 = 946_684_800_000_000
_LENGTH_LIMIT = TEXT_LIMIT + 1
MAX_CACHED = 10_000
K = TypeVar("K")
_MICROSECOND = timedelta(microseconds=1)
#: Each value after its length; -1 is NULL.
_BATCH, _ALWAYS = Struct(">h ii ii"), Struct(">iq iq ii ii")
_CAUSE = Struct(">iq ii ii ii i i")
_WHOLE = Struct(">h ii ii iq ii i16s iq")
_LONG, _INT, _NULL = Struct(">iq"), Struct(">ii"), b"\xff\xff\xff\xff"


def of_batch(
    stream: int, day: date, received_at: datetime, first: int, count: int, id: UUID, parts: Packed
) -> bytes:
    """Return the row of a batch whose first event is at the position `first`."""
    days, moment = (day - _FIRST_DAY).days, (received_at - _EPOCH) // _MICROSECOND
    fixed = (len(BATCH_COLUMNS), 4, stream, 4, days, 8, first, 4, count, 16, id.bytes, 8, moment)
    return _WHOLE.pack(*fixed) + _bytes(parts.heads) + _bytes(parts.bodies)


def packed(stream: int, day: date, stored: Iterable[Stored]) -> Iterator[bytes]:
    """Yield the rows of the events of one batch, in order."""
    batch = _BATCH.pack(len(COLUMNS), 4, stream, 4, (day - _FIRST_DAY).days)
    place = 0
    for each in stored:
        if isinstance(each, StoredFailures):
            yield b"".join(_failures(batch, place, each))
            place += each.failed.size
        else:
            yield from _one(batch, place, each)
            place += 1


def _failures(batch: bytes, place: int, stored: StoredFailures) -> Iterator[bytes]:
    """Yield the rows of failed records, in pieces: time, place, task and cause."""
    failed, name, run = stored.failed, stored.application, stored.failed.run
    size, pipeline, checkpoint = failed.size, run.pipeline, run.checkpoint
    begin = batch + (8).to_bytes(4)
    end = _INT.pack(4, column_values.hash_text(RecordFailed.__name__)) + _LONG.pack(
        8, failed.failed_per_event
    )
    places = map(
        Struct(f">{len(begin)}sqiqii{len(end)}s").pack,
        repeat(begin, size),
        range(stored.sequence, stored.sequence + size),
        repeat(8),
        [each - _FROM_1970 for each in failed.moments],
        repeat(4),
        range(place, place + size),
        repeat(end),
    )
    tasks = map(_tasks(name, pipeline, checkpoint).__getitem__, failed.tasks)
    kinds = [
        _causes(name, pipeline, *_names(each.stage, each.exception_class)) for each in failed.kinds
    ]
    causes = [
        kinds[kind][fingerprint]
        for fingerprint, kind in zip(failed.fingerprints, failed.kind, strict=True)
    ]
    return chain.from_iterable(
        zip(places, tasks, map(causes.__getitem__, failed.cause), strict=True)
    )


def _one(batch: bytes, place: int, stored: StoredEvent) -> Iterator[bytes]:
    """Yield the row of one event, in pieces."""
    event = stored.event
    data, run = event.data, event.run
    moment = (event.occurred_at - _EPOCH) // _MICROSECOND
    type = column_values.hash_text(data.__class__.__name__)
    yield batch + _ALWAYS.pack(8, stored.sequence, 8, moment, 4, place, 4, type)
    if not isinstance(data, FAILED) or run is None:
        yield from _rest(stored)
        return
    name, failure = stored.application, data.failure
    yield _LONG.pack(8, data.count)
    yield _tasks(name, run.pipeline, run.checkpoint)[data.task]
    yield _causes(name, run.pipeline, *_names(failure.stage, failure.exception_class))[
        failure.fingerprint
    ]


class _Known(dict[K, bytes]):
    """The packed columns of keys: a cache of limited size, without large keys."""

    def __init__(self, make: Callable[[K], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> bytes:
        if isinstance(key, str) and is_long(key):
            return self._make(key)
        if len(self) >= MAX_CACHED:
            self.clear()
        found = self[key] = self._make(key)
        return found


@lru_cache(maxsize=100)
def _tasks(application: str, pipeline: str, checkpoint: str) -> _Known[str | None]:
    """Return the packed columns of tasks, by key."""
    return _Known(
        lambda key: _bytes(bytes.fromhex(task_digest(application, pipeline, checkpoint, key)))
    )


@lru_cache(maxsize=100)
def _causes(application: str, pipeline: str, stage: str, exception_class: str) -> _Known[str]:
    """Return the packed columns of error groups, by fingerprint: names of the failure, no
    command, no actor."""
    names = (
        4,
        column_values.hash_text(pipeline),
        4,
        hash_cut_text(stage),
        4,
        hash_cut_text(exception_class),
        -1,
        -1,
    )
    return _Known(
        lambda fingerprint: _CAUSE.pack(
            8, column_values.hash_group(application, fingerprint), *names
        )
    )


def _names(stage: str, exception_class: str) -> tuple[str, str]:
    """Return names cut to the limit of `fit`, so that the cache contains no large text."""
    return stage[:_LENGTH_LIMIT], exception_class[:_LENGTH_LIMIT]


def hash_cut_text(text: str) -> int:
    """Return the number of a text that lists show, and search for, cut."""
    return column_values.hash_text(fit(text))


def _rest(stored: StoredEvent) -> Iterator[bytes]:
    """Yield the columns that most events other than failures do not have."""
    event, name = stored.event, stored.application
    data = event.data
    digest, fingerprint = task_of(stored), fingerprint_of(event)
    failure, command = getattr(data, "failure", None), getattr(data, "command", None)
    yield _NULL
    yield _bytes(None if digest is None else bytes.fromhex(digest))
    yield _long(None if fingerprint is None else column_values.hash_group(name, fingerprint))
    yield _int(None if event.run is None else column_values.hash_text(event.run.pipeline))
    yield _int(None if failure is None else hash_cut_text(failure.stage))
    yield _int(None if failure is None else hash_cut_text(failure.exception_class))
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
    """Return the error group of an event."""
    failure = getattr(event.data, "failure", None)
    found = getattr(event.data if failure is None else failure, "fingerprint", None)
    return None if found is None else str(found)


def actor_of(event: Event) -> str | None:
    """Return the actor of an event; effects of a command have the command instead."""
    return fit_or_none(getattr(event.data, "actor", None)) if event.caused_by is None else None


def task_of(stored: StoredEvent) -> str | None:
    """Return the digest of the task of an event or a command."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, _TASK_EVENTS) and run is not None:
        pipeline, checkpoint = run.pipeline, run.checkpoint
    elif isinstance(data, CommandIssued | NoteAdded) and data.pipeline and data.checkpoint:
        pipeline, checkpoint = data.pipeline, data.checkpoint
    else:
        return None
    return task_digest(stored.application, pipeline, checkpoint, data.task)
