"""The processes of `manage.py up`: started in order, restarted when they die, stopped in order."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arrester.controlplane.embedded import process

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 60.0
LOG_BYTES = 10_000_000


def always() -> bool:
    return True


@dataclass(slots=True, kw_only=True)
class Child:
    """One process and what to do when it ends.

    An exit with one of `final_codes` is meant: it rests until `should_run` has said no, then yes.
    It may say both while the process still ends.
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
    _wait_seconds: float = field(default=FIRST_WAIT_SECONDS, init=False)
    _resting: bool = field(default=False, init=False)
    _told_to_end: bool = field(default=False, init=False)

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running else None

    def start(self, *, now: float) -> None:
        """Start the process; its output goes to its log, of which one older part is kept."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.rename(self.log.with_suffix(".log.1"))
        self._running = process.start(self.command, log=self.log, env=self.env, folder=self.folder)
        self._started = now
        self._resting = self._told_to_end = False

    def look(self, *, now: float) -> str | None:
        """Start or restart what should run; return what a person should know, if anything."""
        if self._running is None:
            return self._start_when_due(now)
        code = self._running.poll()
        if code is None:
            if self.final_codes and not self.should_run():
                self._told_to_end = True
            return None
        self._running = None
        if code in self.final_codes:
            self._resting = not self._told_to_end
            return f"{self.name} has ended as it was told to"
        if now - self._started > HEALTHY_AFTER_SECONDS:
            self._wait_seconds = FIRST_WAIT_SECONDS
        wait = self._wait_seconds
        self._not_before = now + wait
        self._wait_seconds = min(wait * 2, LONGEST_WAIT_SECONDS)
        return (
            f"{self.name} {_how_it_ended(code)} ({process.last_line(self.log)});"
            f" it starts again in {wait:.0f} s, its log is {self.log}"
        )

    def stop(self) -> None:
        if self._running is not None:
            process.stop(
                self._running, signal.SIGTERM, signal.SIGQUIT, seconds=self.stop_seconds / 2
            )
            self._running = None

    def _start_when_due(self, now: float) -> str | None:
        wanted = self.should_run()
        if self._resting and not wanted:
            self._resting = False
        if not wanted or self._resting or now < self._not_before:
            return None
        self.start(now=now)
        return f"{self.name} starts"


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """Children in the order of their start."""

    children: Sequence[Child]
    say: Callable[[str], None]

    def look(self) -> None:
        """Start or restart what should run, and say so; to be called about once a second."""
        for child in self.children:
            news = child.look(now=time.monotonic())
            if news:
                self.say(news)

    def stop(self) -> None:
        """Stop the last one first."""
        for child in reversed(self.children):
            if child.pid is not None:
                self.say(f"stopping {child.name}")
            child.stop()
