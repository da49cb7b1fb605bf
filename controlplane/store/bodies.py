"""Bodies of events: read one, and erase one as the owner of the database."""

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
    """The bodies of an event's batch, and the event's index in it."""

    stream: int
    first: int
    day: date
    bodies: bytes
    place: int


def body_of(stored: StoredEvent) -> Body | None:
    """Return the body of an event; None if it has none or it is unreadable."""
    found = _batch_bodies(stored)
    if found is None:
        return None
    try:
        return codec.decode_body(found.bodies, found.place)
    except MalformedBatch:
        # The fold does not decode bodies, so broken compression is detected here.
        log.exception("%s @ %s: the bodies of its batch", stored.application, stored.sequence)
        return None


def erase_body(stored: StoredEvent) -> str:
    """Replace an event's body with a tombstone; return its partition.

    Requires the owner's role. Raises NotFound if there is no body.
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
