"""What was said about failures of a stage: the words for it, and whose word counts."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from controlplane.domain.classify import DEFAULT_TABLE, Table
from controlplane.domain.retry import RetryPolicy
from controlplane.domain.tolerance import Tolerance

T = TypeVar("T")


class StageKind(StrEnum):
    """The kinds of stages."""

    SOURCE = "source"
    DESERIALIZE = "deserialize"
    PROCESS = "process"
    PRODUCE = "produce"

    @classmethod
    def of(cls, stage: str) -> StageKind:
        """Return the kind of a stage by its name: `process:validate` is a PROCESS."""
        return cls(stage.partition(":")[0])


class Answer(StrEnum):
    """What a handler may answer."""

    CONTINUE = "CONTINUE"
    RESUME = "CONTINUE"  # its name in today's Kafka Streams; one response
    RETRY = "RETRY"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class Scope(StrEnum):
    """errors.failure.scope: what FAIL takes down."""

    THREAD = "thread"
    TASK = "task"


class PolicySource(StrEnum):
    """Who set the policy in force; the first one that did wins."""

    COMMAND = "COMMAND"
    ON_ERROR = "ON_ERROR"
    CONFIGURATION = "CONFIGURATION"
    DEFAULT = "DEFAULT"


def in_force(
    *, command: T | None = None, on_error: T | None = None, configured: T | None = None
) -> tuple[T | None, PolicySource]:
    """Return the policy in force and who set it; None by DEFAULT means FAIL."""
    if command is not None:
        return command, PolicySource.COMMAND
    if on_error is not None:
        return on_error, PolicySource.ON_ERROR
    if configured is not None:
        return configured, PolicySource.CONFIGURATION
    return None, PolicySource.DEFAULT


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about failures of one stage."""

    #: Whether there is a handler to ask.
    handled: bool = False
    #: Answers by the name of an exception class, for which no handler is asked.
    on: dict[str, Answer] = {}
    retry: RetryPolicy = RetryPolicy()
    tolerance: Tolerance = Tolerance()
    table: Table = DEFAULT_TABLE
    scope: Scope = Scope.THREAD
