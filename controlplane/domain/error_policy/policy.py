"""What was said about failures of a stage, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from arrester.controlplane.domain.error_policy.classify import DEFAULT_TABLE, Table
from arrester.controlplane.domain.error_policy.exception_identity import Cause, known_as
from arrester.controlplane.domain.error_policy.retry import RetryPolicy
from arrester.controlplane.domain.error_policy.tolerance import Tolerance


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


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about failures of one stage."""

    #: Whether there is a handler to ask.
    handled: bool = False
    retry: RetryPolicy = RetryPolicy()
    tolerance: Tolerance = Tolerance()
    table: Table = DEFAULT_TABLE
    #: Answers by the name of a class or condition, before any handler is asked.
    by_class: Mapping[str, Answer] = {}

    def answer_for(self, cause: Cause) -> Answer | None:
        """Return what was said beforehand of such a failure; the most specific name wins."""
        name = known_as(cause, self.by_class)
        return None if name is None else self.by_class[name]
