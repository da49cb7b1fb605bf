"""Append to the log: lay out events as rows, and COPY the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

import msgspec
from django.db import InterfaceError, connection
from msgspec.structs import replace

from arrester.controlplane.store import copy_rows, prepared_statements
from arrester.controlplane.store.batches import with_positions
from arrester.controlplane.store.streams import LogStream, copy_in, copying_in
from arrester.domain.wire import codec
from arrester.domain.wire.failure_columns import (
    Element,
    Stored,
    expand,
    last,
    size,
)

CHANNEL = "arrester"


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Events, and the id of the batch that they were sent in."""

    id: UUID
    events: Sequence[Element]
    #: The received bytes, if they contain exactly these events and their bodies.
    packed: codec.Packed | None = None


def record_batches(
    stream: LogStream, batches: Iterable[NewBatch], *, received_at: datetime
) -> None:
    """Store the ids of batches that follow the end of the log."""
    first, ids, firsts, counts = stream.sequence + 1, [], [], []
    for batch in batches:
        ids.append(batch.id)
        firsts.append(first)
        counts.append(size(batch.events))
        first += counts[-1]
    if ids:
        with prepared_statements.cursor() as cursor:
            cursor.execute(
                "INSERT INTO batch_seen (application, received_at, batch, first_sequence, count)"
                " SELECT %s, %s, * FROM unnest(%s::uuid[], %s::bigint[], %s::integer[])",
                [stream.application, received_at, ids, firsts, counts],
            )


def append(
    stream: LogStream,
    batches: Iterable[NewBatch],
    *,
    received_at: datetime,
    cursor: str | None = None,
) -> tuple[LogStream, list[Stored]]:
    """Append batches to a locked stream; return it with its new length, and what was stored.

    With events the stream's cursor moves to `cursor`, too.
    """
    layout = lay_out_rows(stream, batches, received_at=received_at)
    if not layout.stored:
        return stream, []
    with copying(layout):
        pass
    return advance_stream(stream, layout, cursor=cursor), layout.stored


def advance_stream(stream: LogStream, layout: Layout, *, cursor: str | None = None) -> LogStream:
    """Update the length of the log, and the cursor of its Redis stream."""
    stream = replace(
        stream,
        sequence=last(layout.stored[-1]),
        received_at=layout.received_at,
        cursor=stream.cursor if cursor is None else cursor,
    )
    with prepared_statements.cursor() as statement:
        statement.execute(
            "UPDATE stream SET sequence = %s, received_at = %s, cursor = %s"
            " WHERE application = %s RETURNING pg_notify(%s, %s)",
            [
                *(stream.sequence, stream.received_at, stream.cursor, stream.application),
                *_notice(stream),
            ],
        )
    return stream


def notify(stream: LogStream) -> None:
    """Notify live pages of the application's new position, when the transaction commits."""
    with prepared_statements.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", _notice(stream))


def _notice(stream: LogStream) -> list[str]:
    return [CHANNEL, f"{stream.application} {stream.sequence}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Events that follow the end of the log, and their rows."""

    stored: list[Stored]
    received_at: datetime
    #: The day of receipt in UTC: the partition key.
    day: date
    #: Rows of `batch` and `event`.
    batches: list[copy_rows.LogRow]
    events: list[copy_rows.LogRow]


def lay_out_rows(
    stream: LogStream, batches: Iterable[NewBatch], *, received_at: datetime
) -> Layout:
    """Return the rows of all batches, ready for COPY."""
    received_at = stream.moment(received_at)
    name, day = stream.application, received_at.astimezone(UTC).date()
    stored: list[Stored] = []
    end = stream.sequence
    event_rows: list[copy_rows.LogRow] = []
    batch_rows: list[copy_rows.LogRow] = []
    for batch in batches:
        if not batch.events:
            continue
        first = end + 1
        some = list(
            with_positions(
                batch.events,
                application=name,
                first=first,
                received_at=received_at,
                batch=batch.id,
            )
        )
        end = last(some[-1])
        packed = batch.packed or codec.pack(list(expand(batch.events)))
        count = end - first + 1
        batch_rows.append(
            copy_rows.of_batch(stream.id, day, received_at, first, count, batch.id, packed)
        )
        event_rows += copy_rows.of_events(stream.id, day, some)
        stored += some
    return Layout(
        stored=stored,
        received_at=received_at,
        day=day,
        batches=batch_rows,
        events=event_rows,
    )


@contextmanager
def copying(layout: Layout) -> Iterator[None]:
    """COPY the rows while the block runs; the block cannot query PostgreSQL."""
    if not layout.stored:
        yield
        return
    if not connection.in_atomic_block:
        raise InterfaceError("events are appended under their stream's lock")
    copy_in("batch", copy_rows.BATCH_COLUMNS, layout.batches)
    with copying_in("event", copy_rows.COLUMNS, layout.events):
        yield


def ensure_partitions(first: date, *, days: int) -> int:
    """Create the partitions of `days` days; return how many were missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_ensure_partitions(%s, %s)", [first, days])
        (count,) = cursor.fetchone()
        return int(count)


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions and bytes that retention dropped."""

    partitions: int
    bytes: int


def bytes_by_day() -> list[tuple[date, int]]:
    """Return the stored size of the events of each day, newest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_date(substring(part.relname from '_(\\d{8})$'), 'YYYYMMDD') AS day,"
            " pg_total_relation_size(part.oid)"
            " FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid"
            " WHERE inhparent = 'event'::regclass AND part.relname ~ '_\\d{8}$' ORDER BY 1 DESC"
        )
        return [(day, int(size)) for day, size in cursor.fetchall()]


def drop_days(before: date, *, batches_before: date) -> Dropped:
    """Drop events before one day and batch ids before another; bases must cover the events."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM arrester_drop_days(%s, %s)", [before, batches_before])
        partitions, size = cursor.fetchone()
    return Dropped(partitions=partitions, bytes=size)
