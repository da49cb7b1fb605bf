"""A log of before batches held the events: all of it is there afterwards, and the views stand."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import psycopg
import pytest
from django.db import connection, connections
from msgspec.structs import replace
from psycopg import sql
from redis import Redis

from arrester.controlplane import actions, embedded, models, store
from arrester.controlplane.domain.events import (
    FAILED,
    Event,
    Failure,
    RecordFailed,
    Response,
    StoredEvent,
)
from arrester.controlplane.history import rebuild
from arrester.controlplane.ingest import drain
from arrester.controlplane.queries import FailureFilter, failures
from arrester.controlplane.store import copy_rows
from arrester.controlplane.store.column_limits import ANY
from tests import histories, services
from tests.histories import APPLICATION, FAILURE, JFK
from tests.server import streams

#: What there was beside the log.
VIEWS = (
    *("stream", "batch_seen", "application", "instance", "thread", "task", "command"),
    *("error_group", "minute_count", "hour_count"),
)
#: What `event` was, in the order of `old_row`.
OLD = (
    *("application", "sequence", "day", "received_at", "occurred_at", "type", "schema_version"),
    *("batch", "instance", "pipeline", "checkpoint", "epoch", "caused_by", "task", "stage"),
    *("exception_class", "fingerprint", "count", "command", "actor", "data"),
)


OTHERS = '"other_classes":[],'
#: Of one of Spark's conditions, which may come in exceptions of several classes.
CAST = replace(
    FAILURE,
    condition="CAST_INVALID_INPUT",
    exception_class="NumberFormat",
    fingerprint="1-cast",
)


def told(failure: Failure) -> Event:
    data = RecordFailed(task="EWR", position=10, failure=failure, response=Response.CONTINUE)
    return histories.event(data)


def old_row(stored: StoredEvent) -> tuple[object, ...]:
    event, run, data = stored.event, stored.event.run, stored.event.data
    failure, task = getattr(data, "failure", None), copy_rows.task_of(stored)
    return (
        *(stored.application, stored.sequence, stored.received_at.date(), stored.received_at),
        *(event.occurred_at, event.type, event.schema_version, stored.batch, event.instance),
        *((None, None, None) if run is None else (run.pipeline, run.checkpoint, run.epoch)),
        *(event.caused_by, None if task is None else UUID(task)),
        *((None, None) if failure is None else (failure.stage, failure.exception_class)),
        copy_rows.fingerprint_of(event),
        data.count if isinstance(data, FAILED) else None,
        *(getattr(data, "command", None), copy_rows.actor_of(event)),
        msgspec.msgpack.encode(data),
    )


def migrate(urls: embedded.Urls, *words: str) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0", *words],
        cwd=services.REPOSITORY,
        env=os.environ | {"DATABASE_URL": urls.migrate_database},
        check=True,
    )


def views(urls: embedded.Urls) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of the views, without the columns that are new."""
    with psycopg.connect(urls.migrate_database) as owner:
        return {
            table: owner.execute(
                sql.SQL("SELECT {} FROM {}").format(_columns(owner, table), sql.Identifier(table))
            ).fetchall()
            for table in VIEWS
        }


def _columns(owner: psycopg.Connection, table: str) -> sql.Composed:
    found = owner.execute(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position",
        [table],
    )
    return sql.SQL(", ").join(sql.Identifier(name) for (name,) in found if name != "other_classes")


def insert(owner: psycopg.Connection, table: str, some: Sequence[Sequence[object]]) -> None:
    for row in some:
        values = sql.SQL(", ").join(sql.Placeholder() * len(row))
        into = sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(table), values)
        owner.execute(into, row)


