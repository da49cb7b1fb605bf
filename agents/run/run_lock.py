"""The lock of one run, and a check that its holder does not wait for itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from arrester.domain.errors import InvalidValue


class _PythonThread(threading.local):
    #: Whether this Python thread holds the run lock of some run.
    holds_lock = False


_current = _PythonThread()


class HeldLock:
    """Shows that the caller holds the run lock; only `RunLock` makes one."""

    __slots__ = ()


class RunLock:
    """Serialize the micro-batches, chunks of held records and commands of one run.

    The author's functions run inside it. A request that they make of the agent would wait for
    itself, or for another run that waits for this one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[HeldLock]:
        """Hold the lock for the block."""
        with self.held_within(-1) as lock:
            assert lock is not None
            yield lock

    @contextmanager
    def held_within(self, seconds: float) -> Iterator[HeldLock | None]:
        """Hold the lock for the block; None: it did not become free within this time."""
        if not self._lock.acquire(timeout=seconds):
            yield None
            return
        _current.holds_lock = True
        try:
            yield HeldLock()
        finally:
            _current.holds_lock = False
            self._lock.release()


def refuse_inside(requested: str) -> None:
    """Raise InvalidValue inside an author's function, for which the command would wait."""
    if _current.holds_lock:
        allowed = (
            "a call from another Python thread: handlers and sinks run inside a micro-batch, and "
            "this waits for its end"
        )
        raise InvalidValue("agent", requested, allowed)
