"""A pseudo-terminal in place of an output of this process."""

from __future__ import annotations

import os
import pty
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def terminal(
    monkeypatch: pytest.MonkeyPatch, output: str = "stdout", *, columns: int = 120
) -> Iterator[Callable[[], str]]:
    """Make a pseudo-terminal the output; yield a function that reads what was written since."""
    master, slave = pty.openpty()
    try:
        with open(slave, "w") as file, monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, output, file)
            yield lambda: _read(master)
    finally:
        os.close(master)


def _read(master: int) -> str:
    """Return what can be read until nothing arrives for a moment."""
    parts = []
    while select.select([master], [], [], 0.2)[0]:
        parts.append(os.read(master, 4096))
    return b"".join(parts).decode()
