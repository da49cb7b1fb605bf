"""Read the log in order, by position, and by task.

See `state_changes`, `failures` and `audit_reads` for lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from msgspec.structs import replace

from arrester.controlplane.store import batches, column_values, prepared_statements
from arrester.controlplane.store.batches import PLACE, Place, body_of
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.domain.errors import NotFound
from arrester.domain.events import (
    RecordFailed,
    StoredEvent,
)
from arrester.domain.wire import codec
from arrester.domain.wire.failure_columns import Stored, expand_stored, last

#: A parameter of a statement.
Parameter = Any
T = TypeVar("T")
#: Events read at once, plus the rest of the last batch.
EVENTS_PER_READ = 30_000
#: The most bytes of events that follow positions, apart from the last event of each log.
FOLLOWING_BYTES = 4 * 2**20
#: The stream of an application, in SQL.
STREAM = "(SELECT id FROM stream WHERE application = %s)"


def type_of(cls: type[Any]) -> int:
    """Return the number that a type of events has in the tables."""
    return column_values.hash_text(cls.__name__)


def read(
    application: str,
    *,
    after: int = 0,
    until: int = MAX_BIGINT,
) -> Iterator[StoredEvent]:
    """Return the log in order, without bodies, some batches at a time."""
    return expand_stored(read_stored(application, after=after, until=until))


def read_stored(application: str, *, after: int = 0, until: int = MAX_BIGINT) -> Iterator[Stored]:
    """Return the log in order as stored elements, without bodies, some batches at a time."""
    while after < until:
        # A range, not a number of rows: PostgreSQL would sort all following rows to find the first.
        near = min(until, after + EVENTS_PER_READ)
        for row in batches.read(application, after=after, until=near):
            elements = row.elements()
            if row.sequence <= after or last(elements[-1]) > until:
                elements = [
                    each for each in expand_stored(elements) if after < each.sequence <= until
                ]
            if elements:
                after = last(elements[-1])
                yield from elements
        if after < near:
            # The log ends here; or its beginning was dropped, and it begins later.
            begin = batches.next_begin(application, after=after)
            if begin is None:
                return
            after = begin - 1


def read_following(positions: Mapping[str, int], *, limit: int) -> list[StoredEvent]:
    """Return events of several logs after a position of each, without bodies.

    In the order of each log; every log with more events gets its share of about `limit` and of
    FOLLOWING_BYTES, and at least one event.
    """
    if not positions:
        return []
    share, most = max(1, limit // len(positions)), FOLLOWING_BYTES // len(positions)
    rows = batches.read_after(positions, share=share)
    events: list[StoredEvent] = []
    taken: dict[str, int] = {}
    for row in sorted(rows, key=lambda each: each.sequence):
        after = positions[row.application]
        for each in row.events() if taken.get(row.application, 0) < most else ():
            if after < each.sequence <= after + share and taken.get(row.application, 0) < most:
                events.append(each)
                size = len(codec.encode_event(each.event))
                taken[row.application] = taken.get(row.application, 0) + size
    return sorted(events, key=lambda each: (each.received_at, each.application, each.sequence))


def position_at(application: str, moment: datetime) -> int:
    """Return the last position whose event was received by `moment`; 0 if there is none."""
    day = moment.astimezone(UTC).date()
    ends = (
        "SELECT min(sequence), max(sequence + count - 1) FROM batch"
        f" WHERE stream = {STREAM} AND day"
    )
    with connection.cursor() as cursor:
        cursor.execute(f"{ends} = %s", [application, day])
        first, last = cursor.fetchone()
        if first is not None:
            before, after = first - 1, last + 1
            # Times increase with positions, so they need no index of their own.
            while after - before > 1:
                middle = (before + after) // 2
                cursor.execute(
                    "SELECT sequence, sequence + count - 1, received_at FROM batch"
                    f" WHERE stream = {STREAM} AND day = %s AND sequence <= %s"
                    " ORDER BY sequence DESC LIMIT 1",
                    [application, day, middle],
                )
                begin, end, received_at = cursor.fetchone()
                before, after = (end, after) if received_at <= moment else (before, begin)
            if before >= first:
                return int(before)
        cursor.execute(f"{ends} < %s", [application, day])
        return int(cursor.fetchone()[1] or 0)


def last_before(application: str, day: date) -> tuple[int, datetime] | None:
    """Return the position and the time of the last event received before a day, or None."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT sequence + count - 1, received_at FROM batch WHERE stream = {STREAM}"
            " AND day < %s ORDER BY sequence DESC LIMIT 1",
            [application, day],
        )
        row = cursor.fetchone()
    return None if row is None else (row[0], row[1])


