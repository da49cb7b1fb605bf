"""Log lines about failures. The domain defines their levels."""

from __future__ import annotations

import logging

from arrester.controlplane.domain.error_policy.log_levels import LEVELS, Level, Saying

_log = logging.getLogger("arrester.failures")

# Python has no name for this level. A name that the application has set stays.
if logging.getLevelName(Level.TRACE) == f"Level {Level.TRACE}":
    logging.addLevelName(Level.TRACE, Level.TRACE.name)

_SENTENCES: dict[Saying, str] = {
    Saying.FAILURE_REPORTED: "%s",
    Saying.RETRYING: "%s: tried again",
    Saying.SOURCE_RETRYING: "%s; tried again from the checkpoint",
    Saying.FATAL_NOT_ASKED: "%s will hit every record: FAIL, no handler is asked",
    Saying.RETRY_REFUSED: "%s: RETRY was answered, which is not valid (any more): FAIL",
    Saying.HANDLER_BROKEN: "%s: the handler raised, or its answer is none: FAIL",
    Saying.OUTAGE: "%s",
    Saying.RECORD_SKIPPED: "%s left out",
    Saying.TASK_PAUSED: "%s: its task is PAUSED",
    Saying.PAUSE_REFUSED: "%s: PAUSE was answered where nothing can be held: FAIL",
    Saying.TASK_KILLED: "%s: its task is DEAD",
    Saying.KILLED_WHILE_STOPPING: "%s while the run stops: undecided, the next one runs it again",
    Saying.OUTPUT_SKIPPED: "%s left out",
    Saying.SINK_RETRYING: "%s: tried again",
    Saying.WAITING: "%s",
    Saying.DEAD_LETTER_FAILED: "%s",
    Saying.DEAD_LETTER_TOPIC_MISSING: "%s was missing, and is made",
    Saying.THREAD_REPLACED: "%s; a new thread takes its place",
    Saying.REPLACEMENT_REFUSED: "%s; its thread is not replaced",
    Saying.THREAD_SHUT_DOWN: "%s; its thread ends",
    Saying.INSTANCE_SHUT_DOWN: "%s; the instance ends",
}


def say(saying: Saying, what: str, *, exception: BaseException | None = None) -> None:
    """Log one sentence about `what`."""
    _log.log(LEVELS[saying], _SENTENCES[saying], what, exc_info=exception)
