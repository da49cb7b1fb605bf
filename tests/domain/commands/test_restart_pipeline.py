"""Commands that restart a pipeline: who receives them, and when they are refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationLatched,
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    EventData,
    InstanceLost,
    InstanceStarted,
    InstanceStopped,
    Run,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.stream_state import empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, NOON, OTHER_INSTANCE

RESTART, OTHER = UUID(int=1), UUID(int=2)


def server(data: EventData) -> Event:
    return histories.event(data, run=None, instance=None)


def when(
    *events: Event, pipeline: str | None = "delays", reason: str | None = "stuck"
) -> list[EventData]:
    requested = CommandRequest(
        command=RESTART,
        kind=CommandKind.RESTART_PIPELINE,
        actor="ana",
        reason=reason,
        pipeline=pipeline,
    )
    state = empty(APPLICATION).fold(histories.stored(list(events)))
    return decide(requested, state, now=NOON)


def issued(*events: Event) -> CommandIssued:
    (command,) = when(*events)
    assert isinstance(command, CommandIssued)
    return command


def refused(*events: Event, pipeline: str = "delays") -> str:
    _, refusal = when(*events, pipeline=pipeline)
    assert isinstance(refusal, CommandRefused)
    return refusal.reason


DIED = histories.event(ThreadDied(reason="boom"))
SECOND = [
    histories.event(InstanceStarted(host="h", pid=8), run=None, instance=OTHER_INSTANCE),
    histories.event(
        ThreadStarted(),
        minute=9,
        run=Run(pipeline="delays", checkpoint="cp-2", epoch=1),
        instance=OTHER_INSTANCE,
    ),
]


def test_the_instances_of_all_runs_restart_a_pipeline() -> None:
    command = issued(*histories.started(), *SECOND)
    assert (command.pipeline, command.checkpoint) == ("delays", None)
    assert command.instances == (INSTANCE, OTHER_INSTANCE)
    # The one that ended is an older run.
    assert issued(*histories.started(), *SECOND, DIED).instances == (OTHER_INSTANCE,)


def test_a_pipeline_that_has_ended_in_a_live_instance_is_restarted() -> None:
    assert issued(*histories.started(), DIED).instances == (INSTANCE,)


@pytest.mark.parametrize(
    "gone", [InstanceLost(last_heard=NOON), InstanceStopped(reason="done")], ids=["lost", "ended"]
)
def test_a_pipeline_without_a_live_instance_is_not_restarted(gone: EventData) -> None:
    why = "no live instance has a thread of delays; start its driver"
    for died in ([], [DIED]):
        assert refused(*histories.started(), *died, histories.event(gone, run=None)) == why


def test_a_restart_is_refused_with_its_reason() -> None:
    started = histories.started()
    assert refused(*started, pipeline="nope") == "flights has no pipeline nope"
    latched = server(ApplicationLatched(reason="night", actor="ben"))
    assert "is LATCHED" in refused(*started, latched)
    waiting = CommandIssued(
        command=OTHER,
        kind=CommandKind.RESTART_PIPELINE,
        actor="ben",
        pipeline="delays",
        instances=(INSTANCE,),
        expires_at=NOON + COMMAND_EXPIRY,
    )
    why = refused(*started, server(waiting))
    assert why.startswith("RESTART_PIPELINE by ben is already in progress for delays; wait")


@pytest.mark.parametrize(("pipeline", "reason"), [(None, "stuck"), ("", "x"), ("delays", " ")])
def test_a_restart_needs_a_pipeline_and_a_reason(pipeline: str | None, reason: str) -> None:
    with pytest.raises(InvalidValue):
        when(*histories.started(), pipeline=pipeline, reason=reason)