def read_one(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound."""
    row = batches.read_containing(application, sequence)
    if row is None:
        raise NotFound(f"there is no event {application} @ {sequence}")
    place = sequence - row.sequence
    stored = row.stored(place, codec.decode_events_at(row.heads, [place])[place])
    return replace(stored, event=replace(stored.event, body=body_of(stored)))


def read_positions(wanted: Sequence[tuple[int, int]]) -> list[StoredEvent]:
    """Return the events at some positions of streams, without bodies; dropped ones are left out."""
    if not wanted:
        return []
    streams, sequences = zip(*wanted, strict=True)
    return fetch(
        "SELECT wanted.stream, batch.day, batch.sequence, (wanted.sequence - batch.sequence)::int"
        " FROM unnest(%s::int[], %s::bigint[]) AS wanted (stream, sequence) CROSS JOIN LATERAL ("
        "SELECT * FROM batch WHERE batch.stream = wanted.stream"
        " AND batch.sequence <= wanted.sequence ORDER BY batch.sequence DESC LIMIT 1) AS batch"
        " WHERE wanted.sequence < batch.sequence + batch.count",
        [list(streams), list(sequences)],
    )


def read_batch(application: str, id: UUID) -> list[StoredEvent]:
    """Return the events of a batch id, without bodies; none if they were dropped."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT first_sequence FROM batch_seen WHERE application = %s AND batch = %s",
            [application, id],
        )
        seen_row = cursor.fetchone()
    row = None if seen_row is None else batches.read_containing(application, seen_row[0])
    return [] if row is None else row.events()


def read_task_history(
    application: str, *, task: UUID, commands: Sequence[UUID], before: int | None, limit: int
) -> list[StoredEvent]:
    """Return the events of a task and of its commands, newest first."""
    end = MAX_BIGINT if before is None else before
    # Two index scans: one condition with OR would read and sort all of the task's history.
    places = _newest("task = %s", [task], end=end, limit=limit)
    if commands:
        others = f"stream = {STREAM} AND command = ANY(%s::uuid[]) AND task IS DISTINCT FROM %s"
        places += _newest(others, [application, list(commands), task], end=end, limit=limit)
    newest = sorted(places, key=lambda each: each.first + each.place, reverse=True)
    return batches.read_at(newest[:limit])


def _newest(where: str, parameters: Sequence[Parameter], *, end: int, limit: int) -> list[Place]:
    """Return the places of the newest events before a position that match an SQL condition."""
    rows = prepared_statements.rows(
        f"SELECT {PLACE} FROM event WHERE {where} AND sequence < %s"
        f" ORDER BY sequence DESC LIMIT {limit:d}",
        [*parameters, end],
    )
    return [Place(*row) for row in rows]


def read_next(stored: StoredEvent, *, newer: bool) -> int | None:
    """Return the next RecordFailed of the same group that is newer, or older, by sequence."""
    failure = getattr(stored.event.data, "failure", None)
    if failure is None:
        return None
    than, order = (">", "ASC") if newer else ("<", "DESC")
    cause = column_values.hash_group(stored.application, failure.fingerprint)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequence FROM event WHERE cause = %s AND count IS NOT NULL AND type = %s"
            f" AND (occurred_at, sequence) {than} (%s, %s)"
            f" ORDER BY occurred_at {order}, sequence {order} LIMIT 1",
            [cause, type_of(RecordFailed), stored.event.occurred_at, stored.sequence],
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def read_next_of_task(task: UUID, sequence: int, *, newer: bool) -> int | None:
    """Return the position of the next RecordFailed of a task that is newer, or older."""
    than, order = (">", "ASC") if newer else ("<", "DESC")
    rows = prepared_statements.rows(
        f"SELECT sequence FROM event WHERE task = %s AND sequence {than} %s"
        f" AND type = {type_of(RecordFailed)} ORDER BY sequence {order} LIMIT 1",
        [task, sequence],
    )
    return int(rows[0][0]) if rows else None


#: The sort key of the lists: time, application, position.
Newest = tuple[datetime, str, int]


def newest(stored: StoredEvent) -> Newest:
    """Return the sort key of an event in lists."""
    return stored.event.occurred_at, stored.application, stored.sequence


def filled(
    read: Callable[[T | None], list[StoredEvent]],
    has: Callable[[StoredEvent], bool],
    *,
    key: Callable[[StoredEvent], T],
    before: T | None,
    limit: int,
) -> list[StoredEvent]:
    """Return `limit` matching events, or all that are left.

    `read` selects by hashes of names. It may return other events: two names can have one hash.
    """
    matching: list[StoredEvent] = []
    while True:
        events = read(before)
        matching += filter(has, events)
        if len(events) < limit or len(matching) >= limit:
            return matching[:limit]
        before = key(events[-1])


def select(where: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    """Return the events that a condition, in SQL, selects."""
    return fetch(f"SELECT {PLACE} FROM event {where}", parameters)


def fetch(statement: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    """Return the events at the places of a statement's result."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        places = [Place(*row) for row in cursor.fetchall()]
    return batches.read_at(places)
