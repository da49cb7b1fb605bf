"""Read, order and delete the rows of any table of the views."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.db import models as fields
from psycopg.pq import Format

from arrester.controlplane import models
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.views.bulk_upsert import Row, column_types, key_columns

#: Rows of a result that are made at once.
ROWS_AT_ONCE = 1_000


def live_rows(model: type[fields.Model], application: str) -> list[Row]:
    """Return all rows of an application in the order of their key."""
    return in_order(model, list(each_live_row(model, application)))


def each_live_row(model: type[fields.Model], application: str, *, after: int = 0) -> Iterator[Row]:
    """Yield the rows of an application; with a position only those changed later."""
    types = column_types(model)
    later = " AND sequence > %s" if after else ""
    with prepared_statements.cursor() as cursor:
        # In binary: Python parses a time that comes as text.
        cursor.cursor.format = Format.BINARY
        cursor.execute(
            f"SELECT {', '.join(types)} FROM {model._meta.db_table}"
            f" WHERE {owner(model)} = %s{later}",
            [application, after] if after else [application],
        )
        while some := cursor.fetchmany(ROWS_AT_ONCE):
            for values in some:
                yield dict(zip(types, values, strict=True))


def in_order(model: type[fields.Model], rows: list[Row]) -> list[Row]:
    """Return `rows` in the order of their key."""
    return sorted(rows, key=lambda row: key_of(model, row))


def key_of(model: type[fields.Model], row: Row) -> tuple[str, ...]:
    """Return the key of `row` as texts, which sort and compare."""
    return tuple(str(row[name]) for name in key_columns(model))


def delete(model: type[fields.Model], application: str) -> None:
    """Delete all rows of an application."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {model._meta.db_table} WHERE {owner(model)} = %s", [application]
        )


def delete_empty(model: type[fields.Model], application: str) -> None:
    """Delete the rows of an application that count nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {model._meta.db_table} WHERE {owner(model)} = %s AND count <= 0",
            [application],
        )


def owner(model: type[fields.Model]) -> str:
    """Return the column that names the application."""
    return "name" if model is models.Application else "application"
