"""Start, restart and stop the processes of `arrester up`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psycopg
import redis

from arrester.controlplane.embedded import EmbeddedError, process

FIRST_DELAY_SECONDS = 1.0
MAXIMUM_DELAY_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
LOG_BYTES = 10_000_000


class Server(Protocol):
    """An embedded server."""

    name: str

    @property
    def log(self) -> Path: ...

    def alive(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Starter(Protocol):
    """Start a process whose output is appended to a log."""

    def __call__(
        self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str], folder: Path
    ) -> process.Process: ...


def always() -> bool:
    return True


@dataclass(slots=True)
class Backoff:
    """Growing delays between starts."""

    _delay_seconds: float = FIRST_DELAY_SECONDS
    _not_before: float = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._not_before

    def delay(self, now: float) -> float:
        """Postpone the next start; return the seconds until then."""
        delay = self._delay_seconds
        self._not_before = now + delay
        self._delay_seconds = min(delay * 2, MAXIMUM_DELAY_SECONDS)
        return delay

    def reset(self) -> None:
        """Allow a start at once; the next delay is the first one again."""
        self._delay_seconds, self._not_before = FIRST_DELAY_SECONDS, 0.0


@dataclass(slots=True, kw_only=True)
class Child:
    """One supervised process.

    After an exit with one of `final_codes` it is restarted only when `should_run` has returned
    False and then True. `should_run` may return both while the process is still ending.
    """

    name: str
    command: Sequence[str | Path]
    env: Mapping[str, str]
    log: Path
    folder: Path
    stop_seconds: float = 15.0
    final_codes: frozenset[int] = frozenset()
    should_run: Callable[[], bool] = always
    start_process: Starter = process.start
    _running: process.Process | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _backoff: Backoff = field(default_factory=Backoff, init=False)
    _finished: bool = field(default=False, init=False)
    _stop_seen: bool = field(default=False, init=False)

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    def start(self, *, now: float) -> None:
        """Start the process; its output is appended to its log, which is rotated by size."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.rename(self.log.with_suffix(".log.1"))
        self._running = self.start_process(
            self.command, log=self.log, env=self.env, folder=self.folder
        )
        self._started = now
        self._finished = self._stop_seen = False

    def check(self, *, now: float) -> str | None:
        """Start or restart the process if necessary; return a line for the user if it changed."""
        if self._running is None:
            return self._start_when_due(now)
        code = self._running.poll()
        if code is None:
            if self.final_codes and not self.should_run():
                self._stop_seen = True
            return None
        self._running = None
        if code in self.final_codes:
            self._finished = not self._stop_seen
            return f"{self.name} stopped on request"
        if now - self._started > HEALTHY_AFTER_SECONDS:
            self._backoff.reset()
        delay = self._backoff.delay(now)
        return (
            f"{self.name} {_exit_reason(code)} ({process.last_line(self.log)});"
            f" restart in {delay:.0f} s; log: {self.log}"
        )

    def forget_delays(self) -> None:
        """Restart at once if the process has exited: its cause, such as a server, is repaired."""
        self._backoff.reset()

    def stop(self) -> None:
        if self._running is not None:
            process.stop(
                self._running, signal.SIGTERM, signal.SIGQUIT, seconds=self.stop_seconds / 2
            )
            self._running = None

    def _start_when_due(self, now: float) -> str | None:
        should_run = self.should_run()
        if not should_run:
            self._finished = False
        if not should_run or self._finished or not self._backoff.is_due(now):
            return None
        try:
            self.start(now=now)
        except OSError as error:  # such as a full disk
            delay = self._backoff.delay(now)
            return f"{self.name} cannot start ({error}); next attempt in {delay:.0f} s"
        return f"started {self.name}"


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


@dataclass(slots=True, kw_only=True)
class SupervisedServer:
    """PostgreSQL or Redis: it is restarted until that succeeds."""

    server: Server
    _backoff: Backoff = field(default_factory=Backoff, init=False)
    _down: bool = field(default=False, init=False)

    def check(self, report: Callable[[str], None]) -> bool:
        """Restart the server if it exited; return whether it answers again."""
        if self.server.alive() or not self._backoff.is_due(time.monotonic()):
            return False
        if not self._down:
            report(f"{self.server.name} exited; restarting it (log: {self.server.log})")
        self._down = True
        try:
            self.server.start()
        except (EmbeddedError, OSError, psycopg.Error, redis.RedisError) as error:
            self.server.stop()
            delay = self._backoff.delay(time.monotonic())
            report(f"{error}; next attempt in {delay:.0f} s")
            return False
        report(f"{self.server.name} answers again")
        self._down = False
        self._backoff.reset()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """The servers and the processes, in the order in which they start."""

    servers: Sequence[SupervisedServer] = ()
    children: Sequence[Child]
    report: Callable[[str], None]

    def check(self) -> None:
        """Start or restart what should run; call this about once a second."""
        for server in self.servers:
            if server.check(self.report):
                for child in self.children:
                    child.forget_delays()
        for child in self.children:
            change = child.check(now=time.monotonic())
            if change:
                self.report(change)

    def stop(self) -> None:
        """Stop the processes in reverse order; servers are stopped by their context."""
        for child in reversed(self.children):
            if child.pid is not None:
                self.report(f"stopping {child.name}")
            child.stop()
