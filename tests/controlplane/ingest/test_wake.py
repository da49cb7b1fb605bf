"""Wake and a Celery worker as real processes: from an entry in Redis to a row in a view."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from redis import ConnectionError, Redis

from arrester.controlplane import actions, embedded, queries
from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.celery_workers import FOLDS
from arrester.domain.errors import NotFound
from arrester.domain.events import CommandApplied
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandStatus
from tests import histories, scratch
from tests import services as running_services
from tests.controlplane import streams
from tests.controlplane.queries.test_health import parts_down
from tests.histories import APPLICATION, JFK
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.services import REPOSITORY

WAKE = ["manage.py", "wake"]
WORKER = [
    "-m",
    "celery",
    "-A",
    "arrester.controlplane",
    "worker",
    "--concurrency",
    "2",
    "-l",
    "WARNING",
]
pytestmark = pytest.mark.chaos


@contextmanager
def process(
    words: list[str], log: Path, *, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of the server; stop it at the end, unless it is dead.

    A test that fails meanwhile shows the output of the process.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, *words],
            cwd=REPOSITORY,
            stdout=output,
            stderr=output,
            env=os.environ
            | {"DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings"}
            | dict(env or {}),
            start_new_session=True,
        )
    try:
        yield child
    except BaseException:
        print(log.read_text(errors="replace"))
        raise
    finally:
        child.terminate()
        child.wait(PATIENCE_SECONDS)


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a process with its children."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


@pytest.fixture
def server(
    redis: Redis, fresh_database: embedded.Urls, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run wake and a worker; return the worker."""
    with process(WAKE, tmp_path / "wake.log"), process(WORKER, tmp_path / "worker.log") as worker:
        yield worker


def folded(count: int) -> Callable[[], bool]:
    """Whether the log has `count` events."""

    def look() -> bool:
        try:
            return queries.lag(APPLICATION).sequence >= count
        except NotFound:
            return False

    return look


def test_a_batch_becomes_a_row_and_a_command_is_answered(
    redis: Redis, server: subprocess.Popen[bytes]
) -> None:
    batch = streams.send(redis, [*histories.started(), *histories.paused()])
    wait_until(folded(5))
    wait_until(lambda: batch in streams.confirmed(redis))
    assert streams.task(JFK.digest).held == 3

    command = actions.resume_task(JFK.digest, actor="ana")
    applied = CommandApplied(command=command.id)
    streams.send(redis, [histories.event(applied, run=None)])
    wait_until(lambda: queries.command(command.id).status is CommandStatus.APPLIED)
    wait_until(lambda: parts_down() == [])
    streams.assert_exact()


def test_a_worker_keeps_its_database_connection(
    redis: Redis, server: subprocess.Popen[bytes]
) -> None:
    def opened() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
            )
            return int(cursor.fetchone()[0])

    streams.send(redis, [histories.failed(0)])
    wait_until(folded(1))
    before = opened()
    for position in range(1, 20):
        wait_until(lambda: not redis.exists(redis_keys.pending_fold(APPLICATION)))
        streams.send(redis, [histories.failed(position)])
        wait_until(folded(position + 1))
    # Each of its processes has one; sweeps are folded beside.
    assert opened() - before < 10


def test_a_sweep_repairs_a_lost_request(redis: Redis, server: subprocess.Popen[bytes]) -> None:
    streams.send(redis, [histories.failed(1)])
    wait_until(folded(1))
    redis.flushall()
    for position in range(2, 30):
        streams.send(redis, [histories.failed(position)])
        # Every message of the broker's, again and again, but not the streams.
        redis.delete(
            FOLDS, STREAM_FOLDS, "unacked", "unacked_index", redis_keys.pending_fold(APPLICATION)
        )
    wait_until(folded(29))
    streams.assert_exact()


@pytest.mark.long
def test_the_next_worker_continues_after_a_kill(
    redis: Redis, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    streams.send(redis, [histories.failed(1)])
    wait_until(folded(1))
    kill(server)
    for position in range(2, 30):
        streams.send(redis, [histories.failed(position)])
    with process(WORKER, tmp_path / "second.log"):
        wait_until(folded(29))
    streams.assert_exact()


@pytest.mark.long
def test_lost_postgresql_connections_cost_one_sweep(
    redis: Redis, server: subprocess.Popen[bytes], fresh_database: embedded.Urls
) -> None:
    with psycopg.connect(fresh_database.admin_database, autocommit=True) as admin:
        for position in range(1, 30):
            streams.send(redis, [histories.failed(position)])
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = 'arrester_app'"
            )
            time.sleep(0.05)
    # Ours was cut, too.
    connection.close()
    wait_until(folded(29))
    streams.assert_exact()


def test_a_redis_that_refuses_connections_delays_and_loses_nothing(
    redis: Redis, server: subprocess.Popen[bytes]
) -> None:
    streams.send(redis, [histories.failed(1)])
    wait_until(folded(1))
    most, opened = redis.config_get("maxclients")["maxclients"], []

    def fill() -> None:
        """Open connections until Redis refuses them."""
        with suppress(ConnectionError):
            while True:
                opened.append(Redis.from_url(settings.REDIS_URL, single_connection_client=True))

    redis.config_set("maxclients", redis.info("clients")["connected_clients"] + 5)
    try:
        fill()
        # The server loses its connections, and others take their places.
        redis.client_kill_filter(_type="normal", skipme=True)
        opened.clear()
        for _ in range(20):
            fill()
            streams.send(redis, [histories.failed(2)])
            time.sleep(0.2)
        refused = redis.info("stats")["rejected_connections"]
        assert refused > 20
    finally:
        for client in opened:
            client.close()
        redis.config_set("maxclients", str(most))
    wait_until(folded(21))
    wait_until(lambda: parts_down() == [])
    streams.assert_exact()


@pytest.mark.long
def test_an_unavailable_postgresql_delays_and_loses_nothing(
    redis: Redis, services: embedded.Urls, tmp_path: Path
) -> None:
    # A PostgreSQL of its own, which can be stopped without harm to the other tests.
    with tempfile.TemporaryDirectory(prefix="arrester-away-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        with embedded.servers(Path(folder) / "home", redis=False, durable=False) as servers:
            (postgres,) = servers.running
            running_services.make_template(servers.urls)
            running_services.clone(servers.urls, "arrester")
            env = {"DATABASE_URL": servers.urls.database}
            with (
                process(WAKE, tmp_path / "wake.log", env=env),
                process(WORKER, tmp_path / "worker.log", env=env),
            ):
                first = streams.send(redis, [histories.failed(1)])
                wait_until(lambda: first in streams.confirmed(redis))
                postgres.stop()
                second = streams.send(redis, [histories.failed(2)])
                wait_until(
                    lambda: b"PostgreSQL is unavailable" in (tmp_path / "wake.log").read_bytes()
                )
                assert redis.xlen(redis_keys.events(APPLICATION)) == 1
                postgres.start()
                wait_until(lambda: second in streams.confirmed(redis))
            with psycopg.connect(servers.urls.database) as connection:
                found = connection.execute("SELECT sequence, count FROM event ORDER BY sequence")
                assert found.fetchall() == [(1, 1), (2, 1)]


def test_wake_stops_at_sigterm(redis: Redis, fresh_database: embedded.Urls, tmp_path: Path) -> None:
    log = tmp_path / "wake.log"
    with process(WAKE, log) as wake:
        wait_until(lambda: b"wake started" in log.read_bytes())
    assert wake.returncode == 0
    assert log.read_bytes().endswith(b"wake stopped\n")
