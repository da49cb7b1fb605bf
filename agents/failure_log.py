"""Log lines about failures. The domain defines their levels."""

from __future__ import annotations

import logging

from arrester.domain.error_policy.log_levels import LEVELS, Level, LogMessage

_log = logging.getLogger("arrester.failures")

# Python has no name for this level. A name that the application has set stays.
if logging.getLevelName(Level.TRACE) == f"Level {Level.TRACE}":
    logging.addLevelName(Level.TRACE, Level.TRACE.name)

_SENTENCES: dict[LogMessage, str] = {
    LogMessage.FAILURE_REPORTED: "%s",
    LogMessage.RETRYING: "%s. It is tried again",
    LogMessage.SOURCE_RETRYING: "%s. It is tried again from the checkpoint",
    LogMessage.FATAL_FAILURE: "%s; it affects every record: FAIL, no handler is called",
    LogMessage.RETRY_REFUSED: "%s; RETRY was answered but is not, or no longer, valid: FAIL",
    LogMessage.HANDLER_BROKEN: "%s; the handler raised or gave no valid answer: FAIL",
    LogMessage.OUTAGE: "%s",
    LogMessage.RECORD_SKIPPED: "%s",
    LogMessage.TASK_PAUSED: "%s. The task is PAUSED",
    LogMessage.PAUSE_REFUSED: "%s; PAUSE was answered where nothing can be held: FAIL",
    LogMessage.TASK_KILLED: "%s. The task is DEAD",
    LogMessage.KILLED_WHILE_STOPPING: "%s; the run stops: undecided, the next run repeats it",
    LogMessage.OUTPUT_SKIPPED: "%s",
    LogMessage.SINK_RETRYING: "%s. It is tried again",
    LogMessage.WAITING: "%s",
    LogMessage.DEAD_LETTER_FAILED: "%s",
    LogMessage.DEAD_LETTER_TOPIC_MISSING: "%s was missing and has been created",
    LogMessage.THREAD_REPLACED: "%s. A new thread takes its place",
    LogMessage.REPLACEMENT_REFUSED: "%s. Its thread is not replaced",
    LogMessage.THREAD_SHUT_DOWN: "%s. Its thread ends",
    LogMessage.INSTANCE_SHUT_DOWN: "%s. The instance ends",
}


def log_failure(message: LogMessage, what: str, *, exception: BaseException | None = None) -> None:
    """Log one sentence about `what`, which may end with a period of its own."""
    sentence = _SENTENCES[message]
    if ". " in sentence:
        what = what.removesuffix(".")
    _log.log(LEVELS[message], sentence, what, exc_info=exception)
