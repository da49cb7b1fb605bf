"""The web process keeps idle connections for later requests, only if they are usable."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import NotSupportedError, OperationalError, connection
from django.db.backends.utils import CursorWrapper
from psycopg.conninfo import conninfo_to_dict

from arrester.controlplane import access, embedded, store
from arrester.controlplane.access.roles import Role
from arrester.controlplane.settings import database_settings
from arrester.controlplane.web import hang
from arrester.controlplane.web.connection_pool import base
from arrester.controlplane.web.connection_pool import connection as pool_connection
from arrester.controlplane.web.connection_pool.base import DatabaseWrapper
from arrester.controlplane.web.connection_pool.connection import connect
from tests import scratch
from tests.patience import wait_until
from tests.services import REPOSITORY

Request = Callable[[], DatabaseWrapper]


@pytest.fixture
def idle() -> Iterator[Collection[object]]:
    """Return the idle connections."""
    DatabaseWrapper.close_idle()
    yield DatabaseWrapper.idle
    DatabaseWrapper.close_idle()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list with one item for each attempt to connect to PostgreSQL."""
    attempts: list[object] = []

    def counted(conn_params: dict[str, Any]) -> object:
        attempts.append(None)
        return connect(conn_params)

    monkeypatch.setattr(base, "connect", counted)
    return attempts


@pytest.fixture
def request_(fresh_database: embedded.Urls, idle: Collection[object]) -> Iterator[Request]:
    """Return a function that returns the connection of a new request."""
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
    """Execute a statement as `prepared_statements` does."""
    request.ensure_connection()
    with CursorWrapper(psycopg.Cursor(request.connection), request) as cursor:
        cursor.execute(statement)
        return tuple(cursor.fetchone())


def plans(request: DatabaseWrapper) -> int:
    return ask(request, "SELECT count(*) FROM pg_prepared_statements")


def test_consecutive_requests_share_one_connection(
    request_: Request, idle: Collection[object], attempts: list[object]
) -> None:
    seen = set()
    for _ in range(5):
        request = request_()
        seen.add(ask(request))
        assert len(idle) == 0
        end(request)
        assert len(idle) == 1
    assert (len(seen), len(attempts)) == (1, 1)


def test_statements_stay_prepared_for_the_next_request(request_: Request) -> None:
    first, second = request_(), request_()
    assert prepare(first, "SELECT 'kept'") == ("kept",)
    end(first)
    assert plans(second) == 1
    assert prepare(second, "SELECT 'kept'") == ("kept",)
    assert plans(second) == 1


