"""Stop all threads of an instance in parallel, within one timeout."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import datetime

from arrester.agents.runtime.thread_protocol import Thread
from arrester.domain.python_versions import UTC

log = logging.getLogger("arrester.agent")

#: How long a stop may take before a log line names what it waits for.
SOON_SECONDS = 2.0
#: What cancelling the jobs of a thread may take after its timeout.
GRACE_SECONDS = 10.0


def _join(helpers: Sequence[threading.Thread], deadline: float) -> None:
    for helper in helpers:
        helper.join(max(0.0, deadline - time.monotonic()))


def _log_waiting(thread: Thread, timeout_seconds: float) -> None:
    """Log what a stop waits for, if a thread still processes something."""
    current = thread.in_progress
    if current is not None:
        seconds = (datetime.now(UTC) - current.since).total_seconds()
        log.warning(
            "pipeline %r: the stop waits for %s, phase %s, which has run for %d s; it waits for at "
            "most %d s (error.shutdown.timeout.ms)",
            *(thread.pipeline_name, current.input, current.phase, seconds, timeout_seconds),
        )


def stop_all(stopping: Sequence[Thread], reason: str, *, timeout_seconds: float) -> bool:
    """Stop all threads in parallel; return whether each ended at a micro-batch boundary.

    `reason` is the reason of their ends.
    """
    graceful: list[bool] = []

    def stop(thread: Thread) -> None:
        try:
            graceful.append(thread.stop(reason, timeout_seconds=timeout_seconds))
        except Exception:  # the instance ends all the same
            log.exception("pipeline %r: its stop failed", thread.pipeline_name)

    helpers = [threading.Thread(target=stop, args=(each,), daemon=True) for each in stopping]
    for helper, thread in zip(helpers, stopping, strict=True):
        try:
            helper.start()
        except RuntimeError:  # Python 3.12 starts no threads once it is about to exit
            stop(thread)
    waiting = [helper for helper in helpers if helper.ident is not None]
    began = time.monotonic()
    _join(waiting, began + SOON_SECONDS)
    for thread in stopping:
        _log_waiting(thread, timeout_seconds)
    _join(waiting, began + timeout_seconds + GRACE_SECONDS)
    return len(graceful) == len(stopping) and all(graceful)
