"""The spans of decisions: few, linked to each other, and without records."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from arrester.domain.events import (
    CommandIssued,
    CommandKind,
    Event,
    FailuresCounted,
    FinalResponse,
    TaskPaused,
)
from arrester.domain.state.states import CommandState, TaskState, TaskStatus
from arrester.domain.tracing.server_spans import command_spans, fold_spans
from arrester.domain.tracing.spans import MOST_STOPS, decision_spans
from arrester.domain.tracing.tracer import Span
from tests import histories
from tests.histories import APPLICATION, FAILURE, JFK, NOON, RUN

COMMAND = UUID("0193476e-0000-7000-8000-0000000000c0")

LATER = NOON + timedelta(seconds=3)


def decided(events: list[Event]) -> list[Span]:
    events = [replace(each, occurred_at=NOON) for each in events]
    spans = decision_spans(APPLICATION, events, input="batch 7", began=NOON, ended=LATER)
    return list(spans)


def test_a_decision_without_failed_records_has_no_span() -> None:
    assert decided([]) == []
    assert decided(histories.started()) == []


def test_a_decision_has_one_span_for_each_cause() -> None:
    more = FailuresCounted(
        task="JFK",
        failure=FAILURE,
        response=FinalResponse.CONTINUE,
        count=1_000_000,
        first_position=9,
        last_position=2_000_000,
    )
    decision, cause = decided([histories.failed(1), histories.event(more)])
    assert (cause.name, cause.parent) == ("failed records: CONTINUE", decision.id)
    assert cause.attributes["arrester.records"] == 1_000_001
    assert decision.attributes["arrester.records.continue"] == 1_000_001
    # Messages may quote records.
    assert not any(FAILURE.message in str(each.attributes) for each in (decision, cause))


def test_a_thousand_stopped_tasks_are_a_hundred_spans() -> None:
    events = [each for number in range(1000) for each in histories.paused(key=f"K{number}")]
    decision, _, *stops = decided(events)
    assert len(stops) == len(decision.links) == MOST_STOPS
    assert len({each.id.trace for each in stops}) == MOST_STOPS
    assert all(each.links == (decision.id,) for each in stops)


def test_the_stop_of_a_task_without_positions_is_in_the_trace_of_its_decision() -> None:
    event = histories.event(TaskPaused(task="JFK", position=None, failure=FAILURE))
    decision, _, stop = decided([histories.failed(1), event])
    assert (stop.id.trace, stop.parent, stop.links) == (decision.id.trace, decision.id, ())

    # A command for it has a trace of its own, and links to it.
    data = CommandIssued(
        command=COMMAND, kind=CommandKind.RESUME_TASK, actor="ada", expires_at=LATER
    )
    issued = histories.stored([histories.event(data, run=None)])
    task = TaskState(id=JFK, status=TaskStatus.PAUSED, since=NOON, epoch=RUN.epoch, failure=FAILURE)
    command = CommandState(
        id=COMMAND,
        application=APPLICATION,
        kind=data.kind,
        actor="ada",
        task=JFK,
        issued_at=NOON,
        expires_at=LATER,
    )
    (span,) = command_spans(issued, {COMMAND: command}, {JFK.digest: task}, began=NOON, ended=NOON)
    assert (span.parent, span.links) == (None, (stop.id,))
    assert span.id.trace != stop.id.trace


def test_failed_records_as_columns_are_one_fold() -> None:
    events = [replace(histories.failed(number), occurred_at=NOON) for number in range(50)]
    decision = decided(events)[0]
    (span,) = fold_spans(histories.stored_elements(events), {}, began=NOON, ended=LATER)
    assert (span.parent, span.attributes["arrester.events"]) == (decision.id, 50)
