"""The web process keeps its connections: as good as new, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import NotSupportedError, OperationalError, connection
from django.db.backends.postgresql import base as djangos
from django.db.backends.utils import CursorWrapper

from arrester.controlplane import embedded
from arrester.controlplane.settings import database_settings
from arrester.controlplane.web import connection_pool
from arrester.controlplane.web.connection_pool.base import DatabaseWrapper
from tests.services import REPOSITORY

Request = Callable[[], DatabaseWrapper]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[connection_pool.Pool]:
    pool = connection_pool.Pool()
    monkeypatch.setattr(DatabaseWrapper, "kept", pool)
    yield pool
    pool.close()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what grows by one with each connection that is asked of PostgreSQL."""
    tries: list[object] = []
    connect = djangos.DatabaseWrapper.get_new_connection

    def counted(self: djangos.DatabaseWrapper, conn_params: dict[str, Any]) -> object:
        tries.append(None)
        return connect(self, conn_params)

    monkeypatch.setattr(djangos.DatabaseWrapper, "get_new_connection", counted)
    return tries


@pytest.fixture
def request_(fresh_database: embedded.Urls, pool: connection_pool.Pool) -> Iterator[Request]:
    """Return what gives the connection that a request would have."""
    requests: list[DatabaseWrapper] = []

    def begin() -> DatabaseWrapper:
        requests.append(DatabaseWrapper(dict(connection.settings_dict), "default"))
        return requests[-1]

    yield begin
    for each in requests:
        each.close()


def ask(request: DatabaseWrapper, statement: str = "SELECT pg_backend_pid()") -> int:
    with request.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


def end(request: DatabaseWrapper) -> None:
    """Do what Django does at the end of a request."""
    request.close_if_unusable_or_obsolete()
    assert request.connection is None


def prepare(request: DatabaseWrapper, statement: str) -> tuple[object, ...]:
    """Ask as `prepared_statements` does."""
    request.ensure_connection()
    with CursorWrapper(psycopg.Cursor(request.connection), request) as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchone())


def plans(request: DatabaseWrapper) -> int:
    return ask(request, "SELECT count(*) FROM pg_prepared_statements")


def test_requests_one_after_another_have_one_connection(
    request_: Request, pool: connection_pool.Pool, tries: list[object]
) -> None:
    seen = set()
    for _ in range(5):
        request = request_()
        seen.add(ask(request))
        assert len(pool) == 0
        end(request)
        assert len(pool) == 1
    assert (len(seen), len(tries)) == (1, 1)


def test_statements_stay_prepared_for_the_next_request(request_: Request) -> None:
    first, second = request_(), request_()
    assert prepare(first, "SELECT 'kept'") == ("kept",)
    end(first)
    assert plans(second) == 1
    assert prepare(second, "SELECT 'kept'") == ("kept",)
    assert plans(second) == 1


def test_plans_of_prepared_statements_are_for_any_values_from_the_first_one_on(
    request_: Request,
) -> None:
    request = request_()
    for many in (1, 2):
        assert prepare(request, "SELECT 'planned once'") == ("planned once",)
        with request.cursor() as cursor:
            cursor.execute(
                "SELECT generic_plans, custom_plans FROM pg_prepared_statements"
                " WHERE statement LIKE '%planned once%'"
            )
            # What is not `prepared_statements` is planned as ever: this is no such statement.
            assert cursor.fetchall() == [(many, 0)]


def test_backends_that_were_ended_are_passed_over_at_once(
    request_: Request,
    pool: connection_pool.Pool,
    tries: list[object],
    fresh_database: embedded.Urls,
) -> None:
    requests = [request_() for _ in range(5)]
    before = {ask(each) for each in requests}
    for each in requests:
        end(each)
    assert (len(pool), len(tries)) == (5, 5)
    with psycopg.connect(fresh_database.admin_database, autocommit=True) as admin:
        for pid in before:
            # Waits until it is gone.
            assert admin.execute("SELECT pg_terminate_backend(%s, 20000)", [pid]).fetchone() == (
                True,
            )
    again = {ask(each) for each in requests}
    # One try each, the first behind five dead ones: no request was refused, and none tried twice.
    assert not before & again
    assert (len(pool), len(tries)) == (0, 10)


