"""Spans and log lines of the server: folds, issued commands and the answers of agents."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from uuid import UUID

import pytest
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, celery
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.domain.errors import CommandForbidden
from arrester.domain.events import CommandApplied, CommandDelivered, Event
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandState
from arrester.domain.tracing import tracer
from arrester.domain.tracing.spans import apply_span, decision_spans
from arrester.domain.tracing.tracer import SERVER, Span, tracer_of
from arrester.domain.wire import command_codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, JFK, NOON
from tests.otlp_receiver import Collector, collecting

pytestmark = pytest.mark.usefixtures("fresh_database")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Return a collector that receives the spans of this process."""
    with collecting() as collector:
        for name, value in collector.variables.items():
            monkeypatch.setenv(name, value)
        tracer.close(SERVER)
        yield collector
        tracer.close(SERVER)


def fold(redis: Redis, events: list[Event], *, batch: UUID | None = None) -> None:
    streams.send(redis, events, batch=batch)
    fold_stream.fold_stream(APPLICATION)


def answered(command: CommandState) -> list[Event]:
    """Return the events of an agent that has fetched and applied a command."""
    delivered, applied = CommandDelivered(command=command.id), CommandApplied(command=command.id)
    return [histories.event(each, run=None) for each in (delivered, applied)]


def spans_of_agent(redis: Redis, events: list[Event]) -> dict[str, Span]:
    """Return the spans of an agent that reports `events`, and has fetched and applied a
    command."""
    ((_, fields),) = redis_client.entries(redis, redis_keys.commands(APPLICATION))
    command = command_codec.decode_command(fields[b"body"])
    spans = [
        *decision_spans(APPLICATION, events, input="batch 1", began=NOON, ended=NOON),
        apply_span(APPLICATION, command, instance=INSTANCE, began=NOON, ended=NOON, refused=None),
    ]
    return {each.name: each for each in spans}


def at_noon(events: list[Event]) -> list[Event]:
    """Return events of one decision: they have one time."""
    return [replace(each, occurred_at=NOON) for each in events]


def hexes(span: Span) -> tuple[str, str]:
    return span.id.trace_hex, f"{span.id.span:016x}"


def test_the_ids_of_both_sides_are_equal(
    redis: Redis, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """Agent and server exchange what they exchange without traces."""
    caplog.set_level(logging.INFO, "arrester.controlplane.command_traces")
    events = at_noon(histories.paused())
    fold(redis, [*histories.started(), *events])
    command = actions.resume_task(JFK.digest, actor="ada", reason="fixed")
    agent = spans_of_agent(redis, events)
    fold(redis, answered(command))
    tracer.close(SERVER)

    (issued,) = collector.named("issue RESUME_TASK")
    stop, apply = agent["task PAUSED"], agent["apply RESUME_TASK"]
    assert (issued.trace, issued.parent) == hexes(stop)
    assert apply.parent is not None
    assert (f"{apply.parent.trace:032x}", f"{apply.parent.span:016x}") == (
        issued.trace,
        issued.span,
    )
    for name, parent in (
        ("fold TaskPaused", hexes(stop)),
        ("fold RecordFailed", hexes(agent["decide"])),
        ("fold CommandDelivered", (issued.trace, issued.span)),
        ("fold CommandApplied", (issued.trace, issued.span)),
    ):
        (folded,) = collector.named(name)
        assert (folded.trace, folded.parent) == parent

    # The log names the same things.
    lines = [each.__dict__ for each in caplog.records]
    assert [each["event_id"] for each in lines] == [
        f"{APPLICATION}@{sequence}" for sequence in (6, 7, 8)
    ]
    assert {each["command_id"] for each in lines} == {str(command.id)}
    assert {each["trace_id"] for each in lines} == {issued.trace}


def test_a_refused_command_is_an_error_of_its_span(redis: Redis, collector: Collector) -> None:
    fold(redis, [*histories.started(), *histories.paused()])
    actions.resume_task(JFK.digest, actor="ada")
    with pytest.raises(CommandForbidden):
        actions.resume_task(JFK.digest, actor="bob")
    tracer.close(SERVER)
    errors = [each.error for each in collector.named("issue RESUME_TASK")]
    assert errors[0] == ""
    assert "ada" in errors[1]


def test_a_repeated_batch_has_no_second_span(redis: Redis, collector: Collector) -> None:
    events = at_noon(histories.paused())
    batch = streams.send(redis, events)
    fold(redis, events, batch=batch)
    fold(redis, events, batch=batch)
    # As a worker process does at its end.
    celery.send_last_spans()
    assert len(collector.named("fold TaskPaused")) == 1


def test_without_the_variables_nothing_is_sent(redis: Redis) -> None:
    fold(redis, [*histories.started(), *histories.paused()])
    actions.resume_task(JFK.digest, actor="ada")
    assert tracer_of(SERVER) is None
