"""How a run ends: its last entry, and what its agent receives."""

from __future__ import annotations

from datetime import datetime

from arrester.agents.dead_letters.rejection import DeadLettersNotWritten
from arrester.agents.decisions.end_reasons import (
    RecordFatal,
    SinkFailed,
    class_and_message,
    reason_of,
)
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.failures.fingerprints import failure_at, failure_of
from arrester.agents.held.limits import HeldLimitExceeded
from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import Ledger
from arrester.agents.runtime.thread_protocol import ThreadDeath
from arrester.agents.spark.errors import Problem, StepFailed
from arrester.controlplane.domain.events import Event, Failure, Response, TaskDied, ThreadDied

#: For a task whose executors were all lost Spark raises this text only.
_EXECUTORS_LOST = "ExecutorLostFailure"


def death_of(exc: BaseException | None, *, stopped: bool) -> ThreadDeath:
    """Return how a run ended: by `exc`, by a stop, or because its query finished."""
    if exc is None:
        reason = "stopped" if stopped else "the query has come to its end"
        return ThreadDeath(reason, finished=not stopped)
    if isinstance(exc, Superseded):
        return superseded(exc)
    if isinstance(exc, HeldLimitExceeded) and exc.stops:
        return ThreadDeath(str(exc), finished=True)
    raised = exc.raised if isinstance(exc, SinkFailed | StepFailed | DeadLettersNotWritten) else exc
    why = failure_of(exc.failed) if isinstance(exc, RecordFatal) else _failure(exc)
    reason = exc.reason if isinstance(exc, StepFailed) else reason_of(exc)
    return ThreadDeath(reason, exception=raised, failure=why)


def superseded(exc: Superseded) -> ThreadDeath:
    """Return the death of a run whose checkpoint a newer one owns."""
    return ThreadDeath(str(exc), exception=exc, superseded=True)


def ending_entry(
    death: ThreadDeath,
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
            event_factory.record_failed(failed, Response.FAIL, at, stopped_by),
            event_factory.event(died, at),
        ]
    ended = ThreadDied(reason=death.reason, failure=death.failure)
    return Entry(
        kind=EntryKind.STOPPED if exc is None else EntryKind.DIED,
        at=at,
        epoch=event_factory.run.epoch,
        events=(*events, event_factory.event(ended, at)),
    )


def _failure(exc: BaseException) -> Failure:
    """Return the failure that ended a run without a failing record: of source, sink or agent."""
    if isinstance(exc, StepFailed):
        return failure_at(exc.stage, exc.reported)
    if isinstance(exc, DeadLettersNotWritten):
        return failure_at("produce", exc.problem)
    raised = exc.raised if isinstance(exc, SinkFailed) else exc
    name, message = class_and_message(raised)
    stage = "produce" if isinstance(exc, SinkFailed) else "source"
    if stage == "source" and _EXECUTORS_LOST in message:
        # A source and its native steps run in one job: which of them failed is unknown.
        stage = "unknown"
    return failure_at(stage, Problem(exception_class=name, message=message[:4_000]))
