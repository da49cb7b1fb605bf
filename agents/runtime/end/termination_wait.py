"""Wait for the end of an instance; each failure that ended a thread is raised once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from arrester.agents.runtime.dead_threads import DeadThreads
from arrester.agents.runtime.end.shutdown import GRACE_SECONDS
from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.thread_registry import ThreadRegistry

#: The interval of the checks whether anything is left to do.
_CHECK_SECONDS = 0.05


class TerminationWait:
    """Wait until an instance has ended, or none of its threads has anything left to do."""

    def __init__(
        self,
        registry: ThreadRegistry,
        dead_threads: DeadThreads,
        *,
        over: threading.Event,
        ending: Callable[[], Ending | None],
    ) -> None:
        #: Whether a caller has waited.
        self.was_awaited = False
        self._registry = registry
        self._dead_threads = dead_threads
        #: Set when the instance has ended.
        self._over = over
        #: Returns how the instance ends; None before.
        self._ending = ending

    def wait(self, timeout_seconds: float | None, *, raises: bool = True) -> Ending | None:
        """Return how the instance ended; None if it has not ended in time.

        With `raises`, each failure is raised once: at the end, or at once for the answer DEFAULT.
        """
        self.was_awaited = True
        deadline = time.monotonic() + (math.inf if timeout_seconds is None else timeout_seconds)
        idle = False
        while not self._over.wait(max(0.0, min(_CHECK_SECONDS, deadline - time.monotonic()))):
            if raises:
                self._dead_threads.raise_next(at_end=False)
            # A dead thread may be being replaced at this moment: check twice.
            if idle and self._nothing_left():
                return self._result(self._outcome(), raises=raises)
            idle = self._nothing_left()
            if time.monotonic() >= deadline:
                return None
        return self._result(self._ending(), raises=raises)

    def _result(self, ending: Ending | None, *, raises: bool) -> Ending | None:
        """Return `ending` to the caller, or raise a failure that no caller has received."""
        if raises:
            self._dead_threads.raise_next(at_end=True)
        else:
            self._dead_threads.mark_seen()
        return ending

    def raise_unseen(self) -> None:
        """Raise a failure that no caller has received, after the instance has ended."""
        self._registry.await_ends_handled(GRACE_SECONDS)
        self._dead_threads.raise_next(at_end=True)

    def _outcome(self) -> Ending:
        """Return the ending of an instance that has nothing left to do."""
        outcome = self._dead_threads.outcome
        if outcome is Ending.FINISHED and self._registry.all_were_finished:
            return Ending.ALREADY_FINISHED
        return outcome

    def _nothing_left(self) -> bool:
        idle = self._registry.is_idle and not self._dead_threads.replacing
        return idle and self._ending() is None
