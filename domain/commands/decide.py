"""Decide about commands: from a request and the state to the events that follow."""

from __future__ import annotations

from datetime import datetime, timedelta

from arrester.domain.commands.kinds import IN_PARTS, KINDS, AppliedBy
from arrester.domain.commands.recipients import open_commands
from arrester.domain.commands.refusals.commands import refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.request_checks import check
from arrester.domain.commands.rollout import ROLLOUT_EXPIRY
from arrester.domain.events import (
    ApplicationLatched,
    ApplicationOpened,
    CommandApplied,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    CommandRefused,
    EventData,
    TaskDismissed,
)
from arrester.domain.state.states import ApplicationStatus, CommandState
from arrester.domain.state.stream_state import StreamState

COMMAND_EXPIRY = timedelta(minutes=15)


def decide(
    requested: CommandRequest,
    state: StreamState,
    *,
    now: datetime,
    expiry: timedelta = COMMAND_EXPIRY,
) -> list[EventData]:
    """Return the events that follow from `requested`: CommandIssued, then the effect of the state.

    A command that is not applied within `expiry` expires.

    Raises InvalidValue for an invalid request: without a task, or without a required reason.
    """
    check(requested, now=now)
    expires_at = now + (ROLLOUT_EXPIRY if requested.kind in IN_PARTS else expiry)
    issued = _issued(requested, state, now=now, expires_at=expires_at)
    forbidden = refusal(requested, state)
    if forbidden is not None:
        return [issued, CommandRefused(command=requested.command, reason=forbidden)]
    return [issued, *_effects(issued, state)]


def _effects(issued: CommandIssued, state: StreamState) -> list[EventData]:
    """Return what the server does when it issues a command; most are applied later."""
    match issued.kind:
        case CommandKind.DISMISS_TASK:
            dismissed = TaskDismissed(
                task=issued.task, actor=issued.actor, reason=issued.reason or ""
            )
            return [dismissed, CommandApplied(command=issued.command)]
        case CommandKind.SHUT_DOWN_APPLICATION:
            return shut_down(issued, state)
        case CommandKind.SHUT_DOWN_INSTANCE:
            return [*_superseded(issued, state)]
        case CommandKind.START_APPLICATION:
            return [
                ApplicationOpened(reason=issued.reason, actor=issued.actor),
                CommandApplied(command=issued.command, detail="instances may run again"),
            ]
        case _:
            by_server = KINDS[issued.kind].applied_by is AppliedBy.SERVER
            assert not by_server, f"{issued.kind} has no effect"
            return []


def _issued(
    requested: CommandRequest, state: StreamState, *, now: datetime, expires_at: datetime
) -> CommandIssued:
    task = None if requested.task is None else state.tasks.get(requested.task.digest)
    place = requested.task or requested
    return CommandIssued(
        command=requested.command,
        kind=requested.kind,
        actor=requested.actor,
        reason=requested.reason,
        pipeline=place.pipeline,
        checkpoint=place.checkpoint,
        task=None if requested.task is None else requested.task.key,
        position=None if task is None else task.position,
        target=requested.target,
        patch=requested.patch,
        stage=requested.stage,
        answer=requested.answer,
        until=requested.paused_until(now),
        rollout=requested.rollout,
        redrive=requested.redrive,
        slice=requested.slice,
        part_of=requested.part_of,
        force=requested.force,
        instances=tuple(sorted(KINDS[requested.kind].recipients(requested, state), key=str)),
        expires_at=expires_at,
    )


def shut_down(issued: CommandIssued, state: StreamState) -> list[EventData]:
    """Return the further events of a shutdown: the latch, and the cancelled open commands."""
    latched = ApplicationLatched(reason=issued.reason or "", actor=issued.actor)
    cancelled = [_cancelled(command, issued) for command in open_commands(state)]
    if state.application.status is ApplicationStatus.LATCHED:
        return list(cancelled)
    if issued.instances:
        return [latched, *cancelled]
    done = CommandApplied(command=issued.command, detail="no instance was running; latched")
    return [latched, *cancelled, done]


def _superseded(issued: CommandIssued, state: StreamState) -> list[CommandCancelled]:
    """Return the cancelled open shutdowns of an instance, which a forced one supersedes."""
    return [
        _cancelled(command, issued)
        for command in open_commands(state)
        if command.kind is issued.kind
        and tuple(part.instance for part in command.deliveries) == issued.instances
    ]


def _cancelled(command: CommandState, issued: CommandIssued) -> CommandCancelled:
    reason = "the application was shut down"
    if KINDS[command.kind].is_shutdown and issued.force:
        reason = f"superseded by a forced shutdown by {issued.actor}"
    return CommandCancelled(command=command.id, actor=issued.actor, reason=reason)
