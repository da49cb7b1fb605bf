"""What ends a run from within a micro-batch."""

from __future__ import annotations

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.outage import Outage
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.location import where
from arrester.agents.failures.payload import Redaction
from arrester.controlplane.domain.errors import ArresterError


class RecordFatal(ArresterError):
    """A failed record was answered FAIL: the run ends, nothing of its micro-batch is decided."""

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
    """The author's sink raised; its exception is the cause. The run ends, the replay obeys."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"the sink raised {type(raised).__name__}: {raised}")
        self.raised = raised


class DecisionBroken(ArresterError):
    """A replay cannot obey what was decided (errors.decisions=always); a new run tries again."""


def must_obey(evaluated: Evaluated, decision: Decision) -> None:
    """Raise DecisionBroken where a record fails that a durable decision has let pass.

    It may be written already: to leave it out now would be both.
    """
    if not evaluated.failed:
        return
    each = next(iter([*decision.examples, *decision.paused]), None)
    first = "" if each is None else f", the first at task {each.task!r}, position {each.position}"
    raise DecisionBroken(
        f"{evaluated.failed} records fail that had passed when it was decided about them{first}: "
        "a step is not deterministic"
    )
