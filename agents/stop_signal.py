"""The end of a run: a requested stop, or the first exception."""

from __future__ import annotations

import threading

from arrester.agents.failure_log import log_failure
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.errors import ArresterError


class BatchEnded(Exception):
    """What Spark shows of a failed run: one short line. The agent keeps the real exception."""


class BatchStopped(Exception):
    """What Spark gets at a normal end: its micro-batch is not committed, and nothing failed."""


class StopRequested(ArresterError):
    """The run ends at a boundary. Its micro-batch stays undecided and is replayed."""


class StopSignal:
    """Shared by all parts of a run. Every wait in it ends at once if the run is to end."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._stopping = threading.Event()
        self._forced = threading.Event()
        #: The first exception.
        self.exception: BaseException | None = None
        #: Why the end of the run was requested first; None: it was not.
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Request the end of the run at the next boundary, for a reason in words."""
        self.reason = self.reason or reason
        self._stopping.set()

    def force(self) -> None:
        """Request that the end does not wait for a running sink; it has to be requested, too."""
        self._forced.set()

    @property
    def is_forced(self) -> bool:
        """Whether the end does not wait for a running sink."""
        return self._forced.is_set()

    @property
    def is_requested(self) -> bool:
        """Whether the end of the run was requested."""
        return self._stopping.is_set()

    def sleep(self, seconds: float) -> bool:
        """Wait; return True at once if the end of the run is requested."""
        return self._stopping.wait(min(seconds, threading.TIMEOUT_MAX))

    def check(self) -> None:
        """Raise StopRequested if the run is to end for any reason."""
        if self._stopping.is_set() or self.exception is not None:
            raise StopRequested(f"{self._pipeline} is to end")

    def wait(self, wait_ms: int) -> None:
        """Wait before another attempt. A stop ends the wait, and nothing is decided."""
        self.retry_after(wait_ms)
        self.check()

    def retry_after(self, wait_ms: int) -> bool:
        """Wait before another attempt; return True at once if the end of the run is requested."""
        if wait_ms:
            log_failure(
                LogMessage.WAITING, f"{self._pipeline} waits {wait_ms} ms before another attempt"
            )
        return self.sleep(wait_ms / 1_000)

    def record(self, exc: BaseException) -> None:
        """Record the first exception."""
        # After a stop request an interrupted job is part of the stop, not a failure.
        if self.exception is None and not self._stopping.is_set():
            self.exception = exc

    def clear_exception(self) -> None:
        """Continue without the first exception."""
        self.exception = None