def test_prepared_statements_have_generic_plans_from_the_first_execution(
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
            # Statements outside of `prepared_statements`, such as this one, are not prepared.
            assert cursor.fetchall() == [(many, 0)]


def test_a_connection_is_confined_for_one_request_only(
    request_: Request, idle: Collection[object], attempts: list[object]
) -> None:
    statement = "SELECT count(*)::text FROM stream"
    for name in ("apple", "zebra"):
        store.open_stream(name)
    confined, other = request_(), request_()
    person = access.Person(name="ana", role=None, roles={"apple": Role.VIEWER})
    assert prepare(other, statement) == ("2",)
    end(other)
    access.enter(person)
    try:
        # The statement is prepared on this connection: PostgreSQL plans it again.
        assert prepare(confined, statement) == ("1",)
        # As after a lost connection, in the middle of the request.
        confined.close()
        assert prepare(confined, statement) == ("1",)
        confined.connection.close()
        confined.close()
        assert prepare(confined, statement) == ("1",)
        end(confined)
    finally:
        access.leave()
    assert len(idle) == 1
    assert prepare(request_(), statement) == ("2",)
    assert len(attempts) == 2


def test_a_connection_that_cannot_be_reset_is_closed(
    request_: Request, idle: Collection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_()
    access.enter(access.Person(name="ana", role=None, roles={"apple": Role.VIEWER}))
    try:
        assert ask(request, "SELECT count(*) FROM task") == 0
        monkeypatch.setattr(base, "_RESET", "RESET no_such_setting")
        end(request)
    finally:
        access.leave()
    assert len(idle) == 0


def test_terminated_backends_are_skipped_without_a_wait(
    request_: Request,
    idle: Collection[object],
    attempts: list[object],
    fresh_database: embedded.Urls,
) -> None:
    requests = [request_() for _ in range(5)]
    before = {ask(each) for each in requests}
    for each in requests:
        end(each)
    assert (len(idle), len(attempts)) == (5, 5)
    with psycopg.connect(fresh_database.admin_database, autocommit=True) as admin:
        for pid in before:
            # Waits until the backend has ended.
            assert admin.execute("SELECT pg_terminate_backend(%s, 20000)", [pid]).fetchone() == (
                True,
            )
    again = {ask(each) for each in requests}
    # One attempt for each request, the first after five dead connections: none failed.
    assert not before & again
    assert (len(idle), len(attempts)) == (0, 10)


def test_a_restart_of_postgres_below_idle_connections(
    transactional_db: None, idle: Collection[object], attempts: list[object]
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="arrester-", dir=scratch.FOLDER) as folder,
        embedded.servers(Path(folder) / "home", durable=False) as servers,
    ):
        there = database_settings("DATABASE_URL", servers.urls.database)
        # Django adds its defaults to the settings.
        complete = dict(connection.settings_dict) | there
        requests = [DatabaseWrapper(complete, "default") for _ in range(3)]
        for each in requests:
            ask(each)
        for each in requests:
            end(each)
        postgres = next(each for each in servers.running if "ostgres" in type(each).__name__)
        postgres.stop()
        # PostgreSQL is stopped: the request fails at the first attempt, without a wait.
        with pytest.raises(OperationalError):
            ask(requests[0])
        assert (len(idle), len(attempts)) == (0, 4)
        postgres.start()
        for each in requests:
            assert ask(each)
        assert len(attempts) == 7
        for each in requests:
            each.close()


@pytest.mark.parametrize("in_a_transaction", [False, True])
def test_a_plan_outdated_by_a_migration_fails_one_request_only(
    request_: Request,
    idle: Collection[object],
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
    # A rollback discards all prepared statements, so the connection is as good as new.
    assert len(idle) == int(in_a_transaction)
    assert prepare(after, "SELECT * FROM migrated") == (1, 2)


def test_an_open_transaction_and_its_locks_end_with_the_connection(
    request_: Request, idle: Collection[object]
) -> None:
    left, after = request_(), request_()
    ask(left)
    assert left.connection is not None
    left.connection.autocommit = False
    left.connection.execute("SELECT pg_advisory_xact_lock(7)")
    left.close()
    assert len(idle) == 0
    # The backend ends after its client.
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    wait_until(lambda: ask(after, locks) == 0, what="no lock")


def test_a_connection_closed_within_a_transaction_is_not_kept(
    request_: Request, idle: Collection[object]
) -> None:
    request = request_()
    ask(request)
    request.set_autocommit(False)
    ask(request)
    request.close()
    assert len(idle) == 0


def test_a_slow_statement_continues_and_one_without_an_answer_ends(request_: Request) -> None:
    slow, hung = request_(), request_()
    assert ask(slow, f"SELECT 1 FROM pg_sleep({2.2 * hang.ANSWER_SECONDS})") == 1
    pid = ask(hung)
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(OperationalError, match="PostgreSQL hangs"):
            ask(hung)
        assert time.monotonic() - began < 2.0
        with pytest.raises(OperationalError, match="PostgreSQL hangs"):
            ask(request_())
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(hang.PAUSE_SECONDS)
    assert ask(request_())


def test_a_first_host_that_does_not_answer_is_tried_once(
    fresh_database: embedded.Urls, idle: Collection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover the first host of DATABASE_URL may be off, and packets to it are lost."""
    monkeypatch.setattr(pool_connection, "_HOSTS", pool_connection._Hosts())
    params = conninfo_to_dict(fresh_database.database)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        params["port"] = f"{silent.getsockname()[1]},5432"
        params["host"] = f"127.0.0.1,{params['host']}"
        with pytest.raises(psycopg.OperationalError, match="hangs"):
            connect(params)

        def answers() -> bool:
            with suppress(psycopg.OperationalError):
                connect(params).close()
                return True
            return False

        # A request waits for less time than libpq waits for the first host.
        wait_until(answers)
        for _ in range(3):
            assert answers()


def test_a_statement_ends_after_the_limit(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(
        request_(), "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"
    ) == (1000 * base.STATEMENT_SECONDS)
    monkeypatch.setattr(base, "STATEMENT_SECONDS", 1)
    with pytest.raises(OperationalError, match="statement timeout"):
        ask(request_(), "SELECT 1 FROM pg_sleep(60)")


def test_idle_connections_are_limited_in_number_and_age(
    request_: Request, idle: Collection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [request_() for _ in range(base.SIZE + 3)]
    for each in requests:
        # More than are kept: no request waits for another.
        ask(each)
    for each in requests:
        end(each)
    assert len(idle) == base.SIZE
    last = request_()
    ask(last)
    monkeypatch.setattr(base, "LIFE_SECONDS", 0.0)
    end(last)
    assert len(idle) == base.SIZE - 1


def test_only_the_web_process_keeps_connections(fresh_database: embedded.Urls) -> None:
    engines = {}
    for module in ("arrester.controlplane.web.asgi", "arrester.controlplane.celery"):
        code = (
            f"import {module}; from django.db import connection\n"
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
        # Python reports no connection that is open at the end.
        assert done.stderr == ""
        engines[module] = done.stdout.strip()
    assert engines == {
        "arrester.controlplane.web.asgi": "arrester.controlplane.web.connection_pool.base",
        "arrester.controlplane.celery": "django.db.backends.postgresql.base",
    }
