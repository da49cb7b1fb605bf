"""Pauses of limited duration: the server resumes their tasks when the time is over."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid5

import msgspec

from arrester.domain.commands.decide import decide
from arrester.domain.commands.recipients import instance_of_run
from arrester.domain.commands.refusals.commands import refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.events import CommandKind, Event
from arrester.domain.state.states import TaskState
from arrester.domain.state.stream_state import StreamState


def resume_of(task: TaskState, *, now: datetime, expiry: timedelta) -> CommandRequest | None:
    """Return the request to resume a task whose pause is over; None if it is not.

    It has the same id for as long as a command waits: one is issued in that time.
    """
    pause = task.timed_pause
    if pause is msgspec.UNSET or now < pause.until:
        return None
    period = (now - pause.until) // expiry
    return CommandRequest(
        command=uuid5(UUID(task.id.digest), f"{task.status_sequence} {period}"),
        kind=CommandKind.RESUME_TASK,
        actor=f"pause of {pause.actor}",
        reason=f"the pause ended at {pause.until:%Y-%m-%d %H:%M:%S} UTC",
        task=task.id,
    )


def ended_pauses(state: StreamState, *, now: datetime, expiry: timedelta) -> list[Event]:
    """Return the events that resume the tasks whose pause is over.

    The first command waits for an instance as any other command. After it has expired, the next
    one is issued when an instance runs the task.
    """
    events = []
    for task in state.tasks.values():
        requested = resume_of(task, now=now, expiry=expiry)
        if requested is None or requested.command in state.commands:
            continue
        if refusal(requested, state) is not None:
            continue
        expired = task.paused_until is not None and now - task.paused_until >= expiry
        if expired and not instance_of_run(requested, state):
            continue
        decided = decide(requested, state, now=now, expiry=expiry)
        events += [Event(occurred_at=now, data=data) for data in decided]
    return events
