"""The error policy of a stage, and its terms."""

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
    """The valid answers of a handler."""

    CONTINUE = "CONTINUE"
    RESUME = "CONTINUE"  # its name in today's Kafka Streams; one response
    RETRY = "RETRY"
    PAUSE = "PAUSE"
    FAIL = "FAIL"


class Scope(StrEnum):
    """errors.failure.scope: what FAIL ends."""

    THREAD = "thread"
    TASK = "task"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The error policy of one stage."""

    #: Whether there is a handler.
    handled: bool = False
    retry: RetryPolicy = RetryPolicy()
    tolerance: Tolerance = Tolerance()
    table: Table = DEFAULT_TABLE
    #: Answers by the name of a class or condition, before any handler is called.
    by_class: Mapping[str, Answer] = {}

    def answer_for(self, cause: Cause) -> Answer | None:
        """Return the declared answer to such a failure; the most specific name wins."""
        name = known_as(cause, self.by_class)
        return None if name is None else self.by_class[name]
