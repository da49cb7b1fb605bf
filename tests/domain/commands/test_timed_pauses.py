"""Pauses of limited duration, and their ends."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from arrester.domain.commands.decide import COMMAND_EXPIRY, decide
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.timed_pauses import ended_pauses
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationLatched,
    CommandApplied,
    CommandExpired,
    CommandIssued,
    CommandKind,
    Event,
    EventData,
    InstanceStopped,
    ResumeHow,
    Run,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import TaskStatus
from arrester.domain.state.stream_state import StreamState, empty
from tests import histories
from tests.histories import APPLICATION, INSTANCE, JFK, NOON, OTHER_INSTANCE

PAUSE = UUID(int=7)
END = NOON + timedelta(hours=1)


def server(data: EventData) -> Event:
    return histories.event(data, run=None, instance=None)


def paused(until: datetime | None = END) -> list[Event]:
    """Return the events of a task that ana has paused until then."""
    issued = CommandIssued(
        command=PAUSE,
        kind=CommandKind.PAUSE_TASK,
        actor="ana",
        pipeline=JFK.pipeline,
        checkpoint=JFK.checkpoint,
        task=JFK.key,
        until=until,
        instances=(INSTANCE,),
        expires_at=NOON + COMMAND_EXPIRY,
    )
    by_hand = TaskPaused(task="JFK", position=None, actor="ana")
    return [
        *histories.started(),
        server(issued),
        histories.event(by_hand, caused_by=PAUSE),
        histories.event(CommandApplied(command=PAUSE), run=None, caused_by=PAUSE),
    ]


def state_of(*events: Event) -> StreamState:
    return empty(APPLICATION).fold(histories.stored(list(events)))


def ends(state: StreamState, now: datetime) -> list[CommandIssued]:
    decided = ended_pauses(state, now=now, expiry=COMMAND_EXPIRY)
    return [event.data for event in decided if isinstance(event.data, CommandIssued)]


def test_a_pause_is_ended_once_at_its_time() -> None:
    state = state_of(*paused())
    assert state.tasks[JFK.digest].paused_until == END
    assert ends(state, END - timedelta(microseconds=1)) == []
    (resume,) = ends(state, END)
    assert (resume.kind, resume.task, resume.instances) == (
        CommandKind.RESUME_TASK,
        "JFK",
        (INSTANCE,),
    )
    assert (resume.actor, resume.reason) == (
        "pause of ana",
        "the pause ended at 2026-11-20 13:00:00 UTC",
    )
    state.fold(histories.stored([server(resume)], after=9))
    assert ends(state, END + timedelta(minutes=1)) == []


def test_a_pause_without_an_end_is_not_ended() -> None:
    state = state_of(*paused(until=None))
    assert state.tasks[JFK.digest].paused_until is None
    assert ends(state, NOON + timedelta(days=365)) == []


@pytest.mark.parametrize(
    "later",
    [
        [histories.event(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ben"))],
        [
            histories.event(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ben")),
            histories.event(TaskPaused(task="JFK", position=None, actor="ben")),
        ],
        [
            histories.event(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ben")),
            *histories.paused(),
        ],
    ],
    ids=["it was resumed", "it was paused again", "a record paused it"],
)
def test_another_stop_of_the_task_is_left_alone(later: list[Event]) -> None:
    state = state_of(*paused(), *later)
    assert state.tasks[JFK.digest].paused_until is None
    assert ends(state, END) == []


def test_a_latched_application_waits_for_its_start() -> None:
    latched = server(ApplicationLatched(reason="night", actor="ben"))
    assert ends(state_of(*paused(), latched), END) == []


def test_the_end_of_a_pause_waits_for_an_instance_and_is_not_lost() -> None:
    gone = [
        histories.event(ThreadDied(reason="stopped")),
        histories.event(InstanceStopped(reason="stopped"), run=None),
    ]
    state = state_of(*paused(), *gone)
    (first,) = ends(state, END)
    assert first.instances == ()
    expired = server(CommandExpired(command=first.command, reason="not applied within its time"))
    state.fold(histories.stored([server(first), expired], after=20))
    late = END + COMMAND_EXPIRY
    assert ends(state, late) == []
    started = histories.started()[0]
    next_run = Run(pipeline=JFK.pipeline, checkpoint=JFK.checkpoint, epoch=2)
    state.fold(
        histories.stored(
            [
                histories.event(started.data, run=None, instance=OTHER_INSTANCE),
                histories.event(ThreadStarted(), run=next_run, instance=OTHER_INSTANCE),
            ],
            after=30,
        )
    )
    assert state.tasks[JFK.digest].status is TaskStatus.PAUSED
    (second,) = ends(state, late)
    assert second.command != first.command
    assert second.instances == (OTHER_INSTANCE,)


@pytest.mark.parametrize(
    ("kind", "until", "duration", "field"),
    [
        (CommandKind.PAUSE_TASK, NOON, None, "until"),
        (CommandKind.PAUSE_TASK, NOON + timedelta(days=367), None, "until"),
        (CommandKind.PAUSE_TASK, END, timedelta(hours=1), "until"),
        (CommandKind.PAUSE_TASK, None, timedelta(0), "duration"),
        (CommandKind.PAUSE_TASK, None, timedelta(days=367), "duration"),
        (CommandKind.RESUME_TASK, END, None, "kind"),
    ],
)
def test_an_invalid_end_of_a_pause_is_refused(
    kind: CommandKind, until: datetime | None, duration: timedelta | None, field: str
) -> None:
    requested = CommandRequest(
        command=PAUSE, kind=kind, actor="ana", task=JFK, until=until, duration=duration
    )
    with pytest.raises(InvalidValue) as invalid:
        decide(requested, state_of(*histories.started()), now=NOON)
    assert invalid.value.name == field


def test_a_duration_begins_when_the_command_is_issued() -> None:
    requested = CommandRequest(
        command=PAUSE,
        kind=CommandKind.PAUSE_TASK,
        actor="ana",
        task=JFK,
        duration=timedelta(minutes=5),
    )
    (issued,) = decide(requested, state_of(*histories.started()), now=NOON)
    assert isinstance(issued, CommandIssued)
    assert issued.until == NOON + timedelta(minutes=5)
