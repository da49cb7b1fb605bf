"""Batches of the log: read events at the places found in an index, read and erase bodies."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from msgspec.structs import replace

from arrester.controlplane.store import prepared_statements
from arrester.domain.errors import MalformedBatch, NotFound
from arrester.domain.events import Body, Event, RecordFailed, StoredEvent
from arrester.domain.wire import bodies, codec
from arrester.domain.wire.failure_columns import (
    Element,
    FailedRecords,
    Stored,
    StoredFailures,
    expand_stored,
)

log = logging.getLogger(__name__)
#: The columns of `BatchRow`, as SQL; of `batch` and `stream`.
COLUMNS = "stream.application, batch.sequence, batch.id, batch.received_at, batch.heads"
_STREAM = "(SELECT id FROM stream WHERE application = %(application)s)"
#: The most bytes of packed events that are read at once; a larger batch is read alone.
READ_BYTES = 32 * 2**20


def _sizes_before(order: str) -> str:
    """Return the packed size of the batches before a row in an order, as SQL."""
    size = "octet_length(batch.heads)"
    return f"(sum({size}) OVER (ORDER BY {order}) - {size}) AS before"


class BatchRow(NamedTuple):
    """A batch as read: its application, first position, and packed events."""

    application: str
    sequence: int
    id: UUID
    received_at: datetime
    heads: bytes

    @classmethod
    def of(cls, values: Sequence[Any]) -> BatchRow:
        """Return the batch of a row with COLUMNS."""
        application, sequence, id, received_at, heads = values
        return cls(application, sequence, id, received_at, bytes(heads))

    def stored(self, place: int, event: Event) -> StoredEvent:
        """Return an event of the batch with its position in the log."""
        return StoredEvent(
            application=self.application,
            sequence=self.sequence + place,
            received_at=self.received_at,
            batch=self.id,
            event=event,
        )

    def elements(self) -> list[Stored]:
        """Return the elements of the batch in order."""
        application, first, id, received_at, heads = self
        return list(
            with_positions(
                codec.decode_elements(heads),
                application=application,
                first=first,
                received_at=received_at,
                batch=id,
            )
        )

    def events(self) -> list[StoredEvent]:
        """Return the single events of the batch in order."""
        return list(expand_stored(self.elements()))


def heads_of_batches(
    application: str, ids: Collection[UUID]
) -> Iterator[tuple[UUID, bytes | None]]:
    """Yield the stored events of batches with their ids, as far as the ids are known.

    They are packed, and without bodies. Empty: nothing of the batch was valid; None: dropped.
    """
    remaining, size = sorted(ids), READ_BYTES
    while remaining and size >= READ_BYTES:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT seen_batch, heads FROM (SELECT seen.batch AS seen_batch,"
                " CASE WHEN seen.count = 0 THEN '' ELSE batch.heads END AS heads,"
                f" {_sizes_before('seen.batch')} FROM batch_seen AS seen"
                " LEFT JOIN batch ON batch.sequence = seen.first_sequence"
                " AND batch.id = seen.batch"
                " AND batch.day = (seen.received_at AT TIME ZONE 'UTC')::date"
                " AND batch.stream = (SELECT id FROM stream WHERE application = %s)"
                " WHERE seen.application = %s AND seen.batch = ANY(%s::uuid[])) AS batch"
                " WHERE coalesce(before, 0) < %s ORDER BY seen_batch",
                [application, application, remaining, READ_BYTES],
            )
            rows = [(id, None if heads is None else bytes(heads)) for id, heads in cursor]
        yield from rows
        size = sum(len(heads or b"") for _, heads in rows)
        remaining = [each for each in remaining if rows and each > rows[-1][0]]


def with_positions(
    elements: Iterable[Element], *, application: str, first: int, received_at: datetime, batch: UUID
) -> Iterator[Stored]:
    """Yield the elements of a batch with their positions, from `first` on."""
    for each in elements:
        if isinstance(each, FailedRecords):
            yield StoredFailures(
                application=application,
                sequence=first,
                received_at=received_at,
                batch=batch,
                failed=each,
            )
            first += each.size
        else:
            yield StoredEvent(
                application=application,
                sequence=first,
                received_at=received_at,
                batch=batch,
                event=each,
            )
            first += 1


class Place(NamedTuple):
    """The place of an event: the result of every search."""

    stream: int
    day: date
    #: The first position of its batch.
    first: int
    place: int


#: The columns of `Place`, as SQL; of `event`.
PLACE = "event.stream, event.day, event.sequence - event.place, event.place"


def read_at(places: Sequence[Place]) -> list[StoredEvent]:
    """Return the events at `places`, in that order, without bodies; each batch is read once."""
    wanted: dict[tuple[int, date, int], set[int]] = defaultdict(set)
    for each in places:
        wanted[each[:3]].add(each.place)
    events: dict[Place, StoredEvent] = {}
    # Neighbours are usually in one block, or in two.
    for (stream, day), row in _rows(sorted(wanted)):
        some = codec.decode_events_at(row.heads, wanted[stream, day, row.sequence])
        for place, event in some.items():
            events[Place(stream, day, row.sequence, place)] = row.stored(place, event)
    return [events[each] for each in places]


def _rows(keys: Sequence[tuple[int, date, int]]) -> Iterator[tuple[tuple[int, date], BatchRow]]:
    """Yield the batches of streams and days that begin at positions, READ_BYTES at a time."""
    size = READ_BYTES
    while keys and size >= READ_BYTES:
        streams, days, sequences = zip(*keys, strict=True)
        # One look-up in one partition each, independent of the planner's statistics.
        statement = (
            "SELECT number, wanted_stream, wanted_day, application, sequence, id, received_at,"
            " heads FROM (SELECT number, wanted.stream AS wanted_stream, wanted.day AS wanted_day,"
            f" {COLUMNS}, {_sizes_before('number')}"
            " FROM unnest(%s::int[], %s::date[], %s::bigint[])"
            " WITH ORDINALITY AS wanted (stream, day, sequence, number)"
            " JOIN stream ON stream.id = wanted.stream CROSS JOIN LATERAL ("
            "SELECT * FROM batch WHERE batch.stream = wanted.stream AND batch.day = wanted.day"
            " AND batch.sequence = wanted.sequence LIMIT 1) AS batch) AS found"
            " WHERE before < %s ORDER BY number"
        )
        parameters = [list(streams), list(days), list(sequences), READ_BYTES]
        rows = prepared_statements.rows(statement, parameters, binary=True)
        for _, stream, day, *row in rows:
            yield (stream, day), BatchRow.of(row)
        size = sum(len(row[-1]) for row in rows)
        keys = keys[rows[-1][0] :] if rows else ()


def read(application: str, *, after: int, until: int) -> list[BatchRow]:
    """Return batches with positions after `after` up to `until`, in order: the first ones, or all
    if they have at most READ_BYTES."""
    rows = prepared_statements.rows(
        "SELECT %(application)s::text, sequence, id, received_at, heads FROM"
        f" (SELECT sequence, id, received_at, heads, {_sizes_before('sequence')} FROM batch"
        f" WHERE stream = {_STREAM} AND sequence <= %(until)s"
        " AND sequence >= coalesce((SELECT max(early.sequence) FROM batch AS early"
        f" WHERE early.stream = {_STREAM} AND early.sequence <= %(first)s), 0)) AS found"
        " WHERE before < %(most)s ORDER BY sequence",
        {"application": application, "until": until, "first": after + 1, "most": READ_BYTES},
        binary=True,
    )
    return [BatchRow.of(row) for row in rows]


def read_failed_records(
    application: str, *, after: int, until: int, most: int
) -> tuple[list[StoredEvent], int]:
    """Return the RecordFailed events after one position up to another, with bodies, in order.

    At most `most` batches are read, of about READ_BYTES. The second value is the position up to
    which all are returned: `until`, or the end of the last batch read.
    """
    size = "(octet_length(heads) + coalesce(octet_length(bodies), 0))"
    rows = prepared_statements.rows(
        "SELECT sequence, id, received_at, heads, bodies, count FROM"
        f" (SELECT *, sum({size}) OVER (ORDER BY sequence) - {size} AS before FROM"
        f" (SELECT * FROM batch WHERE stream = {_STREAM} AND sequence <= %(until)s"
        " AND sequence >= coalesce((SELECT max(early.sequence) FROM batch AS early"
        f" WHERE early.stream = {_STREAM} AND early.sequence <= %(first)s), 0)"
        " ORDER BY sequence LIMIT %(most)s) AS first_ones) AS found"
        " WHERE before < %(bytes)s ORDER BY sequence",
        {
            **{"application": application, "until": until, "first": after + 1},
            **{"most": most, "bytes": READ_BYTES},
        },
        binary=True,
    )
    failed = [
        each
        for *values, packed, _ in rows
        for each in failed_records_in(BatchRow.of([application, *values]), packed, after, until)
    ]
    # None: the rest of the log was dropped.
    end = rows[-1][0] + rows[-1][-1] - 1 if rows else until
    return failed, min(until, end)


def failed_records_in(
    row: BatchRow, packed: bytes | None, after: int, until: int
) -> Iterator[StoredEvent]:
    """Yield the RecordFailed events of a batch after one position up to another.

    They have their bodies, of which `packed` has those of the batch.
    """
    events = [
        each
        for element in row.elements()
        for each in _between(element, after, until)
        if isinstance(each.event.data, RecordFailed)
    ]
    places = [each.sequence - row.sequence for each in events]
    found = {} if packed is None else bodies.decode_bodies(bytes(packed), places)
    for place, each in zip(places, events, strict=True):
        body = found.get(place)
        yield each if body is None else _with_body(each, body)


def _between(stored: Stored, after: int, until: int) -> Iterator[StoredEvent]:
    """Yield the events of an element after one position up to another."""
    if isinstance(stored, StoredEvent):
        if after < stored.sequence <= until:
            yield stored
        return
    first, end = max(0, after + 1 - stored.sequence), until + 1 - stored.sequence
    yield from map(stored.stored_event, range(first, min(end, stored.failed.size)))


def with_bodies(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return events with their bodies, as far as these can be read; each batch is read once."""
    places: defaultdict[tuple[str, UUID], list[StoredEvent]] = defaultdict(list)
    for each in events:
        places[each.application, each.batch].append(each)
    found: dict[tuple[str, int], StoredEvent] = {}
    for (application, _), some in places.items():
        first, last = some[0].sequence, some[0].sequence
        for each in some:
            first, last = min(first, each.sequence), max(last, each.sequence)
        read, _ = read_failed_records(application, after=first - 1, until=last, most=1)
        found |= {(application, each.sequence): each for each in read}
    return [found.get((each.application, each.sequence), each) for each in events]


