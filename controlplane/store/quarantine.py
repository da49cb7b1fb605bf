"""What was not understood, kept with the reason and its raw bytes until somebody can."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection

from arrester.controlplane.store.column_limits import fit

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
    #: Nothing is wrong with it but its age: it may be in the log already.
    too_old: bool = False
    id: int = 0
    received_at: datetime = NOT_YET
    requeued_at: datetime | None = None
    dismissed_at: datetime | None = None


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which of what waits is meant: what was not understood, unless it says otherwise."""

    #: This one, by its number; then nothing else counts.
    id: int | None = None
    #: These batches, whatever is the matter with them.
    batches: tuple[UUID, ...] = ()
    #: Those that are kept aside only because they are too old.
    old: bool = False


NOT_UNDERSTOOD = Which()
_COLUMNS = KeptAside.__struct_fields__
_WAITS = "requeued_at IS NULL AND dismissed_at IS NULL"
#: What waits for somebody.
_COUNTS = f"{_WAITS} AND NOT too_old"
_MEANT = (
    f"application = %s AND {_WAITS}"
    " AND CASE WHEN %s::bigint IS NOT NULL THEN id = %s WHEN %s::uuid[] = '{}' THEN too_old = %s"
    " ELSE batch = ANY(%s::uuid[]) END"
)


def keep_aside(things: Sequence[KeptAside], *, received_at: datetime) -> None:
    """Keep `things`; what is kept already (read again from Redis) is kept once."""
    with connection.cursor() as cursor:
        for each in things:
            cursor.execute(
                "INSERT INTO quarantine"
                " (application, entry, batch, index, reason, raw, digest, received_at, too_old)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                [
                    *(each.application, each.entry, each.batch, each.index),
                    *(fit(each.reason, 2000), each.raw),
                    *(hashlib.sha256(each.raw).hexdigest(), received_at, each.too_old),
                ],
            )


def read_kept_aside(
    application: str | None, *, waiting: bool, before: int | None, limit: int
) -> list[KeptAside]:
    """Return a page of what was kept aside, newest first; with `waiting` only what counts."""
    counts = f"AND {_COUNTS}" if waiting else ""
    return _select(
        "WHERE (%s::text IS NULL OR application = %s) AND (%s::bigint IS NULL OR id < %s)"
        f" {counts} ORDER BY id DESC LIMIT %s",
        [application, application, before, before, limit],
    )


def one_kept_aside(id: int) -> KeptAside | None:
    """Return one thing that was kept aside; None where there is none of this number."""
    found = _select("WHERE id = %s", [id])
    return found[0] if found else None


def waiting_kept_aside(
    application: str, which: Which, *, after: int, limit: int
) -> list[KeptAside]:
    """Return what waits to be put back, oldest first; ask under the stream's lock."""
    return _select(
        f"WHERE {_MEANT} AND id > %s ORDER BY id LIMIT %s",
        [*_meant(application, which), after, limit],
    )


def dismiss_kept_aside(application: str, which: Which, *, at: datetime) -> int:
    """Note that nobody wants to put things back; return how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE quarantine SET dismissed_at = %s WHERE {_MEANT}",
            [at, *_meant(application, which)],
        )
        return int(cursor.rowcount)


def mark_requeued(ids: Sequence[int], *, at: datetime) -> None:
    """Note that things are in the log now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE quarantine SET requeued_at = %s WHERE id = ANY(%s::bigint[])", [at, list(ids)]
        )


def forget_kept_aside(*, before: datetime) -> None:
    """Forget what was put back or dismissed before a time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM quarantine WHERE coalesce(requeued_at, dismissed_at) < %s", [before]
        )


class Waiting(NamedTuple):
    """How many things wait that were not understood, and how many lately that are too old."""

    not_understood: int = 0
    too_old: int = 0


def count_kept_aside(*, old_since: datetime) -> dict[str, Waiting]:
    """Return how much waits, by application; of what is too old, what has come since a time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, sum(not_understood), sum(too_old) FROM ("
            "SELECT application, count(*) AS not_understood, 0 AS too_old"
            f" FROM quarantine WHERE {_COUNTS} GROUP BY application"
            " UNION ALL SELECT application, 0, count(*)"
            f" FROM quarantine WHERE {_WAITS} AND too_old AND received_at >= %s"
            " GROUP BY application) AS counted GROUP BY application",
            [old_since],
        )
        return {
            application: Waiting(int(not_understood), int(too_old))
            for application, not_understood, too_old in cursor.fetchall()
        }


def _meant(application: str, which: Which) -> list[Any]:
    batches = list(which.batches)
    return [application, which.id, which.id, batches, which.old, batches]


def _select(where: str, parameters: list[Any]) -> list[KeptAside]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(_COLUMNS)} FROM quarantine {where}", parameters)
        return [_kept_aside(dict(zip(_COLUMNS, row, strict=True))) for row in cursor.fetchall()]


def _kept_aside(row: dict[str, Any]) -> KeptAside:
    return KeptAside(**row | {"raw": bytes(row["raw"])})
