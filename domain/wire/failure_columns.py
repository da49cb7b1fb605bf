"""Failed records as columns: consecutive RecordFailed events that differ in little.

Most events of most logs are these. As columns they pack smaller, and are read, stored and added up
without an object for each. They are equivalent to the events that they were made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from arrester.domain.events import (
    Count,
    Data,
    Event,
    Failure,
    FinalResponse,
    Position,
    RecordFailed,
    Run,
    StoredEvent,
)
from arrester.domain.python_versions import UTC

#: Fewer events are not worth columns.
MIN_EVENTS = 4
#: Columns regardless of the values of single events; a column of numbers assigns them.
_unpack = msgspec.msgpack.Decoder(
    tuple[
        Any, Any, Any, Any, Any, Any,
        list[list[Any]], list[int], list[Any], list[Any],
        list[int], list[int], list[Any], list[Any], list[Any], list[Any],
    ]
)  # fmt: skip
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


class FailureKind(NamedTuple):
    """The values that most failures of a step share."""

    stage: str
    exception_class: str
    condition: str | None
    inner_class: str | None = None
    inner_condition: str | None = None
    field: str | None = None


class FailedRecords(NamedTuple):
    """RecordFailed events without bodies: their shared values, and a column for each other
    field."""

    run: Run
    instance: UUID | None
    response: FinalResponse
    attempts: Count
    recurrence: bool
    logged: bool
    #: In the order of their first use in `kind`.
    kinds: list[FailureKind]
    #: A cause is one kind, one fingerprint and one frame; ordered as first used in `cause`.
    kind: list[int]
    fingerprints: list[str]
    frames: list[str | None]
    #: The cause of each event, by index.
    cause: list[int]
    #: The time of each event, in microseconds since 1970.
    moments: list[int]
    tasks: list[str | None]
    positions: list[Position | None]
    keys: list[str | None]
    messages: list[str]

    @property
    def size(self) -> int:
        """The number of events."""
        return len(self.cause)

    @property
    def failed_per_event(self) -> int:
        """The number of failed records that each event adds."""
        return 0 if self.recurrence else 1

    def is_consistent(self) -> bool:
        """Whether the columns are consistent with each other."""
        size, causes = len(self.cause), len(self.kind)
        columns = (self.moments, self.tasks, self.positions, self.keys, self.messages)
        return (
            size > 0
            and all(len(column) == size for column in columns)
            and len(self.fingerprints) == len(self.frames) == causes
            and list(dict.fromkeys(self.cause)) == list(range(causes))
            and list(dict.fromkeys(self.kind)) == list(range(len(self.kinds)))
            and min(self.moments) >= _FIRST
            and max(self.moments) <= _LAST
        )

    def data(self, index: int) -> RecordFailed:
        """Return the data of one event."""
        cause = self.cause[index]
        kind = self.kinds[self.kind[cause]]
        return RecordFailed(
            task=self.tasks[index],
            position=self.positions[index],
            failure=Failure(
                stage=kind.stage,
                exception_class=kind.exception_class,
                condition=kind.condition,
                message=self.messages[index],
                fingerprint=self.fingerprints[cause],
                frame=self.frames[cause],
                attempts=self.attempts,
                inner_class=kind.inner_class,
                inner_condition=kind.inner_condition,
                field=kind.field,
            ),
            response=self.response,
            key=self.keys[index],
            recurrence=self.recurrence,
            logged=self.logged,
        )

    def first(self, cause: int) -> RecordFailed:
        """Return the data of the first event of a cause."""
        return self.data(self.cause.index(cause))

    def event(self, index: int) -> Event:
        """Return one of the events."""
        return Event(
            occurred_at=moment(self.moments[index]),
            data=self.data(index),
            instance=self.instance,
            run=self.run,
        )


class StoredFailures(Data, frozen=True, kw_only=True):
    """Failed records in the log, the first of them at `sequence`."""

    application: str
    sequence: int
    received_at: datetime
    batch: UUID
    failed: FailedRecords

    def stored_event(self, index: int) -> StoredEvent:
        """Return one of the events."""
        return StoredEvent(
            application=self.application,
            sequence=self.sequence + index,
            received_at=self.received_at,
            batch=self.batch,
            event=self.failed.event(index),
        )


#: The elements of a batch, before and after they are stored.
Element = Event | FailedRecords
Stored = StoredEvent | StoredFailures


def moment(microseconds: int) -> datetime:
    """Return the time of a number in a column."""
    return _EPOCH + timedelta(microseconds=microseconds)


def element_of(stored: Stored) -> Element:
    """Return the element without its log position."""
    return stored.failed if isinstance(stored, StoredFailures) else stored.event


def size(elements: Iterable[Element]) -> int:
    """Return the number of events."""
    return sum(each.size if isinstance(each, FailedRecords) else 1 for each in elements)


def last(stored: Stored) -> int:
    """Return the log position of the last event."""
    if isinstance(stored, StoredFailures):
        return stored.sequence + stored.failed.size - 1
    return stored.sequence


def expand(elements: Iterable[Element]) -> Iterator[Event]:
    """Yield the single events."""
    for each in elements:
        if isinstance(each, FailedRecords):
            yield from map(each.event, range(each.size))
        else:
            yield each


def expand_stored(stored: Iterable[Stored]) -> Iterator[StoredEvent]:
    """Yield the single events."""
    for each in stored:
        if isinstance(each, StoredFailures):
            yield from map(each.stored_event, range(each.failed.size))
        else:
            yield each


def decode_unchecked(packed: bytes | msgspec.Raw) -> FailedRecords:
    """Return packed columns with unchecked values.

    Raises ValueError if they are not columns.
    """
    values: Iterable[Any] = _unpack.decode(packed)
    failed = FailedRecords(*values)
    return failed._replace(kinds=[FailureKind(*each) for each in failed.kinds])


def to_columns(events: Iterable[Event]) -> Iterator[Element]:
    """Yield `events`, which have no bodies, in order: as columns where these are smaller."""
    for shared, some in groupby(events, _shared):
        group = list(some)
        if shared is None or len(group) < MIN_EVENTS:
            yield from group
        else:
            yield _columns(shared, group)


_Shared = tuple[Run, UUID | None, FinalResponse, int, bool, bool]


def _shared(event: Event) -> _Shared | None:
    """Return the values that an event shares with others as columns; None if it cannot be in
    columns."""
    data, run = event.data, event.run
    if (
        data.__class__ is not RecordFailed
        or run is None
        or event.caused_by is not None
        or data.with_source
        or event.schema_version != 1
        or event.occurred_at.tzinfo is None
    ):
        return None
    return (
        run,
        event.instance,
        data.response,
        data.failure.attempts,
        data.recurrence,
        data.logged,
    )


def _columns(shared: _Shared, events: Sequence[Event]) -> FailedRecords:
    kinds: dict[FailureKind, int] = {}
    causes: dict[tuple[int, str, str | None], int] = {}
    rows = []
    for event in events:
        data = event.data
        assert isinstance(data, RecordFailed)
        failure = data.failure
        kind = FailureKind(
            failure.stage,
            failure.exception_class,
            failure.condition,
            failure.inner_class,
            failure.inner_condition,
            failure.field,
        )
        cause = (kinds.setdefault(kind, len(kinds)), failure.fingerprint, failure.frame)
        number = causes.setdefault(cause, len(causes))
        at = (event.occurred_at - _EPOCH) // _MICROSECOND
        rows.append((number, at, data.task, data.position, data.key, failure.message))
    of_causes, of_events = zip(*causes, strict=True), zip(*rows, strict=True)
    return FailedRecords(*shared, list(kinds), *map(list, of_causes), *map(list, of_events))
