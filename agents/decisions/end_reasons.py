"""Exceptions that end a run from within a micro-batch, and the reason of an end in one line."""

from __future__ import annotations

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.event_factory import first_line
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.outage import Outage
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction, location_of
from arrester.agents.spark.jvm.exceptions.problems import java_line
from arrester.domain.errors import ArresterError
from arrester.domain.plural import plural

_CHARACTERS = 500


class RecordFatal(ArresterError):
    """A failed record was answered FAIL: the run ends, and its micro-batch stays undecided."""

    def __init__(
        self, failed: FailedRecord, outage: Outage | None = None, *, redaction: Redaction
    ) -> None:
        problem = failed.problem
        first = "" if outage is None else f"{outage}; the first is that "
        super().__init__(
            f"{first}{failed.stage} failed at {location_of(failed, redaction)}: "
            f"{problem.exception_class}: {problem.message}"
        )
        self.failed = failed
        self.outage = outage


class SinkFailed(ArresterError):
    """The sink raised: the run ends, and the replay obeys the decisions."""

    def __init__(self, raised: BaseException, *, handler_fault: str | None = None) -> None:
        self.raised = raised
        #: What is wrong with the answer of the sink's handler, in parentheses and one line.
        fault = None if handler_fault is None else first_line(handler_fault)[:_CHARACTERS]
        self.why = "" if fault is None else f" (FAIL, since {fault})"
        super().__init__(f"the sink raised {type(raised).__name__}: {raised}{self.why}")


class DecisionBroken(ArresterError):
    """A replay cannot obey an earlier decision (errors.decisions=always); a new run tries again."""


def check_replay(evaluated: Evaluated, decision: Decision) -> None:
    """Raise DecisionBroken if a record fails now that was decided to pass, and may be written."""
    if not evaluated.failed:
        return
    records = [*decision.examples, *decision.stopping]
    at = [f", the first at task {each.task!r}, position {each.position}" for each in records[:1]]
    raise DecisionBroken(
        f"{plural(evaluated.failed, 'record')} failed after a decision that they pass"
        f"{''.join(at)}: a step is not deterministic"
    )


def reason_of(exc: BaseException) -> str:
    """Return the message of an exception; of a Java exception, its cause in one line."""
    if isinstance(exc, SinkFailed):
        raised = exc.raised
        name = "" if java_line(raised) is not None else f"{type(raised).__name__}: "
        return f"the sink raised {name}{reason_of(raised)}"[:_CHARACTERS] + exc.why
    java = java_line(exc)
    return first_line(str(exc)) if java is None else java[:_CHARACTERS]
