"""Start, restart and stop the processes of `arrester up`."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arrester.controlplane.embedded import process

FIRST_DELAY_SECONDS = 1.0
MAXIMUM_DELAY_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
LOG_BYTES = 10_000_000


def always() -> bool:
    return True


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
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _not_before: float = field(default=0.0, init=False)
    _delay_seconds: float = field(default=FIRST_DELAY_SECONDS, init=False)
    _finished: bool = field(default=False, init=False)
    _stop_seen: bool = field(default=False, init=False)

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    def start(self, *, now: float) -> None:
        """Start the process; its output is appended to its log, which is rotated by size."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.rename(self.log.with_suffix(".log.1"))
        self._running = process.start(self.command, log=self.log, env=self.env, folder=self.folder)
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
            self._delay_seconds = FIRST_DELAY_SECONDS
        delay = self._delay_seconds
        self._not_before = now + delay
        self._delay_seconds = min(delay * 2, MAXIMUM_DELAY_SECONDS)
        return (
            f"{self.name} {_exit_reason(code)} ({process.last_line(self.log)});"
            f" restart in {delay:.0f} s; log: {self.log}"
        )

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
        if not should_run or self._finished or now < self._not_before:
            return None
        self.start(now=now)
        return f"started {self.name}"


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """The processes, in the order in which they start."""

    children: Sequence[Child]
    report: Callable[[str], None]

    def check(self) -> None:
        """Start or restart what should run; call this about once a second."""
        for child in self.children:
            change = child.check(now=time.monotonic())
            if change:
                self.report(change)

    def stop(self) -> None:
        """Stop the processes in reverse order."""
        for child in reversed(self.children):
            if child.pid is not None:
                self.report(f"stopping {child.name}")
            child.stop()
