"""How a run ends: its last entry, and what its agent receives."""

from __future__ import annotations

from datetime import datetime

from arrester.agents.dead_letters.rejection import DeadLettersNotWritten
from arrester.agents.decisions.end_reasons import RecordFatal, SinkFailed, reason_of
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.failures.fingerprints import failure_at, failure_of
from arrester.agents.held.limits import HeldLimitExceeded
from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import Ledger
from arrester.agents.runtime.thread_protocol import ThreadEnd
from arrester.agents.spark.errors import Problem, StepFailed
from arrester.agents.spark.jvm.exceptions.problems import problem_of_end
from arrester.domain.events import Event, FinalResponse, TaskDied

#: For a task whose executors were all lost Spark raises this text only.
_EXECUTORS_LOST = "ExecutorLostFailure"


def end_of(exc: BaseException | None, *, stopped: str | None) -> ThreadEnd:
    """Return how a run ended: by `exc`, by a stop for a reason, or because its query finished."""
    if exc is None:
        reason = stopped or "the query has come to its end"
        return ThreadEnd(reason, finished=stopped is None)
    if isinstance(exc, Superseded):
        return superseded(exc)
    if isinstance(exc, HeldLimitExceeded) and exc.stops:
        return ThreadEnd(str(exc), finished=True)
    raised = exc.raised if isinstance(exc, SinkFailed | StepFailed | DeadLettersNotWritten) else exc
    reason = exc.reason if isinstance(exc, StepFailed) else reason_of(exc)
    if isinstance(exc, RecordFatal):
        return ThreadEnd(reason, exception=raised, failure=failure_of(exc.failed))
    stage, problem = _stage_and_problem(exc)
    failure = failure_at(stage, problem)
    return ThreadEnd(
        reason,
        line=exc.line if isinstance(exc, StepFailed) else None,
        exception=raised,
        failure=failure,
        stack=problem.stack,
        recordless=True,
    )


def superseded(exc: Superseded) -> ThreadEnd:
    """Return the end of a run whose checkpoint a newer one owns."""
    return ThreadEnd(str(exc), exception=exc, superseded=True)


def ending_entry(
    end: ThreadEnd,
    exc: BaseException | None,
    *,
    event_factory: EventFactory,
    ledger: Ledger,
    at: datetime,
) -> Entry:
    """Return the entry that ends a run; a task died only if a record caused the end."""
    events: list[Event] = []
    if isinstance(exc, RecordFatal):
        failed = exc.failed
        stopped_by = ledger.task(failed.task).stopped_by
        died = TaskDied(task=failed.task, position=failed.position, failure=failure_of(failed))
        if exc.outage is not None:
            events.append(event_factory.outage(exc.outage, at))
        events += [
            event_factory.record_failed(failed, FinalResponse.FAIL, at, stopped_by),
            event_factory.event(died, at),
        ]
    return Entry(
        kind=EntryKind.STOPPED if exc is None else EntryKind.DIED,
        at=at,
        epoch=event_factory.run.epoch,
        events=(*events, event_factory.event(end.event, at, body=end.body)),
    )


def _stage_and_problem(exc: BaseException) -> tuple[str, Problem]:
    """Return what ended a run without a failed record: a failure of source, step, sink or agent."""
    if isinstance(exc, StepFailed):
        return exc.stage, exc.reported
    if isinstance(exc, DeadLettersNotWritten):
        return "produce", exc.problem
    if isinstance(exc, SinkFailed):
        return "produce", problem_of_end(exc.raised)
    problem = problem_of_end(exc)
    # A source and its native steps run in one job: which of them failed is unknown.
    return "unknown" if _EXECUTORS_LOST in problem.message else "source", problem
