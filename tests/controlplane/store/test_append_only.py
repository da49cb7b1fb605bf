"""The log is append-only for every role, and each day has a partition."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import LiteralString

import psycopg
import pytest
from django.db import connection
from psycopg import sql
from redis import Redis

from arrester.controlplane import embedded, store, tasks
from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import Body, RecordsHeld
from arrester.domain.wire.failure_columns import expand_stored
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION

LOG = ["event", "batch", "batch_seen"]
CHANGES: dict[str, LiteralString] = {
    "update": "UPDATE {} SET count = 0",
    "delete": "DELETE FROM {}",
    "truncate": "TRUNCATE {}",
}


@pytest.fixture(params=["owner", "application"])
def role(
    request: pytest.FixtureRequest, fresh_database: embedded.Urls, redis: Redis
) -> Iterator[psycopg.Connection]:
    """Return a connection of a role to a database with events in its log."""
    streams.send(redis, [histories.failed(1)])
    fold_stream.fold_stream(APPLICATION)
    urls = {"owner": fresh_database.migrate_database, "application": fresh_database.database}
    with psycopg.connect(urls[request.param], autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("table", LOG)
@pytest.mark.parametrize("statement", CHANGES, ids=CHANGES)
def test_the_log_cannot_be_changed(role: psycopg.Connection, table: str, statement: str) -> None:
    change = sql.SQL(CHANGES[statement]).format(sql.Identifier(table))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute(change)


@pytest.mark.parametrize("statement", CHANGES, ids=CHANGES)
def test_a_partition_cannot_be_changed(role: psycopg.Connection, statement: str) -> None:
    found = role.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relkind = 'r'"
    )
    tables = [name for (name,) in found.fetchall()]
    assert {"event_default", "batch_default", "batch_seen_default"} < set(tables)
    for name in tables:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.execute(sql.SQL(CHANGES[statement]).format(sql.Identifier(name)))


@pytest.mark.usefixtures("fresh_database")
def test_the_application_role_reads_migrations_and_changes_none() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations")
        with pytest.raises(Exception, match="permission denied"):
            cursor.execute("DELETE FROM django_migrations")


def days(table: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass",
            [table],
        )
        return {name.removeprefix(f"{table}_") for (name,) in cursor.fetchall()}


@pytest.mark.usefixtures("fresh_database")
def test_housekeeping_creates_missing_partitions_once() -> None:
    first = date(2031, 12, 30)
    assert store.ensure_partitions(first, days=3) == 9
    assert store.ensure_partitions(first, days=3) == 0
    for table in LOG:
        assert {"20311230", "20311231", "20320101"} < days(table)
    tasks.housekeeping()
    today = datetime.now(UTC).date()
    ahead = {f"{today + timedelta(days=number):%Y%m%d}" for number in range(tasks.DAYS_AHEAD)}
    assert ahead < days("event")


@pytest.mark.usefixtures("fresh_database")
def test_events_of_a_day_without_a_partition_are_stored() -> None:
    store.open_stream(APPLICATION)
    far = datetime(2040, 1, 1, tzinfo=UTC)
    with streams.locked(APPLICATION) as stream:
        batch = store.NewBatch(id=streams.SPOOL, events=[histories.failed(1)])
        _, stored = store.append(stream, [batch], received_at=far)
    assert streams.log() == [streams.without_body(each) for each in expand_stored(stored)]
    # Its partition could not be attached beside it, and that is no error.
    assert store.ensure_partitions(far.date(), days=2) == 4
    assert "20400101" not in days("event")


@pytest.mark.usefixtures("fresh_database")
def test_a_row_describes_its_batch() -> None:
    now = datetime.now(UTC)
    events = [
        histories.event(
            RecordsHeld(task=secrets.token_hex(24), held=1),
            body=Body(stack=secrets.token_hex(200)),
        )
        for _ in range(120)
    ]
    for received_at in (now, now + timedelta(days=2), datetime(2040, 1, 1, tzinfo=UTC)):
        streams.append(events, received_at=received_at)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT octet_length(heads) > 2100, pg_column_toast_chunk_id(heads) IS NULL,"
            " pg_column_toast_chunk_id(bodies) IS NULL FROM batch"
        )
        assert cursor.fetchall() == [(True, True, False)] * 3
