"""Clocks that jump for some processes only, by libfaketime.

A process reads the offset of its clock from a file with each call, so that a new offset takes
effect at once. The monotonic clock stays right, as it does on a host whose clock is set.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

#: Their clocks stay right: a JVM hangs under libfaketime, and both servers are other hosts.
_RIGHT = "java,postgres,valkey-server"


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the processes that start with its variables."""

    file: Path

    def variables(self) -> dict[str, str]:
        """Return the environment of a process with this clock; none without libfaketime."""
        if not is_available():
            return {}
        if not self.file.exists():
            self.set(0)
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_SKIP_CMDS": _RIGHT,
            "NO_FAKE_STAT": "1",
        }

    @property
    def is_right(self) -> bool:
        """Whether the offset is 0."""
        return int(self.file.read_text()) == 0

    def set(self, offset_seconds: int) -> None:
        """Let the clock be ahead of the right time by some seconds, or behind it."""
        draft = self.file.with_suffix(".new")
        draft.write_text(f"{offset_seconds:+}\n")
        draft.chmod(0o644)
        draft.rename(self.file)


def is_available() -> bool:
    """Whether libfaketime is installed."""
    library = _library()
    return library is not None and library.exists()


def _library() -> Path | None:
    found = find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"


def clean() -> None:
    """Delete the shared memory that killed processes left."""
    for file in Path("/dev/shm").glob("*faketime_s*_[0-9]*"):
        if not psutil.pid_exists(int(file.name.rpartition("_")[2])):
            with contextlib.suppress(OSError):
                file.unlink()
