"""Quarantine: invalid entries with the reason and the raw bytes, until they are put back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection
from msgspec import Meta

from arrester.controlplane.store.column_values import fit
from arrester.controlplane.store.limit_counts import Limit, count_reached
from arrester.domain.errors import NotFound

#: The most bytes of an entry that are stored, and the most entries of an application with the most
#: bytes of them together. For newer ones the oldest are dropped. Batches of agents are smaller.
ENTRY_BYTES, ENTRIES, BYTES = 2**20, 10_000, 100 * 2**20
PAGE_BYTES = 8 * 2**20
#: The time of an entry that is not stored yet.
NOT_YET = datetime.min.replace(tzinfo=UTC)


class QuarantinedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a stream, or one event of its batch; `index` determines how `raw` is packed."""

    application: str
    entry: Annotated[str, Meta(description="The id of the entry in Redis.")]
    batch: UUID | None
    #: The place of the event that `raw` is; None: `raw` is a map of the entry's fields.
    index: Annotated[
        int | None, Meta(description="The index of the event in the batch; null: the entire entry.")
    ]
    reason: str
    raw: bytes
    cut_from: Annotated[
        int | None,
        Meta(description="The bytes of an entry of which only the first ones are stored."),
    ] = None
    too_old: Annotated[
        bool,
        Meta(description="Valid, but older than the replay horizon: the log may have it already."),
    ] = False
    id: int = 0
    received_at: datetime = NOT_YET
    requeued_at: datetime | None = None
    dismissed_at: datetime | None = None


class EntrySelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the waiting entries to select: invalid ones by default."""

    #: This entry; the other fields are ignored.
    id: int | None = None
    #: Entries of these batches, for all reasons.
    batches: tuple[UUID, ...] = ()
    #: Whether only entries that are too old are put back.
    old: bool = False


INVALID_ENTRIES = EntrySelection()
_COLUMNS = QuarantinedEntry.__struct_fields__
_WAITING = "requeued_at IS NULL AND dismissed_at IS NULL"
#: Entries that need an operator.
_NEEDS_OPERATOR = f"{_WAITING} AND NOT too_old"
_SELECTED = (
    f"application = %s AND {_WAITING}"
    " AND CASE WHEN %s::bigint IS NOT NULL THEN id = %s WHEN %s::uuid[] = '{}' THEN too_old = %s"
    " ELSE batch = ANY(%s::uuid[]) END"
)


def add_to_quarantine(things: Sequence[QuarantinedEntry], *, received_at: datetime) -> None:
    """Store entries; an entry that Redis delivers again is stored once.

    Entries beyond the limits of an application are dropped and counted: first those that were
    handled, then the oldest.
    """
    with connection.cursor() as cursor:
        for each in things:
            raw = each.raw[:ENTRY_BYTES]
            size = each.cut_from or (len(each.raw) if len(each.raw) > ENTRY_BYTES else None)
            cursor.execute(
                "INSERT INTO quarantine (application, entry, batch, index, reason, raw, cut_from,"
                " digest, received_at, too_old) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [
                    *(each.application, each.entry, each.batch, each.index),
                    *(fit(each.reason, 2000), raw, size),
                    *(hashlib.sha256(raw).hexdigest(), received_at, each.too_old),
                ],
            )
    for application in {each.application for each in things}:
        _drop_beyond_limits(application, at=received_at)


def _drop_beyond_limits(application: str, *, at: datetime) -> None:
    _drop(
        "id IN (SELECT id FROM (SELECT id, row_number() OVER newest AS number,"
        " sum(octet_length(raw)) OVER newest AS bytes FROM quarantine WHERE application = %s"
        f" WINDOW newest AS (ORDER BY ({_WAITING}) DESC, id DESC)) AS each"
        " WHERE number > %s OR bytes > %s)",
        [application, ENTRIES, BYTES],
        at=at,
    )


def _drop(where: str, parameters: Sequence[Any], *, at: datetime) -> None:
    """Delete entries, and count those that still waited."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH dropped AS (DELETE FROM quarantine WHERE {where} RETURNING *)"
            f" SELECT application, count(*) FROM dropped WHERE {_WAITING} GROUP BY 1",
            parameters,
        )
        rows = cursor.fetchall()
    for application, count in rows:
        count_reached(application, Limit.QUARANTINE, count=count, at=at)


