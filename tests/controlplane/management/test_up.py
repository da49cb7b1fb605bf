"""`arrester up` as a process: its output, its errors, and no process left after it."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from celery import Celery
from redis import Redis

from arrester.controlplane import embedded
from arrester.controlplane.management.commands.up import Command
from arrester.controlplane.redis import redis_urls
from tests import scratch
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

OVERRIDES = (
    "DATABASE_URL",
    "MIGRATE_DATABASE_URL",
    "REDIS_URL",
    "ARRESTER_BROKER_URL",
    "ARRESTER_SECRET_KEY",
)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="arrester-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "home"


@contextmanager
def up(home: Path, *, port: int) -> Iterator[subprocess.Popen[str]]:
    inherited = {name: value for name, value in os.environ.items() if name not in OVERRIDES}
    process = subprocess.Popen(
        [sys.executable, REPOSITORY / "manage.py", "up", "--no-demo"],
        cwd="/",
        env=inherited | {"ARRESTER_HOME": str(home), "ARRESTER_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


@pytest.mark.chaos
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM]
)
def test_up_starts_every_process_and_stops_them_on_a_signal(
    home: Path, number: signal.Signals
) -> None:
    port = free_port()
    with up(home, port=port) as process:
        output = read_until(process, "initial passwords")
        assert f"http://127.0.0.1:{port}\n" in output
        assert "user operator, password " in output
        for part in ("PostgreSQL", "Redis", "wake", "worker", "housekeeper", "web"):
            assert part in output
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SECONDS
        ) as answer:
            assert answer.status == 200
        assert memory_mb(home) < 420
        assert_queues_are_in_another_database(home)
        assert "database files are incompatible" in page_while_postgres_is_damaged(home, port)
        read_until(process, "PostgreSQL answers again")
        process.send_signal(number)
        rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, rest
    parts = ("web", "housekeeper", "worker", "wake", "the serv")
    order = [rest.index(f"stopping {part}") for part in parts]
    assert order == sorted(order)
    assert remaining_processes(home) == []


@pytest.mark.parametrize("first_start", [True, False])
def test_the_password_is_printed_at_the_first_start_only(
    home: Path, settings: Any, first_start: bool
) -> None:
    folder, credentials = embedded.Home(home), embedded.Credentials(operator="only-once")
    servers = embedded.Servers(
        home=folder, credentials=credentials, urls=folder.urls(credentials), running=[]
    )
    output = io.StringIO()
    command = Command(stdout=output)
    command._print_login(settings.ENVIRONMENT, servers, first_start=first_start)
    assert ("only-once" in output.getvalue()) == first_start
    assert "user operator" in output.getvalue()
    assert f"initial passwords, also of viewer and admin: {home}" in output.getvalue()


def page_while_postgres_is_damaged(home: Path, port: int) -> str:
    """Kill PostgreSQL, whose restart fails until its file is repaired; return the web's answer."""
    control = home / "postgres" / "global" / "pg_control"
    pid = int((home / "postgres" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    content = control.read_bytes()
    control.write_bytes(bytes(len(content)))
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    answer = ""
    while "incompatible" not in answer and time.monotonic() < deadline:
        time.sleep(0.2)
        answer = login(port)
    control.write_bytes(content)
    return answer


def assert_queues_are_in_another_database(home: Path) -> None:
    """Check the users of Redis, that Celery writes nothing into the database of agents, and that it
    has the rights that it uses."""
    urls = embedded.known_urls(home)
    url = urls.redis
    broker = redis_urls.for_celery(urls.broker)
    with Celery(broker=broker, set_as_current=False) as celery:
        assert len(celery.control.inspect(timeout=5).ping() or {}) == 2
    with Redis.from_url(url) as redis, Redis.from_url(url.replace("db=0", "db=1")) as broker:
        users = {each if isinstance(each, str) else each.decode() for each in redis.acl_users()}
        assert users == {"arrester-broker", "default"}
        assert broker.keys("_kombu.binding.*")
        assert [each for each in redis.keys("*") if not each.startswith(b"arrester:")] == []
        assert redis.acl_log() == []


def login(port: int) -> str:
    """Return the answer to a login, which reads from PostgreSQL."""
    address = f"http://127.0.0.1:{port}/login"
    with requests.Session() as session:
        form = session.get(address, timeout=PATIENCE_SECONDS).text
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
        data = {"csrfmiddlewaretoken": token, "username": "operator", "password": "wrong"}
        return session.post(address, data=data, timeout=PATIENCE_SECONDS).text


def remaining_processes(home: Path) -> list[str]:
    """Return the command lines of processes that have the data folder in their environment."""
    return [cmdline for cmdline, _ in _processes(home)]


def memory_mb(home: Path) -> int:
    """Return the memory of those processes, with their shares of common pages (PSS)."""
    sizes = (re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE) for _, rollup in _processes(home))
    return sum(int(size[1]) for size in sizes if size) // 1024


def _processes(home: Path) -> Iterator[tuple[str, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(home) in (folder / "environ").read_bytes():
                yield (folder / "cmdline").read_text(), (folder / "smaps_rollup").read_text()
        except OSError:
            continue


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux signals children when their parent dies"
)
def test_no_process_outlives_a_killed_up(home: Path) -> None:
    with up(home, port=free_port()) as process:
        read_until(process, "initial passwords")
        process.kill()
        process.wait()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while remaining_processes(home) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert remaining_processes(home) == []


@pytest.mark.long
@pytest.mark.chaos
def test_a_second_up_reports_where_the_first_one_runs(home: Path) -> None:
    port = free_port()
    with up(home, port=port) as first:
        read_until(first, "initial passwords")
        with up(home, port=port) as second:
            output, _ = second.communicate(timeout=PATIENCE_SECONDS)
        assert second.returncode == 1
        assert f"Arrester already runs in {home} (process {first.pid})" in output
        assert "Traceback" not in output


def test_a_port_in_use_is_reported_with_its_variable(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with up(home, port=port) as process:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert output == (
        f"ARRESTER_PORT='{port}' is not allowed: the port is not free"
        " (Address already in use); choose another one\n"
    )
