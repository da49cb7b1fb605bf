"""What was not understood, kept with the reason and its raw bytes until somebody can."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from django.db import connection

from controlplane.columns import fit

#: Of what is about to be kept.
NOT_YET = datetime.min.replace(tzinfo=UTC)


class KeptAside(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a stream, or one event of its batch; `raw` is packed as `index` says."""

    application: str
    entry: str
    batch: UUID | None
    #: None: the whole entry, `raw` is its fields as a packed map. Else one event as packed.
    index: int | None
    reason: str
    raw: bytes
    id: int = 0
    received_at: datetime = NOT_YET
    requeued_at: datetime | None = None


Row = tuple[str, str, UUID | None, int | None, str, bytes, int, datetime, datetime | None]
_COLUMNS = "application, entry, batch, index, reason, raw, id, received_at, requeued_at"


def keep_aside(things: Sequence[KeptAside], *, received_at: datetime) -> None:
    """Keep `things`; what is kept already (read again from Redis) is kept once."""
    with connection.cursor() as cursor:
        for each in things:
            cursor.execute(
                "INSERT INTO quarantine"
                " (application, entry, batch, index, reason, raw, digest, received_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [
                    *(each.application, each.entry, each.batch, each.index),
                    *(fit(each.reason, 2000), each.raw),
                    *(hashlib.sha256(each.raw).hexdigest(), received_at),
                ],
            )


def read_kept_aside(application: str | None, *, before: int | None, limit: int) -> list[KeptAside]:
    """Return a page of what was kept aside, newest first."""
    return _select(
        "WHERE (%s::text IS NULL OR application = %s) AND (%s::bigint IS NULL OR id < %s)"
        " ORDER BY id DESC LIMIT %s",
        [application, application, before, before, limit],
    )


def waiting_kept_aside(application: str, *, after: int, limit: int) -> list[KeptAside]:
    """Return what waits to be put back, oldest first; ask under the stream's lock."""
    return _select(
        "WHERE application = %s AND requeued_at IS NULL AND id > %s ORDER BY id LIMIT %s",
        [application, after, limit],
    )


def mark_requeued(ids: Sequence[int], *, at: datetime) -> None:
    """Note that things are in the log now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE quarantine SET requeued_at = %s WHERE id = ANY(%s::bigint[])", [at, list(ids)]
        )


def count_kept_aside() -> dict[str, int]:
    """Return how many things wait, by application."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, count(*) FROM quarantine"
            " WHERE requeued_at IS NULL GROUP BY application"
        )
        return dict(cursor.fetchall())


def _select(where: str, parameters: list[str | int | None]) -> list[KeptAside]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM quarantine {where}", parameters)
        return [_kept_aside(row) for row in cursor.fetchall()]


def _kept_aside(row: Row) -> KeptAside:
    application, entry, batch, index, reason, raw, id, received_at, requeued_at = row
    return KeptAside(
        application=application,
        entry=entry,
        batch=batch,
        index=index,
        reason=reason,
        raw=bytes(raw),
        id=id,
        received_at=received_at,
        requeued_at=requeued_at,
    )
