"""Exceptions that end a run from within a micro-batch."""

from __future__ import annotations

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.outage import Outage
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.location import where
from arrester.agents.failures.payload import Redaction
from arrester.controlplane.domain.errors import ArresterError


class RecordFatal(ArresterError):
    """A failed record was answered FAIL: the run ends, and its micro-batch stays undecided."""

    def __init__(
        self, failed: FailedRecord, outage: Outage | None = None, *, redaction: Redaction
    ) -> None:
        problem = failed.problem
        first = "" if outage is None else f"{outage}; the first is that "
        super().__init__(
            f"{first}{failed.stage} failed at {where(failed, redaction)}: "
            f"{problem.exception_class}: {problem.message}"
        )
        self.failed = failed
        self.outage = outage


class SinkFailed(ArresterError):
    """The sink raised. Its exception is the cause; the run ends, and the replay obeys the
    decisions."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"the sink raised {type(raised).__name__}: {raised}")
        self.raised = raised


class DecisionBroken(ArresterError):
    """A replay cannot obey an earlier decision (errors.decisions=always); a new run tries again."""


def must_obey(evaluated: Evaluated, decision: Decision) -> None:
    """Raise DecisionBroken if a record fails that a durable decision has let pass.

    The record may already be written, so it cannot be left out as well.
    """
    if not evaluated.failed:
        return
    each = next(iter([*decision.examples, *decision.paused]), None)
    first = "" if each is None else f", the first at task {each.task!r}, position {each.position}"
    raise DecisionBroken(
        f"{evaluated.failed} records fail that had passed when it was decided about them{first}: "
        "a step is not deterministic"
    )
