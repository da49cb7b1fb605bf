"""The requests that acts came with: an id is repeated with the same request only."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import connection

from arrester.controlplane import access
from arrester.controlplane.models import ActRequest
from arrester.domain.errors import IdReused

_KEEP = """
    INSERT INTO act_request (id, digest, received_at) VALUES (%s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id RETURNING digest, xmax = 0
"""


def check_request(id: UUID, digest: bytes, *, name: str, value: str, now: datetime) -> bool:
    """Keep the digest of a request; raise IdReused if the id came with another one.

    Return whether it is the first one with this id.

    Args:
        name: the parameter that has the id, for the error, with its value.
    """
    with access.lifted(), connection.cursor() as cursor:
        cursor.execute(_KEEP, [id, digest, now])
        [(kept, is_first)] = cursor.fetchall()
    if bytes(kept) != digest:
        raise IdReused(name, value, "a new one: another request had it")
    return bool(is_first)


def forget_request(id: UUID) -> None:
    """Delete a request that had no effect: a corrected one may have its id."""
    with access.lifted():
        ActRequest.objects.filter(id=id).delete()


def forget_requests(*, before: datetime) -> None:
    """Delete the requests that were received before a time."""
    ActRequest.objects.filter(received_at__lt=before).delete()
