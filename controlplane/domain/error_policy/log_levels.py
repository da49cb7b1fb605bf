"""What is logged about failures, and the level. The agent has the sentences."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Level(IntEnum):
    """Levels with the numbers of Python's logging; TRACE is below its DEBUG."""

    TRACE = 5
    DEBUG = 10
    WARN = 30
    ERROR = 40


class Saying(StrEnum):
    """The subjects of log lines."""

    #: A failed record, its stage and its exception (errors.log.enable).
    FAILURE_REPORTED = "FAILURE_REPORTED"
    RETRYING = "RETRYING"
    WAITING = "WAITING"
    #: An attempt of a batch sink, or of the source, that will be repeated.
    SINK_RETRYING = "SINK_RETRYING"
    SOURCE_RETRYING = "SOURCE_RETRYING"
    #: A class that affects every record: no handler is called.
    FATAL_NOT_ASKED = "FATAL_NOT_ASKED"
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


LEVELS: dict[Saying, Level] = {
    Saying.FAILURE_REPORTED: Level.ERROR,
    Saying.RETRYING: Level.TRACE,
    Saying.WAITING: Level.DEBUG,
    Saying.SINK_RETRYING: Level.ERROR,
    Saying.SOURCE_RETRYING: Level.WARN,
    Saying.FATAL_NOT_ASKED: Level.DEBUG,
    Saying.RETRY_REFUSED: Level.WARN,
    Saying.HANDLER_BROKEN: Level.ERROR,
    Saying.OUTAGE: Level.ERROR,
    Saying.RECORD_SKIPPED: Level.WARN,
    # As in KIP-210 for CONTINUE of the production handler; the ERROR line belongs to
    # errors.log.enable.
    Saying.OUTPUT_SKIPPED: Level.DEBUG,
    Saying.TASK_PAUSED: Level.WARN,
    Saying.PAUSE_REFUSED: Level.WARN,
    Saying.TASK_KILLED: Level.ERROR,
    Saying.KILLED_WHILE_STOPPING: Level.WARN,
    Saying.DEAD_LETTER_FAILED: Level.ERROR,
    Saying.DEAD_LETTER_TOPIC_MISSING: Level.ERROR,
    Saying.THREAD_REPLACED: Level.WARN,
    Saying.REPLACEMENT_REFUSED: Level.WARN,
    Saying.THREAD_SHUT_DOWN: Level.ERROR,
    Saying.INSTANCE_SHUT_DOWN: Level.ERROR,
}
