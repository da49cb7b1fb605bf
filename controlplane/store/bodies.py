"""The bodies of events: how one is read, and how the owner of the database erases one."""

from __future__ import annotations

import logging
from datetime import UTC, date
from typing import NamedTuple

from django.db import connection

from arrester.controlplane.domain.errors import MalformedBatch, NotFound
from arrester.controlplane.domain.events import Body, StoredEvent
from arrester.controlplane.domain.wire import codec

log = logging.getLogger(__name__)


class _BatchBodies(NamedTuple):
    """The bodies of the batch that an event came in, and the event's place among them."""

    stream: int
    first: int
    day: date
    bodies: bytes
    place: int


def body_of(stored: StoredEvent) -> Body | None:
    """Return the body of an event, if it has one that can be read."""
    found = _batch_bodies(stored)
    if found is None:
        return None
    try:
        return codec.decode_body(found.bodies, found.place)
    except MalformedBatch:
        # The fold does not look at bodies: a sender whose zlib was broken is found out here.
        log.exception("%s @ %s: the bodies of its batch", stored.application, stored.sequence)
        return None


def erase_body(stored: StoredEvent) -> str:
    """Put a tombstone in the place of an event's body; return the partition that it was in.

    Only the owner of the tables may. Raises NotFound when there is nothing to erase.
    """
    found = _batch_bodies(stored)
    try:
        if found is None:
            raise MalformedBatch("no event of its batch has a body")
        replacement = codec.without_body(found.bodies, found.place)
    except MalformedBatch as exc:
        raise NotFound(f"{stored.application} @ {stored.sequence}: {exc}") from exc
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT arrester_erase_body(%s, %s, %s, %s)",
            [found.stream, found.first, found.day, replacement],
        )
        return str(cursor.fetchone()[0])


def vacuum(partition: str) -> None:
    """Give the room of rows that are gone free, outside of any transaction."""
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
