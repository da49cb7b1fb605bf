"""The views of confined people: one for each table, with its columns, and nothing of others."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection

from arrester.controlplane import access
from arrester.controlplane.access import confined_views
from arrester.controlplane.access.roles import Role

_COLUMNS = """
SELECT relname, array_agg(attname || ' ' || format_type(atttypid, atttypmod) ORDER BY attnum)
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p', 'v') AND NOT relispartition
    AND attnum > 0 AND NOT attisdropped
GROUP BY relname
"""


def columns(schema: str) -> dict[str, list[str]]:
    """Return the columns of the tables and views of a schema, with their types."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [schema])
        return dict(cursor.fetchall())


@pytest.mark.django_db
def test_each_table_has_a_view_or_is_known_to_need_none() -> None:
    tables, views = columns("public"), columns(access.SCHEMA)
    decided = {*confined_views.ROWS, *confined_views.SHARED, *confined_views.NEVER}
    # A new table: decide in `confined_views` which of its rows a confined person sees.
    assert tables.keys() == decided
    assert views == {name: tables[name] for name in decided - {*confined_views.NEVER}}


@pytest.mark.django_db
def test_a_repeated_migrate_does_not_touch_the_views() -> None:
    # The role of the application may not: each statement would be refused.
    confined_views.create(using="default")


@pytest.mark.django_db
def test_tables_with_data_of_applications_are_not_shared() -> None:
    shared = {name: columns("public")[name] for name in confined_views.SHARED}
    names = [
        name
        for name, found in shared.items()
        if any(each.split()[0] in ("application", "stream") for each in found)
    ]
    assert names == []


@pytest.mark.django_db
def test_a_table_without_a_view_does_not_exist_for_a_confined_person() -> None:
    access.enter(access.Person(name="ana", role=None, roles={"apple": Role.VIEWER}))
    try:
        with connection.cursor() as cursor, pytest.raises(ProgrammingError, match="not exist"):
            cursor.execute("SELECT * FROM shadow_row")
    finally:
        connection.needs_rollback = True
        access.leave()
