"""Appending to the log: how events are laid out as rows, and how the rows get in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

import msgspec
from django.db import connection
from msgspec.structs import replace

from controlplane import prepared
from controlplane.domain import wire
from controlplane.domain.failed import Stored, Told, each_of, last, size
from controlplane.store import rows
from controlplane.store.batches import placed
from controlplane.store.streams import Stream, copy_in

_BATCH = {
    "stream": "int4",
    "sequence": "int8",
    "day": "date",
    "count": "int4",
    "id": "uuid",
    "received_at": "timestamptz",
    "heads": "bytea",
    "bodies": "bytea",
}
CHANNEL = "arrester"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Events under the id that they were sent under."""

    id: UUID
    events: Sequence[Told]
    #: The bytes that they came in, where those hold just these events and their bodies.
    packed: wire.Packed | None = None


def remember(stream: Stream, batches: Iterable[Batch], *, received_at: datetime) -> None:
    """Note that `batches` follow the end of the log."""
    first, ids, firsts, counts = stream.sequence + 1, [], [], []
    for batch in batches:
        ids.append(batch.id)
        firsts.append(first)
        counts.append(size(batch.events))
        first += counts[-1]
    if ids:
        with prepared.cursor() as cursor:
            cursor.execute(
                "INSERT INTO batch_seen (application, received_at, batch, first_sequence, count)"
                " SELECT %s, %s, * FROM unnest(%s::uuid[], %s::bigint[], %s::integer[])",
                [stream.application, received_at, ids, firsts, counts],
            )


def append(
    stream: Stream, batches: Iterable[Batch], *, received_at: datetime, cursor: str | None = None
) -> tuple[Stream, list[Stored]]:
    """Append batches to a locked stream; return it with its new length, and what was stored.

    With events the stream's cursor moves to `cursor`, too.
    """
    received_at = stream.moment(received_at)
    layout = lay_out(stream, batches, received_at=received_at)
    stored = layout.stored
    if not stored:
        return stream, []
    copy(layout)
    stream = replace(
        stream,
        sequence=last(stored[-1]),
        received_at=received_at,
        cursor=stream.cursor if cursor is None else cursor,
    )
    with prepared.cursor() as statement:
        statement.execute(
            "UPDATE stream SET sequence = %s, received_at = %s, cursor = %s"
            " WHERE application = %s RETURNING pg_notify(%s, %s)",
            [stream.sequence, received_at, stream.cursor, stream.application, *_notice(stream)],
        )
    return stream, stored


def notify(stream: Stream) -> None:
    """Let live pages know, once the transaction is committed, that the application has moved."""
    with prepared.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", _notice(stream))


def _notice(stream: Stream) -> list[str]:
    return [CHANNEL, f"{stream.application} {stream.sequence}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Events as they follow the end of the log, and what they become in the tables."""

    stored: list[Stored]
    #: Rows of `event`, as COPY has them in binary.
    events: bytes
    batches: list[tuple[object, ...]]


def lay_out(stream: Stream, batches: Iterable[Batch], *, received_at: datetime) -> Layout:
    """Return what `copy` puts into the tables."""
    name, day = stream.application, received_at.astimezone(UTC).date()
    stored: list[Stored] = []
    end = stream.sequence
    found: list[bytes] = []
    kept: list[tuple[object, ...]] = []
    for batch in batches:
        if not batch.events:
            continue
        first = end + 1
        some = list(
            placed(
                batch.events,
                application=name,
                first=first,
                received_at=received_at,
                batch=batch.id,
            )
        )
        end = last(some[-1])
        packed = batch.packed or wire.pack(list(each_of(batch.events)))
        count = end - first + 1
        kept.append((stream.id, first, day, count, batch.id, received_at, *packed))
        found += rows.packed(stream.id, day, some)
        stored += some
    return Layout(stored=stored, events=rows.BEGIN + b"".join(found) + rows.END, batches=kept)


def copy(layout: Layout) -> None:
    """Copy rows into their tables."""
    statement = f"COPY event ({', '.join(rows.COLUMNS)}) FROM STDIN (FORMAT BINARY)"
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(statement) as into,
    ):
        into.write(layout.events)
    copy_in("batch", _BATCH, layout.batches)


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
