"""The spans of an agent: decisions about failed records, stopped tasks, applied commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from arrester.domain.events import (
    CommandIssued,
    Event,
    Failure,
    FailuresCounted,
    FinalResponse,
    RecordFailed,
    Run,
    TaskDied,
    TaskPaused,
)
from arrester.domain.identity.names import task_digest
from arrester.domain.tracing import ids
from arrester.domain.tracing.ids import SpanId
from arrester.domain.tracing.tracer import Attribute, Span

#: The most causes, and the most stopped tasks, of one decision that have a span.
MOST_CAUSES, MOST_STOPS = 20, 100


class _Cause(NamedTuple):
    stage: str
    exception_class: str
    fingerprint: str
    response: FinalResponse


def decision_spans(
    application: str, events: Sequence[Event], *, input: str, began: datetime, ended: datetime
) -> Iterator[Span]:
    """Yield the spans of a decision about `input`: itself, its causes and the tasks it stopped.

    There are none if no record failed.
    """
    counts = _causes(events)
    run, at = events[0].run if events else None, events[0].occurred_at if events else began
    if not counts or run is None:
        return
    decision = ids.of_decision(application, run, at)
    stops = list(_stops(application, events))[:MOST_STOPS]
    shared = _of_run(application, run) | {"arrester.input": input}
    by_response = {
        f"arrester.records.{each.value.lower()}": sum(
            count for cause, count in counts.items() if cause.response is each
        )
        for each in FinalResponse
    }
    yield Span(
        name="decide",
        id=decision,
        began=began,
        ended=ended,
        links=tuple(stop for stop, _ in stops),
        attributes=shared | by_response | {"arrester.causes": len(counts)},
    )
    for cause, count in counts.most_common(MOST_CAUSES):
        yield Span(
            name=f"failed records: {cause.response}",
            id=ids.child_of(decision, " ".join(cause)),
            parent=decision,
            began=at,
            ended=ended,
            attributes=shared | _of_cause(cause) | {"arrester.records": count},
            error=f"{cause.exception_class} at {cause.stage}",
        )
    for stop, event in stops:
        yield _stopped(stop, event, decision, shared, began=began, ended=ended)


def _stopped(
    stop: SpanId,
    event: Event,
    decision: SpanId,
    shared: dict[str, Attribute | None],
    *,
    began: datetime,
    ended: datetime,
) -> Span:
    """Return the span of a task that stopped: the first one of the trace of its record."""
    data = event.data
    assert isinstance(data, TaskPaused | TaskDied) and data.failure is not None
    failure = data.failure
    response = FinalResponse.PAUSE if isinstance(data, TaskPaused) else FinalResponse.FAIL
    cause = _Cause(failure.stage, failure.exception_class, failure.fingerprint, response)
    same = stop.trace == decision.trace
    return Span(
        name="task PAUSED" if isinstance(data, TaskPaused) else "task DEAD",
        id=stop,
        parent=decision if same else None,
        links=() if same else (decision,),
        began=began,
        ended=ended,
        attributes=shared
        | _of_cause(cause)
        | {"arrester.task": data.task, "arrester.position": data.position},
        error=f"{failure.exception_class} at {failure.stage}",
    )


def apply_span(
    application: str,
    command: CommandIssued,
    *,
    instance: UUID,
    began: datetime,
    ended: datetime,
    refused: str | None,
) -> Span:
    """Return the span of a command that an instance applied or refused."""
    parent = command_id(application, command)
    return Span(
        name=f"apply {command.kind}",
        id=ids.child_of(parent, f"apply {instance} {began.isoformat()}"),
        parent=parent,
        began=began,
        ended=ended,
        attributes=of_command(application, command)
        | {"service.instance.id": str(instance), "arrester.refused": refused},
        error=refused,
    )


def command_id(application: str, command: CommandIssued) -> SpanId:
    """Return the span of a command."""
    digest = None
    if command.position is not None:
        pipeline, checkpoint = command.pipeline or "", command.checkpoint or ""
        digest = task_digest(application, pipeline, checkpoint, command.task)
    return ids.of_command(command.command, digest=digest, position=command.position)


def of_command(application: str, command: CommandIssued) -> dict[str, Attribute | None]:
    """Return the attributes of a command."""
    return {
        "arrester.application": application,
        "arrester.pipeline": command.pipeline,
        "arrester.command": str(command.command),
        "arrester.command.kind": command.kind.value,
        "arrester.task": command.task,
        "arrester.position": command.position,
    }


def stop_of(application: str, event: Event) -> SpanId | None:
    """Return the span of the stop that an event reports; None if no failed record stopped a
    task."""
    data, run = event.data, event.run
    if not isinstance(data, TaskPaused | TaskDied) or data.failure is None or run is None:
        return None
    digest = task_digest(application, run.pipeline, run.checkpoint, data.task)
    return ids.of_stop(application, run, event.occurred_at, digest=digest, position=data.position)


def _stops(application: str, events: Iterable[Event]) -> Iterator[tuple[SpanId, Event]]:
    for event in events:
        stop = stop_of(application, event)
        if stop is not None:
            yield stop, event


def _causes(events: Iterable[Event]) -> Counter[_Cause]:
    """Return the number of failed records by cause, also of those that failed again."""
    counts: Counter[_Cause] = Counter()
    for event in events:
        data = event.data
        if isinstance(data, RecordFailed):
            counts[_cause(data.failure, data.response)] += 1
        elif isinstance(data, FailuresCounted):
            counts[_cause(data.failure, data.response)] += data.count
    return counts


def _cause(failure: Failure, response: FinalResponse) -> _Cause:
    return _Cause(failure.stage, failure.exception_class, failure.fingerprint, response)


def _of_run(application: str, run: Run) -> dict[str, Attribute | None]:
    return {
        "arrester.application": application,
        "arrester.pipeline": run.pipeline,
        "arrester.checkpoint": run.checkpoint,
        "arrester.run": run.epoch,
    }


def _of_cause(cause: _Cause) -> dict[str, Attribute | None]:
    return {
        "arrester.stage": cause.stage,
        "arrester.fingerprint": cause.fingerprint,
        "arrester.response": cause.response.value,
        "exception.type": cause.exception_class,
    }
