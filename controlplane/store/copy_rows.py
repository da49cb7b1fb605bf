"""Rows of the log's tables: batches, and the index of their events.

The content of an event is in its batch. The index has numbers in place of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import Any, get_args
from uuid import UUID

from arrester.controlplane.store import column_values
from arrester.controlplane.store.column_values import fit, fit_or_none
from arrester.domain.events import (
    FAILED,
    CommandIssued,
    DeadLettersDiscarded,
    Event,
    FlowMeasured,
    NoteAdded,
    RecordFailed,
    StoredEvent,
    TaskEvent,
)
from arrester.domain.identity.names import is_long, task_digest
from arrester.domain.wire.codec import Packed
from arrester.domain.wire.failure_columns import (
    Stored,
    StoredFailures,
)

#: Events of people that name a task.
_NAMES_A_TASK = (CommandIssued, NoteAdded, DeadLettersDiscarded)
#: The columns of `event` with their types, in the order of `of_events`. In the binary format a date
#: is the number of days since 2000, and a time the number of microseconds: integers are fastest.
COLUMNS = {
    "stream": "int4",
    "day": "int4",
    "sequence": "int8",
    "occurred_at": "int8",
    "place": "int4",
    "type": "int4",
    "count": "int8",
    "task": "bytea",
    "cause": "int8",
    "pipeline": "int4",
    "stage": "int4",
    "exception_class": "int4",
    "command": "uuid",
    "actor": "text",
}
BATCH_COLUMNS = {
    "stream": "int4",
    "day": "date",
    "sequence": "int8",
    "count": "int4",
    "id": "uuid",
    "received_at": "timestamptz",
    "heads": "bytea",
    "bodies": "bytea",
}
#: Events that no list searches for: a row of each would be larger than the event.
UNLISTED = (FlowMeasured,)
LogRow = tuple[Any, ...]
_TASK_EVENTS = get_args(TaskEvent)
_EPOCH, _FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC), date(2000, 1, 1)
#: The epoch of PostgreSQL's times is this many microseconds later than 1970.
_FROM_1970 = 946_684_800_000_000
_MICROSECOND = timedelta(microseconds=1)
MAX_CACHED = 10_000


def of_batch(
    stream: int, day: date, received_at: datetime, first: int, count: int, id: UUID, parts: Packed
) -> LogRow:
    """Return the row of a batch whose first event is at the position `first`."""
    return stream, day, first, count, id, received_at, parts.heads, parts.bodies


def of_events(stream: int, day: date, stored: Iterable[Stored]) -> Iterator[LogRow]:
    """Yield the rows of the events of one batch, in order."""
    days, place = (day - _FIRST_DAY).days, 0
    for each in stored:
        if isinstance(each, StoredFailures):
            yield from _failures(stream, days, place, each)
            place += each.failed.size
        else:
            if not isinstance(each.event.data, UNLISTED):
                at = (each.event.occurred_at - _EPOCH) // _MICROSECOND
                yield (stream, days, each.sequence, at, place, *_columns(each))
            place += 1


def _failures(stream: int, day: int, place: int, stored: StoredFailures) -> Iterator[LogRow]:
    """Yield the rows of failed records."""
    failed, name, run = stored.failed, stored.application, stored.failed.run
    size, tasks = failed.size, _tasks(name, run.pipeline, run.checkpoint)
    groups = [column_values.hash_group(name, each) for each in failed.fingerprints]
    stages = [hash_cut_text(each.stage) for each in failed.kinds]
    classes = [hash_cut_text(each.exception_class) for each in failed.kinds]
    kinds = list(map(failed.kind.__getitem__, failed.cause))
    return zip(
        repeat(stream, size),
        repeat(day, size),
        range(stored.sequence, stored.sequence + size),
        [each - _FROM_1970 for each in failed.moments],
        range(place, place + size),
        repeat(column_values.hash_text(RecordFailed.__name__), size),
        repeat(failed.failed_per_event, size),
        map(tasks.__getitem__, failed.tasks),
        map(groups.__getitem__, failed.cause),
        repeat(column_values.hash_text(run.pipeline), size),
        map(stages.__getitem__, kinds),
        map(classes.__getitem__, kinds),
        repeat(None, size),
        repeat(None, size),
        strict=True,
    )


class _TaskDigests(dict[str | None, bytes]):
    """The digests of the tasks of a pipeline, by key: a cache of limited size, without large
    keys."""

    def __init__(self, application: str, pipeline: str, checkpoint: str) -> None:
        super().__init__()
        self._run = application, pipeline, checkpoint

    def __missing__(self, key: str | None) -> bytes:
        digest = bytes.fromhex(task_digest(*self._run, key))
        if key is None or not is_long(key):
            if len(self) >= MAX_CACHED:
                self.clear()
            self[key] = digest
        return digest


@lru_cache(maxsize=100)
def _tasks(application: str, pipeline: str, checkpoint: str) -> _TaskDigests:
    """Return the digests of a pipeline's tasks, by key."""
    return _TaskDigests(application, pipeline, checkpoint)


def hash_cut_text(text: str) -> int:
    """Return the number of a text that lists show, and search for, cut."""
    return column_values.hash_text(fit(text))


def _columns(stored: StoredEvent) -> LogRow:
    """Return the columns from `type` on."""
    event, name = stored.event, stored.application
    data, run = event.data, event.run
    digest, fingerprint = task_of(stored), fingerprint_of(event)
    failure, command = getattr(data, "failure", None), getattr(data, "command", None)
    return (
        column_values.hash_text(data.__class__.__name__),
        data.count if isinstance(data, FAILED) and run is not None else None,
        None if digest is None else bytes.fromhex(digest),
        None if fingerprint is None else column_values.hash_group(name, fingerprint),
        None if run is None else column_values.hash_text(run.pipeline),
        None if failure is None else hash_cut_text(failure.stage),
        None if failure is None else hash_cut_text(failure.exception_class),
        command if isinstance(command, UUID) else None,
        actor_of(event),
    )


def fingerprint_of(event: Event) -> str | None:
    """Return the error group of an event."""
    failure = getattr(event.data, "failure", None)
    fingerprint = getattr(event.data if failure is None else failure, "fingerprint", None)
    return None if fingerprint is None else str(fingerprint)


def actor_of(event: Event) -> str | None:
    """Return the actor of an event; effects of a command have the command instead."""
    return fit_or_none(getattr(event.data, "actor", None)) if event.caused_by is None else None


def task_of(stored: StoredEvent) -> str | None:
    """Return the digest of the task of an event or a command."""
    data, run = stored.event.data, stored.event.run
    if isinstance(data, _TASK_EVENTS) and run is not None:
        pipeline, checkpoint = run.pipeline, run.checkpoint
    elif isinstance(data, _NAMES_A_TASK) and data.pipeline and data.checkpoint:
        pipeline, checkpoint = data.pipeline, data.checkpoint
    else:
        return None
    return task_digest(stored.application, pipeline, checkpoint, data.task)
