"""Statements that come again and again, as folds and pages of history send them: planned once for a
connection, and not one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg.pq import Format


def cursor() -> CursorWrapper:
    """Return a cursor whose statements are prepared when they come again and again.

    Its values are bound by PostgreSQL: it has to know their types, by a cast where nothing else
    says them. All else is as `connection.cursor()`, which writes them into the statement: for what
    is planned best with its values.
    """
    connection.ensure_connection()
    assert connection.connection is not None
    return CursorWrapper(psycopg.Cursor(connection.connection), connection)


def rows(
    statement: str, parameters: Sequence[Any] | Mapping[str, Any] = (), *, binary: bool = False
) -> list[tuple[Any, ...]]:
    """Return the rows of such a statement; `binary` where they have bytes, of which each would be
    two as text, or many times, which Python would read."""
    with cursor() as asked:
        asked.cursor.format = Format.BINARY if binary else Format.TEXT
        asked.execute(statement, parameters)
        found: list[tuple[Any, ...]] = asked.fetchall()
        return found


@contextmanager
def together() -> Iterator[None]:
    """Send the statements of the block without waiting for their answers: while PostgreSQL works at
    one, we make the next.

    They are carried out in their order, each as if it came alone; COPY cannot be among them. Their
    rows are there behind the block. What PostgreSQL refuses is raised by the end of the block, if
    not by a statement before; none of those behind it are carried out.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
