"""Errors at the start of the embedded servers."""

from __future__ import annotations

from pathlib import Path


class EmbeddedError(Exception):
    """An embedded server cannot start; the message has the cause and the remedy."""


class AlreadyRunning(EmbeddedError):
    """Another process runs the servers of the data folder."""

    def __init__(self, home: Path, pid: int) -> None:
        super().__init__(
            f"Arrester already runs in {home} (process {pid}): use it, stop it,"
            " or set ARRESTER_HOME to another folder"
        )
        self.pid = pid