def test_postgres_started_again_beneath_kept_connections(
    transactional_db: None, pool: connection_pool.Pool, tries: list[object]
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="arrester-", dir="/tmp") as folder,
        embedded.servers(Path(folder) / "home", durable=False) as servers,
    ):
        there = database_settings("DATABASE_URL", servers.urls.database)
        # What Django adds to what it is told.
        alike = dict(connection.settings_dict) | there
        requests = [DatabaseWrapper(alike, "default") for _ in range(3)]
        for each in requests:
            ask(each)
        for each in requests:
            end(each)
        postgres = next(each for each in servers.running if "ostgres" in type(each).__name__)
        postgres.stop()
        # Away: refused at the first try, not after a wait for somebody who tries again.
        with pytest.raises(OperationalError):
            ask(requests[0])
        assert (len(pool), len(tries)) == (0, 4)
        postgres.start()
        for each in requests:
            assert ask(each)
        assert len(tries) == 7
        for each in requests:
            each.close()
        pool.close()


@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_a_plan_that_a_migration_made_wrong_fails_one_request(
    request_: Request,
    pool: connection_pool.Pool,
    fresh_database: embedded.Urls,
    in_a_transaction: bool,
) -> None:
    with psycopg.connect(fresh_database.migrate_database, autocommit=True) as owner:
        owner.execute("CREATE TABLE migrated AS SELECT 1 AS first")
        owner.execute("GRANT SELECT ON migrated TO arrester_app")
        before, hit, after = request_(), request_(), request_()
        prepare(before, "SELECT * FROM migrated")
        end(before)
        owner.execute("ALTER TABLE migrated ADD COLUMN second int DEFAULT 2")
    with pytest.raises(NotSupportedError, match="cached plan must not change"):
        if in_a_transaction:
            hit.set_autocommit(False)
        try:
            prepare(hit, "SELECT * FROM migrated")
        finally:
            if in_a_transaction:
                hit.rollback()
                hit.set_autocommit(True)
    end(hit)
    assert len(pool) == 0
    assert prepare(after, "SELECT * FROM migrated") == (1, 2)


def test_what_a_request_left_open_or_locked_goes_with_its_connection(
    request_: Request, pool: connection_pool.Pool
) -> None:
    left, after = request_(), request_()
    ask(left)
    assert left.connection is not None
    left.connection.autocommit = False
    left.connection.execute("SELECT pg_advisory_xact_lock(7)")
    pool.give_back(left.connection)
    left.connection = None
    assert len(pool) == 0
    assert ask(after, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_the_end_within_a_transaction_leaves_nothing_behind(
    request_: Request, pool: connection_pool.Pool
) -> None:
    request = request_()
    ask(request)
    request.set_autocommit(False)
    ask(request)
    request.close()
    assert len(pool) == 0


def test_a_bounded_number_waits_and_not_for_long(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    pool = connection_pool.Pool(clock=lambda: now[0])
    monkeypatch.setattr(DatabaseWrapper, "kept", pool)
    requests = [request_() for _ in range(connection_pool.SIZE + 3)]
    for each in requests:
        # More than are kept at a time: nobody waits for another.
        ask(each)
    for each in requests:
        end(each)
    assert len(pool) == connection_pool.SIZE
    now[0] += connection_pool.IDLE_SECONDS + 1
    last = request_()
    pid = ask(last)
    end(last)
    assert len(pool) == 1
    now[0] += connection_pool.LIFE_SECONDS
    assert ask(last) == pid
    end(last)
    assert len(pool) == 0
    pool.close()


def test_the_web_process_alone_keeps_connections(fresh_database: embedded.Urls) -> None:
    said = {}
    for frame in ("arrester.controlplane.web.asgi", "arrester.controlplane.celery"):
        code = (
            f"import {frame}; from django.db import connection\n"
            "connection.ensure_connection(); connection.close()\n"
            "print(type(connection.copy()).__module__)"
        )
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", code],
            cwd=REPOSITORY,
            env=os.environ | {"DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"},
            capture_output=True,
            text=True,
            check=True,
        )
        # Nor is anything said of connections that are open at the end.
        assert done.stderr == ""
        said[frame] = done.stdout.strip()
    assert said == {
        "arrester.controlplane.web.asgi": "arrester.controlplane.web.connection_pool.base",
        "arrester.controlplane.celery": "django.db.backends.postgresql.base",
    }
