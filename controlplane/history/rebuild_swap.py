"""Rows of a rebuild that differ from the live ones: stored beside those until the swap replaces
them. Equal rows are not stored twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from django.db import connection
from django.db import models as fields

from arrester.controlplane import models
from arrester.controlplane.store import StoredState, copy_in
from arrester.controlplane.views import row_mapping
from arrester.controlplane.views.bulk_upsert import Row, Upsert, column_types, key_columns, upsert

SNAPSHOT = "snapshot"
#: Prefix of the table's name for rows to delete.
_GONE = "-"
_COLUMNS = {"application": "text", "view": "text", "key": "text", "row": "text"}
Rows = Mapping[type[fields.Model], Sequence[Row]]


def clear(application: str) -> None:
    """Delete the stored rows of an application."""
    models.ShadowRow.objects.filter(application=application).delete()


def save(application: str, wanted: Rows, *, deleted: Rows) -> None:
    """Store rows beside the live views, or replace stored ones; and rows to delete."""
    packed = [*_packed(application, wanted), *_packed(application, deleted, kind=_GONE)]
    upsert([Upsert(models.ShadowRow, packed)])


def _packed(application: str, rows: Rows, *, kind: str = "") -> Iterator[Row]:
    for model, model_rows in rows.items():
        for row in model_rows:
            yield {
                "application": application,
                "view": f"{kind}{model._meta.db_table}",
                "key": msgspec.json.encode(row_mapping.key_of(model, row)).decode(),
                "row": msgspec.json.encode(row).decode(),
            }


def swap(application: str, views: Iterable[type[fields.Model]]) -> None:
    """Replace the live rows by the stored ones; equal rows are not touched."""
    for model in views:
        table = model._meta.db_table
        columns, key = column_types(model), key_columns(model)
        names, keys = ", ".join(columns), ", ".join(key)
        stored = (
            "(SELECT made.* FROM shadow_row AS beside,"
            f" json_populate_record(NULL::{table}, beside.row::json) AS made"
            " WHERE beside.application = %(application)s AND beside.view = %(view)s)"
        )
        live = " AND ".join(f"{table}.{name} = gone.{name}" for name in key)
        sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
        there = ", ".join(f"{table}.{name}" for name in columns)
        wanted = ", ".join(f"excluded.{name}" for name in columns)
        with connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {table} USING {stored} AS gone WHERE {live}",
                {"application": application, "view": _GONE + table},
            )
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM {stored} AS made"
                f" ON CONFLICT ({keys}) DO UPDATE SET {sets}"
                f" WHERE ({there}) IS DISTINCT FROM ({wanted})",
                {"application": application, "view": table},
            )


def save_snapshot(
    application: str,
    position: int,
    wanted: Iterable[StoredState],
    *,
    deleted: Iterable[StoredState],
) -> None:
    """Store states beside those of a snapshot, and states to delete."""

    def packed() -> Iterator[tuple[str, str, str, str]]:
        for view, some in ((SNAPSHOT, wanted), (_GONE + SNAPSHOT, deleted)):
            for each in some:
                key = msgspec.json.encode((position, each.kind, each.key)).decode()
                yield application, view, key, each.state

    copy_in("shadow_row", _COLUMNS, packed())


def swap_snapshots(application: str) -> None:
    """Replace the snapshots' states by the stored ones."""
    stored = (
        "(SELECT (key::json ->> 0)::bigint AS position, key::json ->> 1 AS kind,"
        " key::json ->> 2 AS key, row AS state FROM shadow_row"
        " WHERE application = %(application)s AND view = ANY(%(views)s))"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM snapshot USING {stored} AS other WHERE"
            " snapshot.application = %(application)s AND snapshot.kind = other.kind"
            " AND snapshot.key = other.key AND snapshot.position = other.position",
            {"application": application, "views": [SNAPSHOT, _GONE + SNAPSHOT]},
        )
        cursor.execute(
            "INSERT INTO snapshot (application, kind, key, position, state)"
            f" SELECT %(application)s, kind, key, position, state FROM {stored} AS made",
            {"application": application, "views": [SNAPSHOT]},
        )
