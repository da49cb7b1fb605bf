"""The lock of one run; the Python thread that holds one waits for none."""

from __future__ import annotations

import threading
from types import TracebackType

from arrester.controlplane.domain.errors import InvalidValue


class _Here(threading.local):
    #: Whether this Python thread works for a run, and holds its lock.
    inside = False


_here = _Here()


class RunLock:
    """Goes round micro-batches, chunks of held records and wishes of one run.

    The author's functions are called inside. What they ask of the agent there would wait for
    themselves, or for another run that waits for this one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, *, timeout: float = -1) -> bool:
        """Wait for the turn, for so many seconds; -1: without bound."""
        taken = self._lock.acquire(timeout=timeout)
        _here.inside = taken or _here.inside
        return taken

    def release(self) -> None:
        """Let the next one have its turn."""
        _here.inside = False
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


def refuse_inside(wish: str) -> None:
    """Raise InvalidValue where the author's function is at work, which the wish would wait for."""
    if _here.inside:
        allowed = (
            "a call from another Python thread: handlers and sinks run inside a micro-batch, and "
            "this waits for its end"
        )
        raise InvalidValue("agent", wish, allowed)
