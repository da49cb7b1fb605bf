"""The lock of one run, and a check that its holder does not wait for itself."""

from __future__ import annotations

import threading
from types import TracebackType

from arrester.domain.errors import InvalidValue


class _PythonThread(threading.local):
    #: Whether this Python thread holds the run lock of some run.
    holds_lock = False


_current = _PythonThread()


class RunLock:
    """Serialize the micro-batches, chunks of held records and commands of one run.

    The author's functions run inside it. A request that they make of the agent would wait for
    itself, or for another run that waits for this one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, *, timeout: float = -1) -> bool:
        """Acquire the lock, waiting at most this many seconds; -1: without bound."""
        acquired = self._lock.acquire(timeout=timeout)
        _current.holds_lock = acquired or _current.holds_lock
        return acquired

    def release(self) -> None:
        """Release the lock."""
        _current.holds_lock = False
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def refuse_inside(requested: str) -> None:
    """Raise InvalidValue inside an author's function, for which the command would wait."""
    if _current.holds_lock:
        allowed = (
            "a call from another Python thread: handlers and sinks run inside a micro-batch, and "
            "this waits for its end"
        )
        raise InvalidValue("agent", requested, allowed)
