"""Prepared statements for folds and history pages: planned once per connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg.pq import Format


def cursor() -> CursorWrapper:
    """Return a cursor that prepares repeated statements.

    PostgreSQL binds the values, so parameters of unclear type need a cast. `connection.cursor()`
    writes values into the statement: use it where the plan depends on them.
    """
    connection.ensure_connection()
    assert connection.connection is not None
    return CursorWrapper(psycopg.Cursor(connection.connection), connection)


def rows(
    statement: str, parameters: Sequence[Any] | Mapping[str, Any] = (), *, binary: bool = False
) -> list[tuple[Any, ...]]:
    """Return the rows of a prepared statement; use `binary` for bytes and for many timestamps."""
    with cursor() as prepared:
        prepared.cursor.format = Format.BINARY if binary else Format.TEXT
        prepared.execute(statement, parameters)
        result: list[tuple[Any, ...]] = prepared.fetchall()
        return result


@contextmanager
def pipelined() -> Iterator[None]:
    """Send the statements of the block in a pipeline, without waiting for each result.

    PostgreSQL executes them in order; COPY is not possible. Their rows are available after the
    block. An error is raised at the end of the block at the latest, and skips later statements.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield
