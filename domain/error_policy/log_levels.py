"""What is logged about failures, and the level. The agent has the sentences."""

from __future__ import annotations

from enum import IntEnum

from arrester.domain.python_versions import StrEnum


class Level(IntEnum):
    """Levels with the numbers of Python's logging; TRACE is below its DEBUG."""

    TRACE = 5
    DEBUG = 10
    WARN = 30
    ERROR = 40


class LogMessage(StrEnum):
    """The subjects of log lines."""

    #: A failed record, its stage and its exception (errors.log.enable).
    FAILURE_REPORTED = "FAILURE_REPORTED"
    RETRYING = "RETRYING"
    WAITING = "WAITING"
    #: An attempt of a batch sink, or of the source, that will be repeated.
    SINK_RETRYING = "SINK_RETRYING"
    SOURCE_RETRYING = "SOURCE_RETRYING"
    #: A class that affects every record: no handler is called.
    FATAL_FAILURE = "FATAL_FAILURE"
    #: RETRY was answered although it is not valid, or no longer.
    RETRY_REFUSED = "RETRY_REFUSED"
    #: The handler raised, or gave an invalid answer.
    HANDLER_BROKEN = "HANDLER_BROKEN"
    #: Too many records failed alike to be bad records.
    OUTAGE = "OUTAGE"
    RECORD_SKIPPED = "RECORD_SKIPPED"
    OUTPUT_SKIPPED = "OUTPUT_SKIPPED"
    TASK_PAUSED = "TASK_PAUSED"
    #: PAUSE was answered although nothing can be held.
    PAUSE_REFUSED = "PAUSE_REFUSED"
    TASK_KILLED = "TASK_KILLED"
    KILLED_WHILE_STOPPING = "KILLED_WHILE_STOPPING"
    DEAD_LETTER_FAILED = "DEAD_LETTER_FAILED"
    DEAD_LETTER_TOPIC_MISSING = "DEAD_LETTER_TOPIC_MISSING"
    THREAD_REPLACED = "THREAD_REPLACED"
    REPLACEMENT_REFUSED = "REPLACEMENT_REFUSED"
    THREAD_SHUT_DOWN = "THREAD_SHUT_DOWN"
    INSTANCE_SHUT_DOWN = "INSTANCE_SHUT_DOWN"


#: Messages that are not listed have the level ERROR.
LEVELS: dict[LogMessage, Level] = dict.fromkeys(LogMessage, Level.ERROR) | {
    LogMessage.RETRYING: Level.TRACE,
    LogMessage.WAITING: Level.DEBUG,
    LogMessage.SOURCE_RETRYING: Level.WARN,
    LogMessage.FATAL_FAILURE: Level.DEBUG,
    LogMessage.RETRY_REFUSED: Level.WARN,
    LogMessage.RECORD_SKIPPED: Level.WARN,
    # As in KIP-210 for CONTINUE of the production handler; the ERROR line belongs to
    # errors.log.enable.
    LogMessage.OUTPUT_SKIPPED: Level.DEBUG,
    LogMessage.TASK_PAUSED: Level.WARN,
    LogMessage.PAUSE_REFUSED: Level.WARN,
    LogMessage.KILLED_WHILE_STOPPING: Level.WARN,
    LogMessage.THREAD_REPLACED: Level.WARN,
    LogMessage.REPLACEMENT_REFUSED: Level.WARN,
}
