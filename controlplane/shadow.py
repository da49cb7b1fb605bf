"""Rows of views that are made beside the live ones, and the swap that puts them in their place;
snapshots lie there, too, until `store.swap_snapshots`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from django.db import connection
from django.db import models as fields

from controlplane import models, rows
from controlplane.store import SNAPSHOT, Kept
from controlplane.writing import Row, Upsert, column_types, key_columns, upsert


def clear(application: str) -> None:
    """Delete what lies beside the live views of an application."""
    models.ShadowRow.objects.filter(application=application).delete()


def save(application: str, found: Mapping[type[fields.Model], Sequence[Row]]) -> None:
    """Put rows beside the live views, or in the place of those that are there."""
    for model, some in found.items():
        table = model._meta.db_table
        packed: list[Row] = [
            {
                "application": application,
                "view": table,
                "key": msgspec.json.encode(rows.key_of(model, row)).decode(),
                "row": msgspec.json.encode(row).decode(),
            }
            for row in some
        ]
        upsert([Upsert(models.ShadowRow, packed)])


def swap(application: str, views: Sequence[type[fields.Model]]) -> None:
    """Make the live rows those that lie beside them; rows that are equal are not touched."""
    for model in views:
        table = model._meta.db_table
        columns, key = column_types(model), key_columns(model)
        names, keys = ", ".join(columns), ", ".join(key)
        beside = (
            "(SELECT made.* FROM shadow_row AS beside,"
            f" json_populate_record(NULL::{table}, beside.row::json) AS made"
            " WHERE beside.application = %(application)s AND beside.view = %(view)s) AS made"
        )
        live = " AND ".join(f"{table}.{name} = gone.{name}" for name in key)
        sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
        there = ", ".join(f"{table}.{name}" for name in columns)
        wanted = ", ".join(f"excluded.{name}" for name in columns)
        parameters = {"application": application, "view": table}
        with connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {table} USING (SELECT {keys} FROM {table}"
                f" WHERE {rows.owner(model)} = %(application)s"
                f" EXCEPT SELECT {keys} FROM {beside}) AS gone WHERE {live}",
                parameters,
            )
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {beside}"
                f" ON CONFLICT ({keys}) DO UPDATE SET {sets}"
                f" WHERE ({there}) IS DISTINCT FROM ({wanted})",
                parameters,
            )


def save_snapshot(application: str, position: int, kept: Iterable[Kept]) -> None:
    """Put a snapshot, of what has changed since the one before, beside those that there are."""
    packed: list[Row] = [
        {
            "application": application,
            "view": SNAPSHOT,
            "key": msgspec.json.encode([position, each.kind, each.key]).decode(),
            "row": msgspec.json.encode(
                {
                    "application": application,
                    "kind": each.kind,
                    "key": each.key,
                    "position": position,
                    "state": each.state,
                }
            ).decode(),
        }
        for each in kept
    ]
    upsert([Upsert(models.ShadowRow, packed)])