@pytest.fixture
def old_log(redis: Redis, fresh_database: embedded.Urls) -> list[StoredEvent]:
    """Leave a database as it was before, with a bit of everything; return what it tells of."""
    streams.send(redis, [*histories.started(), *histories.paused(), histories.failed(8)])
    streams.send(redis, [replace(histories.failed(9, key="EWR"), body=None), told(CAST)])
    streams.send(redis, [histories.failed(1)], application="trains")
    for name in (APPLICATION, "trains"):
        drain.drain(name)
    actions.skip_record(JFK.digest, actor="ana", reason="bad")
    actions.shut_down_application(APPLICATION, actor="ben", reason="night")
    whole = [
        store.read_one(name, each.sequence)
        for name in (APPLICATION, "trains")
        for each in streams.log(name)
    ]
    shown = views(fresh_database)
    connections.close_all()
    services.drop(fresh_database, services.DATABASE)
    services.create(fresh_database, services.DATABASE)
    migrate(fresh_database, "controlplane", "0012")
    with psycopg.connect(fresh_database.migrate_database) as owner:
        for table, there in shown.items():
            # Its number is new.
            insert(owner, table, [row[:-1] for row in there] if table == "stream" else there)
        # What states did not say then.
        owner.execute("UPDATE error_group SET state = replace(state, %s, '')", [OTHERS])
        columns = sql.SQL(", ").join(map(sql.Identifier, OLD))
        for each in whole:
            owner.execute(
                sql.SQL("INSERT INTO event ({}) VALUES ({})").format(
                    columns, sql.SQL(", ").join(sql.Placeholder() * len(OLD))
                ),
                old_row(each),
            )
        for batch in dict.fromkeys(each.batch for each in whole):
            some = [each for each in whole if each.batch == batch]
            if any(each.event.body for each in some):
                first = some[0]
                # The first of them is of before bodies travelled apart.
                packed = old_packed(some, apart=first.sequence > 1)
                insert(
                    owner,
                    "event_body",
                    [
                        (
                            first.application,
                            first.sequence,
                            first.received_at.date(),
                            len(some),
                            packed,
                        )
                    ],
                )
    return whole


def old_packed(some: Sequence[StoredEvent], *, apart: bool) -> bytes:
    events = [each.event for each in some]
    if not apart:
        return zlib.compress(msgspec.msgpack.encode(events))
    heads = msgspec.msgpack.encode([replace(event, body=None) for event in events])
    bodies = msgspec.msgpack.encode([event.body for event in events])
    return zlib.compress(heads) + zlib.compress(bodies)


def other_classes() -> dict[str, list[str] | None]:
    return dict(models.ErrorGroup.objects.values_list("fingerprint", "other_classes"))


def test_a_log_of_before_is_carried_over(
    old_log: list[StoredEvent], fresh_database: embedded.Urls
) -> None:
    migrate(fresh_database)
    names = (APPLICATION, "trains")
    assert [
        store.read_one(name, each.sequence) for name in names for each in streams.log(name)
    ] == old_log
    # In which classes a condition came, nobody has kept: it may be any, whatever follows.
    assert other_classes() == {FAILURE.fingerprint: None, CAST.fingerprint: [ANY]}
    date_time = replace(CAST, exception_class="DateTime")
    streams.append([told(date_time)], received_at=datetime.now(UTC))
    assert other_classes() == {FAILURE.fingerprint: None, CAST.fingerprint: [ANY]}
    for name in names:
        # What was held when is a view that there was not, as groups did not say their classes: a
        # rebuild makes it.
        new = ("held_change", "error_group")
        assert all(line.startswith(new) for line in rebuild.differences(name))
        rebuild.rebuild(name)
        streams.assert_exact(name)
    assert other_classes() == {FAILURE.fingerprint: None, CAST.fingerprint: ["DateTime"]}
    # What was found by a column is found by its number.
    found = [
        (each.application, each.sequence)
        for failure in (FAILURE, CAST)
        for each in failures(FailureFilter(exception_class=failure.exception_class)).rows
    ]
    assert sorted(found) == [
        (each.application, each.sequence) for each in old_log if each.event.type == "RecordFailed"
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('event_whole'), to_regclass('event_body_whole')")
        assert cursor.fetchone() == (None, None)
