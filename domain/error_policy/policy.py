"""The error policy of a stage, its terms, and the outage rule."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from arrester.domain.error_policy.classify import DEFAULT_TABLE, ClassificationTable
from arrester.domain.error_policy.exception_identity import Cause, known_as
from arrester.domain.error_policy.retry import RetryPolicy
from arrester.domain.error_policy.tolerance import Tolerance
from arrester.domain.events import FinalResponse
from arrester.domain.python_versions import StrEnum


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


class Response(StrEnum):
    """The response of a handler to a failed record (KIP-210, KIP-990); RETRY is no final one."""

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
    table: ClassificationTable = DEFAULT_TABLE
    #: Answers by the name of a class or condition, before any handler is called.
    by_class: Mapping[str, Response] = {}

    def answer_for(self, cause: Cause) -> Response | None:
        """Return the declared answer to such a failure; the most specific name wins."""
        name = known_as(cause, self.by_class)
        return None if name is None else self.by_class[name]


class OutagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """errors.outage.*: when failures with one cause are an outage, and the response.

    Without a share there are no outages: each record is decided individually.
    """

    #: An outage is more than this share of a micro-batch.
    share: float | None = None
    #: Fewer failed records are never an outage.
    minimum: int = 100
    #: PAUSE stops each task at its first such record, FAIL ends the thread.
    response: FinalResponse = FinalResponse.PAUSE

    def is_outage(self, failed: int, records: int) -> bool:
        """Whether `failed` of `records` with one cause are an outage."""
        return self.share is not None and failed >= self.at_least(records)

    def at_least(self, records: int) -> int:
        """Return the number of failed records from which they are an outage."""
        return max(1, self.minimum, math.floor((self.share or 0) * records) + 1)
