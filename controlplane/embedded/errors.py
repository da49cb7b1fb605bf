"""What can go wrong when the embedded servers start."""

from __future__ import annotations

from pathlib import Path


class EmbeddedError(Exception):
    """A server of ours cannot start; the message says what failed and what to do."""


class AlreadyRunning(EmbeddedError):
    """Another process owns the data folder and runs its servers; use those, or stop it."""

    def __init__(self, home: Path, pid: int) -> None:
        super().__init__(
            f"Arrester already runs in {home} (process {pid}): use that one, stop it,"
            " or set ARRESTER_HOME to another folder"
        )
        self.pid = pid