def _with_body(stored: StoredEvent, body: Body) -> StoredEvent:
    return replace(stored, event=replace(stored.event, body=body))


def next_begin(application: str, *, after: int) -> int | None:
    """Return the position of the first batch that begins after another position, or None."""
    ((position,),) = prepared_statements.rows(
        f"SELECT min(sequence) FROM batch WHERE stream = {_STREAM} AND sequence > %(after)s",
        {"application": application, "after": after},
    )
    return None if position is None else int(position)


def read_after(positions: Mapping[str, int], *, share: int) -> list[BatchRow]:
    """Return the first batches with the next `share` positions after one position of each log.

    Each log has its share of READ_BYTES, and at least one batch.
    """
    rows = prepared_statements.rows(
        f"SELECT {COLUMNS} FROM unnest(%s::text[], %s::bigint[]) AS wanted (name, after)"
        " JOIN stream ON stream.application = wanted.name CROSS JOIN LATERAL ("
        f"SELECT *, {_sizes_before('batch.sequence')} FROM batch WHERE batch.stream = stream.id"
        " AND batch.sequence <= wanted.after + %s AND batch.sequence >= coalesce(("
        "SELECT max(early.sequence) FROM batch AS early WHERE early.stream = stream.id"
        " AND early.sequence <= wanted.after + 1), 0)) AS batch WHERE before < %s",
        [list(positions), list(positions.values()), share, READ_BYTES // len(positions)],
        binary=True,
    )
    return [BatchRow.of(row) for row in rows]


def read_containing(application: str, sequence: int) -> BatchRow | None:
    """Return the batch that contains a position."""
    rows = prepared_statements.rows(
        f"SELECT {COLUMNS}, batch.count"
        " FROM stream CROSS JOIN LATERAL (SELECT * FROM batch WHERE batch.stream = stream.id"
        " AND batch.sequence <= %s ORDER BY batch.sequence DESC LIMIT 1) AS batch"
        " WHERE stream.application = %s",
        [sequence, application],
        binary=True,
    )
    if not rows or sequence >= rows[0][1] + rows[0][-1]:
        return None
    return BatchRow.of(rows[0][:-1])


class _BatchBodies(NamedTuple):
    """The bodies of an event's batch, and the event's index in it."""

    stream: int
    first: int
    day: date
    bodies: bytes
    place: int


def body_of(stored: StoredEvent) -> Body | None:
    """Return the body of an event; None if it has none. An unreadable one has the reason."""
    batch = _batch_bodies(stored)
    if batch is None:
        return None
    try:
        return bodies.decode_body(batch.bodies, batch.place)
    except MalformedBatch as exc:
        # The fold does not decode bodies, so it is detected here.
        log.warning("%s @ %s: its body: %s", stored.application, stored.sequence, exc)
        return Body(unreadable=str(exc))


def erase_body(stored: StoredEvent) -> str:
    """Replace an event's body with a tombstone; return its partition.

    Requires the owner's role. Raises NotFound if there is no body.
    """
    batch = _batch_bodies(stored)
    try:
        if batch is None:
            raise MalformedBatch("no event of its batch has a body")
        replacement = bodies.without_body(batch.bodies, batch.place)
    except MalformedBatch as exc:
        raise NotFound(f"{stored.application} @ {stored.sequence}: {exc}") from exc
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT arrester_erase_body(%s, %s, %s, %s)",
            [batch.stream, batch.first, batch.day, replacement],
        )
        return str(cursor.fetchone()[0])


def vacuum(partition: str) -> None:
    """Free the disk space of deleted rows; call it outside of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {partition}")


def _batch_bodies(stored: StoredEvent) -> _BatchBodies | None:
    day = stored.received_at.astimezone(UTC).date()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT stream, sequence, day, bodies FROM batch"
            " WHERE stream = (SELECT id FROM stream WHERE application = %s)"
            " AND sequence <= %s AND day = %s ORDER BY sequence DESC LIMIT 1",
            [stored.application, stored.sequence, day],
        )
        row = cursor.fetchone()
    if row is None or row[3] is None:
        return None
    stream, first, day, bodies = row
    return _BatchBodies(stream, first, day, bytes(bodies), stored.sequence - first)
