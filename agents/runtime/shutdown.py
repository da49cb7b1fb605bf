"""Stop all threads of an instance in parallel, within one timeout."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from arrester.agents.runtime.thread_protocol import Thread

log = logging.getLogger("arrester.agent")

#: What cancelling the jobs of a thread may take after its timeout.
GRACE_SECONDS = 10.0


def stop_all(stopping: Sequence[Thread], *, timeout_seconds: float) -> bool:
    """Stop all threads in parallel; return whether each ended at a micro-batch boundary."""
    graceful: list[bool] = []

    def stop(thread: Thread) -> None:
        try:
            graceful.append(thread.stop(timeout_seconds=timeout_seconds))
        except Exception:  # the instance ends all the same
            log.exception("pipeline %r: its stop failed", thread.pipeline_name)

    helpers = [threading.Thread(target=stop, args=(each,), daemon=True) for each in stopping]
    for helper, thread in zip(helpers, stopping, strict=True):
        try:
            helper.start()
        except RuntimeError:  # Python 3.12 starts no threads once it is about to exit
            stop(thread)
    for helper in helpers:
        if helper.ident is not None:
            helper.join(timeout_seconds + GRACE_SECONDS)
    return len(graceful) == len(stopping) and all(graceful)
