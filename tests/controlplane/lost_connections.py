"""Connections of killed processes: PostgreSQL closes them and frees their locks a moment later."""

from __future__ import annotations

from django.db import connection, connections

from tests.patience import wait_until

_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


def wait_until_closed() -> None:
    """Wait until no other process has a connection to the test database."""
    connections.close_all()
    wait_until(_alone, what="PostgreSQL to close the connections of killed processes")


def _alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS)
        return bool(cursor.fetchone() == (0,))
