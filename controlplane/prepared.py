"""Cursors for what each fold asks: PostgreSQL plans such a statement once for a connection."""

from __future__ import annotations

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper


def cursor() -> CursorWrapper:
    """Return a cursor whose statements are prepared when they come again and again.

    Its values are bound by PostgreSQL: it has to know their types, by a cast where nothing else
    says them. All else is as `connection.cursor()`, which writes them into the statement.
    """
    connection.ensure_connection()
    assert connection.connection is not None
    return CursorWrapper(psycopg.Cursor(connection.connection), connection)
