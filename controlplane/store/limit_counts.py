"""How often limits dropped or refused something of an application."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from django.db import connection


class Limit(StrEnum):
    """A limit of what the server stores of an application."""

    #: Quarantined entries that were dropped for newer ones, or by retention.
    QUARANTINE = "QUARANTINE"
    #: How often agents were requested to report counts only, since a quota was exceeded.
    QUOTA = "QUOTA"
    #: Deleted heartbeats that never expire or are too large.
    HEARTBEAT = "HEARTBEAT"
    #: Closed connections of agents to Redis.
    CONNECTIONS = "CONNECTIONS"


def count_reached(application: str, limit: Limit, *, count: int, at: datetime) -> None:
    """Add to the number of things that a limit dropped or refused."""
    with connection.cursor() as cursor:
        cursor.execute(
            'INSERT INTO limit_reached AS known (application, "limit", count, first_at, last_at)'
            ' VALUES (%s, %s, %s, %s, %s) ON CONFLICT (application, "limit") DO UPDATE'
            " SET count = known.count + excluded.count, last_at = excluded.last_at",
            [application, limit.value, count, at, at],
        )
