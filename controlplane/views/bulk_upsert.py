"""Write rows of views: those of several tables in one statement, since in a small fold a
statement costs as much as many rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.db import connection
from django.db import models as fields

from arrester.controlplane.store import prepared_statements

ROWS_PER_STATEMENT = 5000
Value = str | int | bool | UUID | date | list[str] | dict[str, int] | None
Row = dict[str, Value]


class Upsert(NamedTuple):
    """Rows to insert; an existing row with the key is changed."""

    model: type[fields.Model]
    rows: Sequence[Row]
    #: The new value of each column, as SQL; None: the whole row is replaced.
    changes: Mapping[str, str] | None = None


def upsert(upserts: Iterable[Upsert]) -> None:
    """Insert rows, or change existing ones: in one statement, unless there are many."""
    wanted = [each for each in upserts if each.rows]
    if sum(len(each.rows) for each in wanted) <= ROWS_PER_STATEMENT:
        _execute(wanted)
        return
    for each in wanted:
        for begin in range(0, len(each.rows), ROWS_PER_STATEMENT):
            _execute([each._replace(rows=each.rows[begin : begin + ROWS_PER_STATEMENT])])


@cache
def column_types(model: type[fields.Model]) -> dict[str, str]:
    """Return the columns of a table with their types, without those that PostgreSQL fills."""
    stored_fields = (field for field in model._meta.concrete_fields if not field.generated)
    types = {field.column: field.db_type(connection) for field in stored_fields}
    return {name: type for name, type in types.items() if name and type}


@cache
def key_columns(model: type[fields.Model]) -> list[str]:
    """Return the columns of a table's key."""
    return [field.column for field in model._meta.pk_fields if field.column]


def _execute(upserts: Sequence[Upsert]) -> None:
    if not upserts:
        return
    *others, last = (_statement(each.model, _sets(each)) for each in upserts)
    others_sql = ", ".join(f"upsert_{number} AS ({each})" for number, each in enumerate(others))
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            f"WITH {others_sql} {last}" if others_sql else last,
            [msgspec.json.encode(each.rows).decode() for each in upserts],
        )


def _sets(upsert: Upsert) -> str:
    if upsert.changes is None:
        return _all_of(upsert.model)
    return ", ".join(f"{name} = {to}" for name, to in upsert.changes.items())


@cache
def _all_of(model: type[fields.Model]) -> str:
    key = key_columns(model)
    return ", ".join(f"{name} = excluded.{name}" for name in column_types(model) if name not in key)


@cache
def _statement(model: type[fields.Model], sets: str) -> str:
    table, columns = model._meta.db_table, ", ".join(column_types(model))
    # As one JSON text: Python would quote an array per column value by value.
    return (
        f"INSERT INTO {table} ({columns})"
        f" SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s)"
        f" ON CONFLICT ({', '.join(key_columns(model))}) DO UPDATE SET {sets}"
    )
