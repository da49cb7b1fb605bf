"""Commands that pause and resume a pipeline: who receives them, and when they are refused."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandIssued,
    CommandKind,
    CommandRefused,
    Event,
    EventData,
    InstanceStarted,
    InstanceStopped,
    PipelinePaused,
    PipelineResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.live_runs import RunStatus, run_status
from arrester.domain.state.states import PipelinePause
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, NOON, RUN

NEXT_RUN = replace(RUN, epoch=RUN.epoch + 1)
PAUSE, OTHER = UUID(int=1), UUID(int=2)
BY_ANA = PipelinePaused(since=NOON, actor="ana", reason="a migration")
ENDED = [
    histories.event(ThreadDied(reason="stopped")),
    histories.event(InstanceStopped(reason="stopped"), run=None),
]


def started(version: str = "5") -> list[Event]:
    """Return the start of an agent that knows this version of commands, and of its run."""
    instance = InstanceStarted(host="host-1", pid=1, versions={"commands": version})
    return [histories.event(instance, run=None), histories.event(ThreadStarted())]


def state_of(*events: Event) -> StreamState:
    return empty(APPLICATION).fold(histories.stored(list(events)))


def when(
    *events: Event, kind: CommandKind = CommandKind.PAUSE_PIPELINE, pipeline: str = "delays"
) -> CommandIssued | str:
    """Return the command, or why it is refused."""
    requested = CommandRequest(command=PAUSE, kind=kind, actor="ana", pipeline=pipeline)
    decided: list[EventData] = decide(requested, state_of(*events), now=NOON)
    if isinstance(decided[-1], CommandRefused):
        return decided[-1].reason
    (issued,) = decided
    assert isinstance(issued, CommandIssued)
    return issued


def resumes(*events: Event) -> CommandIssued | str:
    return when(*events, kind=CommandKind.RESUME_PIPELINE)


def run(*events: Event) -> tuple[RunStatus, PipelinePause | None]:
    """Return the state of the run, and its pause."""
    state = state_of(*events)
    thread = state.threads[RUN.pipeline, RUN.checkpoint]
    return run_status(thread, state.instances), thread.paused


def test_the_instances_that_run_it_receive_the_command() -> None:
    command = when(*started())
    assert isinstance(command, CommandIssued)
    assert (command.pipeline, command.checkpoint) == ("delays", None)
    assert (command.instances, command.task) == ((INSTANCE,), None)


def test_a_pause_may_be_changed_and_only_a_paused_pipeline_resumes() -> None:
    paused = [*started(), histories.event(BY_ANA)]
    assert isinstance(when(*paused), CommandIssued)
    assert isinstance(resumes(*paused), CommandIssued)
    resumed = [*paused, histories.event(PipelineResumed(actor="ben"))]
    assert resumes(*resumed) == "only a PAUSED pipeline can resume; delays is RUNNING"
    assert isinstance(when(*resumed), CommandIssued)


def test_without_a_run_it_is_refused_with_the_next_step() -> None:
    assert when(*started(), *ENDED) == "no live instance runs delays; start its driver"
    paused = [*started(), histories.event(BY_ANA), *ENDED]
    expected = (
        "no live instance runs delays, and its next run starts PAUSED; start its driver, then"
        " resume it"
    )
    assert (when(*paused), resumes(*paused)) == (expected, expected)
    assert when(*started(), pipeline="delay") == f"{APPLICATION} has no pipeline delay"


@pytest.mark.parametrize("kind", [CommandKind.PAUSE_PIPELINE, CommandKind.RESUME_PIPELINE])
def test_an_unguarded_query_takes_no_commands(kind: CommandKind) -> None:
    observed = histories.event(ThreadStarted(observed=True))
    expected = "delays is an unguarded query, which is only observed: it takes no commands"
    assert when(started()[0], observed, kind=kind) == expected


def test_an_older_agent_does_not_receive_it() -> None:
    assert when(*started("4")) == (
        "the agent of instance host-1, pid 1, is too old: it does not know PAUSE_PIPELINE"
    )


@pytest.mark.parametrize("kind", [CommandKind.PAUSE_PIPELINE, CommandKind.RESUME_PIPELINE])
def test_one_of_both_commands_is_in_progress_at_a_time(kind: CommandKind) -> None:
    command = CommandIssued(
        command=OTHER,
        kind=kind,
        actor="ben",
        pipeline="delays",
        instances=(INSTANCE,),
        expires_at=NOON + COMMAND_EXPIRY,
    )
    open_command = histories.event(command, run=None, instance=None)
    expected = f"{kind} by ben is already in progress for delays; wait"
    assert str(when(*started(), open_command)).startswith(expected)


def test_the_pause_lasts_across_runs_and_a_new_run_reports_its_own() -> None:
    pause = PipelinePause(since=NOON, actor="ana", reason="a migration")
    paused = [*started(), histories.event(BY_ANA)]
    assert run(*paused) == (RunStatus.PAUSED, pause)
    assert run(*paused, *ENDED) == (RunStatus.STOPPED, pause)
    # An agent reports its pause with each start.
    again = histories.event(ThreadStarted(), run=NEXT_RUN)
    assert run(*paused, again) == (RunStatus.RUNNING, None)
    report = histories.event(BY_ANA, run=NEXT_RUN)
    assert run(*paused, again, report) == (RunStatus.PAUSED, pause)
    # An older run changes nothing.
    assert run(*paused, again, histories.event(BY_ANA)) == (RunStatus.RUNNING, None)


def test_a_pause_has_an_end_or_none() -> None:
    def for_an_hour(kind: CommandKind) -> list[EventData]:
        requested = CommandRequest(
            command=PAUSE,
            kind=kind,
            actor="ana",
            pipeline="delays",
            duration=timedelta(hours=1),
        )
        return decide(requested, state_of(*started()), now=NOON)

    (issued,) = for_an_hour(CommandKind.PAUSE_PIPELINE)
    assert isinstance(issued, CommandIssued)
    assert issued.until == NOON + timedelta(hours=1)
    with pytest.raises(InvalidValue, match="the only ones with an end"):
        for_an_hour(CommandKind.RESUME_PIPELINE)