def read_quarantine(
    application: str | None, *, waiting: bool, before: int | None, limit: int
) -> list[QuarantinedEntry]:
    """Return a page of entries, newest first; with `waiting` only those that need an operator.

    It ends when they have PAGE_BYTES.
    """
    counts = f"AND {_NEEDS_OPERATOR}" if waiting else ""
    return _select(
        "WHERE id IN (SELECT id FROM (SELECT id, sum(octet_length(raw)) OVER (ORDER BY id DESC)"
        " - octet_length(raw) AS before FROM (SELECT id, raw FROM quarantine"
        " WHERE (%s::text IS NULL OR application = %s) AND (%s::bigint IS NULL OR id < %s)"
        f" {counts} ORDER BY id DESC LIMIT %s) AS newest) AS sized WHERE before < %s)"
        " ORDER BY id DESC",
        [application, application, before, before, limit, PAGE_BYTES],
    )


def quarantined_batches(application: str, batches: Collection[UUID]) -> set[tuple[UUID, bytes]]:
    """Return which of `batches` were quarantined as a whole: their ids and packed events."""
    if not batches:
        return set()
    entries = _select(
        "WHERE application = %s AND batch = ANY(%s::uuid[]) AND index IS NULL AND cut_from IS NULL",
        [application, list(batches)],
    )
    fields = ((each.batch, msgspec.msgpack.decode(each.raw)) for each in entries)
    return {(batch, entry.get(b"events", b"")) for batch, entry in fields if batch is not None}


def read_quarantined_entry(id: int) -> QuarantinedEntry:
    """Return an entry by its id; raise NotFound."""
    for entry in _select("WHERE id = %s", [id]):
        return entry
    raise NotFound(f"there is no quarantined entry {id}")


def read_waiting_entries(
    application: str, which: EntrySelection, *, after: int, limit: int
) -> list[QuarantinedEntry]:
    """Return the entries to put back, oldest first; call it under the stream's lock.

    Of those that were cut too little is stored.
    """
    return _select(
        f"WHERE {_SELECTED} AND cut_from IS NULL AND id > %s ORDER BY id LIMIT %s",
        [*_selected(application, which), after, limit],
    )


def dismiss_entries(application: str, which: EntrySelection, *, at: datetime) -> int:
    """Mark entries as dismissed; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE quarantine SET dismissed_at = %s WHERE {_SELECTED}",
            [at, *_selected(application, which)],
        )
        return int(cursor.rowcount)


def mark_requeued(ids: Sequence[int], *, at: datetime) -> None:
    """Mark entries as put back into the log."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE quarantine SET requeued_at = %s WHERE id = ANY(%s::bigint[])", [at, list(ids)]
        )


def delete_old_entries(*, before: datetime, at: datetime) -> None:
    """Delete entries that were received, put back or dismissed before a time."""
    _drop("coalesce(requeued_at, dismissed_at, received_at) < %s", [before], at=at)


class WaitingEntries(NamedTuple):
    """How many invalid entries wait, and how many recent ones are too old."""

    invalid: int = 0
    too_old: int = 0


def count_waiting_entries(*, old_since: datetime) -> dict[str, WaitingEntries]:
    """Return the waiting entries by application; too old ones only since a time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, sum(invalid), sum(too_old) FROM ("
            "SELECT application, count(*) AS invalid, 0 AS too_old"
            f" FROM quarantine WHERE {_NEEDS_OPERATOR} GROUP BY application"
            " UNION ALL SELECT application, 0, count(*)"
            f" FROM quarantine WHERE {_WAITING} AND too_old AND received_at >= %s"
            " GROUP BY application) AS counted GROUP BY application",
            [old_since],
        )
        return {
            application: WaitingEntries(int(invalid), int(too_old))
            for application, invalid, too_old in cursor.fetchall()
        }


def _selected(application: str, which: EntrySelection) -> list[Any]:
    batches = list(which.batches)
    return [application, which.id, which.id, batches, which.old, batches]


def _select(where: str, parameters: list[Any]) -> list[QuarantinedEntry]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(_COLUMNS)} FROM quarantine {where}", parameters)
        return [_entry(dict(zip(_COLUMNS, row, strict=True))) for row in cursor.fetchall()]


def _entry(row: dict[str, Any]) -> QuarantinedEntry:
    return QuarantinedEntry(**row | {"raw": bytes(row["raw"])})
