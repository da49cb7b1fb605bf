"""Record the progress of a Python worker in the file of its fault handler.

If the worker dies without an exception, Spark includes this file in the message of the failed job.
The file exists if Spark is configured to create it.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

#: The beginning of the line, which two numbers follow.
PROGRESS: Final = "arrester at"
#: The rank of no record, lower than any other.
NO_RANK: Final = 0
_FOLDER = "PYTHON_FAULTHANDLER_DIR"
_DIGITS = 20


class Progress:
    """The rank of the record that is being sent; `settled`: earlier ones need no repetition."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    def at(self, rank: int, *, settled: bool) -> None:
        """Record the progress. The line has a fixed length and replaces the previous one."""
        if self._file is not None:
            line = f"{PROGRESS} {rank:0{_DIGITS}d} {int(settled)}\n"
            os.pwrite(self._file.fileno(), line.encode(), 0)


@contextmanager
def open_progress() -> Iterator[Progress]:
    """Open the progress record of this worker, and clear it at the end of the block."""
    folder = os.environ.get(_FOLDER)
    path = None if folder is None else os.path.join(folder, str(os.getpid()))
    if path is None or not os.path.exists(path):
        yield Progress(None)
        return
    with open(path, "r+b", buffering=0) as file:
        progress = Progress(file)
        progress.at(NO_RANK, settled=False)
        _append_traces(path)
        try:
            yield progress
        finally:
            with suppress(OSError):
                os.ftruncate(file.fileno(), 0)


def _append_traces(path: str) -> None:
    """Append traces to the file. From Spark's own file object, they would overwrite the line."""
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open until a crash writes to it)
    faulthandler.enable(file=file)
    for earlier in _trace_files:
        earlier.close()
    _trace_files[:] = [file]


#: The file of the fault handler, which has to stay referenced.
_trace_files: list[IO[str]] = []
