"""How far a worker is stands where it survives the worker: in the file of its fault handler.

Spark hands this file to the driver when the worker ends without a word, in the message of what the
job fails of; it needs no connection of ours. It is there where Spark was told to make it.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

#: Begins the line; two numbers follow.
AT: Final = "arrester at"
#: Ranks begin behind it.
NOWHERE: Final = 0
_FOLDER = "PYTHON_FAULTHANDLER_DIR"
_DIGITS = 20


class Progress:
    """The record that is at work, by its rank; `settled`: all before it needs no repeat."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def at(self, rank: int, *, settled: bool) -> None:
        """Write it down. The line is always as long: what it replaces is gone."""
        if self._file is not None:
            line = f"{AT} {rank:0{_DIGITS}d} {int(settled)}\n"
            os.pwrite(self._file.fileno(), line.encode(), 0)


@contextmanager
def written_down() -> Iterator[Progress]:
    """Open what says how far this worker is; afterwards it says nothing."""
    folder = os.environ.get(_FOLDER)
    path = None if folder is None else os.path.join(folder, str(os.getpid()))
    if path is None or not os.path.exists(path):
        yield Progress(None)
        return
    with open(path, "r+b", buffering=0) as file:
        progress = Progress(file)
        progress.at(NOWHERE, settled=False)
        _trace_behind(path)
        try:
            yield progress
        finally:
            with suppress(OSError):
                os.ftruncate(file.fileno(), 0)


def _trace_behind(path: str) -> None:
    """Have traces appended: at the place where Spark has the file open they would hide the line."""
    appending = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open until a crash writes to it)
    faulthandler.enable(file=appending)
    for file in _appending:
        file.close()
    _appending[:] = [appending]


_appending: list[IO[str]] = []
