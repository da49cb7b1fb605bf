"""SIGTERM and Ctrl-C inside `with agent:` end the block, so that its end can be graceful."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from arrester.agents.runtime.end.one_line import is_no_interrupted_call

Handler = Callable[[int, FrameType | None], object] | int | None

#: The exit status that a shell shows for a process ended by a signal is this plus its number.
BY_SIGNAL = 128
#: How long a signal for all processes of a group may take to arrive here, too.
_ARRIVAL_SECONDS = 0.2


@contextmanager
def exit_on_signals() -> Iterator[Callable[[], None] | None]:
    """Turn the first SIGTERM into SystemExit(143), the first SIGINT into KeyboardInterrupt.

    PySpark's own SIGINT handler cancels all running jobs, which would look like a failure of the
    pipeline. A second signal goes to the previous handlers. Outside the main thread, where no
    handler can be set, this does nothing, and yields None.

    Yields a function for another process that received a signal, such as the JVM: it sends SIGTERM
    to this process, unless a terminal or a service manager sent a signal to both.

    The line of py4j about an interrupted call, with its traceback, is not logged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    before: dict[int, Handler] = {}

    def end(number: int, frame: FrameType | None) -> None:
        _restore(before)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(BY_SIGNAL + number)

    def forward() -> None:
        time.sleep(_ARRIVAL_SECONDS)
        if before:
            os.kill(os.getpid(), signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, end)
    root = logging.getLogger()
    root.addFilter(is_no_interrupted_call)
    try:
        yield forward
    finally:
        root.removeFilter(is_no_interrupted_call)
        _restore(before)


def _restore(before: dict[int, Handler]) -> None:
    """Set the previous handlers, in the main thread: Python allows it nowhere else."""
    while before and threading.current_thread() is threading.main_thread():
        number, handler = before.popitem()
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
