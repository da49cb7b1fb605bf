"""The bodies of events: how one is read, and how the owner of the database erases one."""

from __future__ import annotations

import logging
from datetime import UTC, date
from typing import NamedTuple

from django.db import connection

from controlplane.domain import wire
from controlplane.domain.errors import MalformedBatch, NotFound
from controlplane.domain.events import Body, StoredEvent

log = logging.getLogger(__name__)


class Packed(NamedTuple):
    """The bodies of the batch that an event came in, and the event's place among them."""

    first: int
    day: date
    bodies: bytes
    place: int


def body_of(stored: StoredEvent) -> Body | None:
    """Return the body of an event, if it has one that can be read."""
    packed = _packed(stored)
    if packed is None:
        return None
    try:
        bodies = wire.decode_bodies(packed.bodies)
    except MalformedBatch:
        # The fold does not look at bodies: a sender whose zlib was broken is found out here.
        log.exception("%s @ %s: the bodies of its batch", stored.application, stored.sequence)
        return None
    # A foreign sender's list of bodies may be short: the rest have none.
    return bodies[packed.place] if packed.place < len(bodies) else None


def erase_body(stored: StoredEvent) -> str:
    """Put a tombstone in the place of an event's body; return the partition that it was in.

    Only the owner of the tables may. Raises NotFound when there is nothing to erase.
    """
    packed = _packed(stored)
    try:
        if packed is None:
            raise MalformedBatch("no event of its batch has a body")
        replacement = wire.without_body(packed.bodies, packed.place)
    except MalformedBatch as exc:
        raise NotFound(f"{stored.application} @ {stored.sequence}: {exc}") from exc
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT arrester_erase_body(%s, %s, %s, %s)",
            [stored.application, packed.first, packed.day, replacement],
        )
        return str(cursor.fetchone()[0])


def vacuum(partition: str) -> None:
    """Give the room of rows that are gone free, outside of any transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {partition}")


def _packed(stored: StoredEvent) -> Packed | None:
    day = stored.received_at.astimezone(UTC).date()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequence, count, packed FROM event_body"
            " WHERE application = %s AND sequence <= %s AND day = %s"
            " ORDER BY sequence DESC LIMIT 1",
            [stored.application, stored.sequence, day],
        )
        row = cursor.fetchone()
    if row is None or stored.sequence >= row[0] + row[1]:
        return None
    return Packed(first=row[0], day=day, bodies=bytes(row[2]), place=stored.sequence - row[0])
