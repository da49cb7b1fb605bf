"""How a run comes to its end: it is asked to stop, or something goes wrong first."""

from __future__ import annotations

import threading

from arrester.agents.failure_log import say
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.errors import ArresterError


class BatchEnded(Exception):
    """What Spark sees of an end: one short line. The agent keeps the real exception."""


class StopRequested(ArresterError):
    """The run is to end at a boundary; its micro-batch stays undecided and is replayed."""


class Halt:
    """Seen by everything that a run does; whoever waits in it wakes at once when it is to end."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._stopping = threading.Event()
        #: Whatever went wrong first.
        self.raised: BaseException | None = None

    def ask(self) -> None:
        """Ask the run to end at the next boundary."""
        self._stopping.set()

    @property
    def asked(self) -> bool:
        """Whether somebody asked the run to end."""
        return self._stopping.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait; return at once, and True, when the run is asked to end."""
        return self._stopping.wait(min(seconds, threading.TIMEOUT_MAX))

    def check(self) -> None:
        """Raise StopRequested when the run is to end, for whatever reason."""
        if self._stopping.is_set() or self.raised is not None:
            raise StopRequested(f"{self._pipeline} is to end")

    def wait(self, wait_ms: int) -> None:
        """Wait before another attempt; a stop ends it at once, and then nothing is decided."""
        self.retry_after(wait_ms)
        self.check()

    def retry_after(self, wait_ms: int) -> bool:
        """Wait before another attempt; return at once, and True, when the run is asked to end."""
        if wait_ms:
            say(Saying.WAITING, f"{self._pipeline} waits {wait_ms} ms before another attempt")
        return self.pause(wait_ms / 1_000)

    def note(self, exc: BaseException) -> None:
        """Keep what went wrong first."""
        # An interrupted job after a stop request is the stop, not a failure of its own.
        if self.raised is None and not self._stopping.is_set():
            self.raised = exc

    def forgive(self) -> BaseException | None:
        """Return what went wrong and go on without it."""
        raised, self.raised = self.raised, None
        return raised
