"""How a run ends: its last entry, and what its agent receives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from arrester.agents.dead_letters.queue import DeadLettersNotWritten
from arrester.agents.decisions.end_reasons import class_and_message, reason_of
from arrester.agents.decisions.events import EventFactory
from arrester.agents.decisions.fatal import RecordFatal, SinkFailed
from arrester.agents.failures.causes import failure, failure_of
from arrester.agents.held.limits import HeldLimitExceeded
from arrester.agents.journal.entries import Entry, Kind
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.state import Ledger
from arrester.agents.spark.errors import Problem, StepFailed
from arrester.controlplane.domain.events import Event, Failure, Response, TaskDied, ThreadDied

#: For a task whose executors were all lost Spark raises this text only.
_EXECUTORS_LOST = "ExecutorLostFailure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDeath:
    """How a run ended other than by `stop`; passed on once, after everything else."""

    pipeline: str
    reason: str
    exception: BaseException | None = None
    failure: Failure | None = None
    #: A newer run owns the checkpoint: no handler is called, no thread replaced.
    superseded: bool = False
    #: The query finished (`availableNow`) without a failure.
    finished: bool = False


def death_of(pipeline: str, exc: BaseException | None, *, stopped: bool) -> ThreadDeath:
    """Return how a run ended: by `exc`, by a stop, or because its query finished."""
    if exc is None:
        reason = "stopped" if stopped else "the query has come to its end"
        return ThreadDeath(pipeline=pipeline, reason=reason, finished=not stopped)
    if isinstance(exc, Superseded):
        return superseded(pipeline, exc)
    if isinstance(exc, HeldLimitExceeded) and exc.stops:
        return ThreadDeath(pipeline=pipeline, reason=str(exc), finished=True)
    raised = exc.raised if isinstance(exc, SinkFailed | StepFailed | DeadLettersNotWritten) else exc
    blamed = failure_of(exc.failed) if isinstance(exc, RecordFatal) else _failure(exc)
    reason = exc.reason if isinstance(exc, StepFailed) else reason_of(exc)
    return ThreadDeath(pipeline=pipeline, reason=reason, exception=raised, failure=blamed)


def superseded(pipeline: str, exc: Superseded) -> ThreadDeath:
    """Return the death of a run whose checkpoint a newer one owns."""
    return ThreadDeath(pipeline=pipeline, reason=str(exc), exception=exc, superseded=True)


def ending_entry(
    death: ThreadDeath,
    exc: BaseException | None,
    *,
    event_factory: EventFactory,
    ledger: Ledger,
    at: datetime,
) -> Entry:
    """Return the entry that ends a run; a task died only if a record caused the end."""
    told: list[Event] = []
    if isinstance(exc, RecordFatal):
        failed = exc.failed
        blame = ledger.task(failed.task).stopped_by
        died = TaskDied(task=failed.task, position=failed.position, failure=failure_of(failed))
        if exc.outage is not None:
            told.append(event_factory.outage(exc.outage, at))
        told += [
            event_factory.failed(failed, Response.FAIL, at, blame),
            event_factory.event(died, at),
        ]
    ended = ThreadDied(reason=death.reason, failure=death.failure)
    return Entry(
        kind=Kind.STOPPED if exc is None else Kind.DIED,
        at=at,
        epoch=event_factory.run.epoch,
        events=(*told, event_factory.event(ended, at)),
    )


def _failure(exc: BaseException) -> Failure:
    """Return the failure that ended a run without a failing record: of source, sink or agent."""
    if isinstance(exc, StepFailed):
        return failure(exc.stage, exc.told)
    if isinstance(exc, DeadLettersNotWritten):
        return failure("produce", exc.problem)
    raised = exc.raised if isinstance(exc, SinkFailed) else exc
    name, message = class_and_message(raised)
    stage = "produce" if isinstance(exc, SinkFailed) else "source"
    if stage == "source" and _EXECUTORS_LOST in message:
        # A source and its native steps run in one job: which of them failed is unknown.
        stage = "unknown"
    return failure(stage, Problem(exception_class=name, message=message[:4_000]))
