"""Rollouts: start one, and advance those in progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from msgspec import UNSET
from msgspec.structs import replace

from arrester.controlplane.actions.commands import issue_command
from arrester.controlplane.actions.transaction import advance
from arrester.controlplane.views import rollout_progress, row_mapping
from arrester.domain.commands.decide import decide
from arrester.domain.commands.kinds import ROLLOUTS
from arrester.domain.commands.request import CommandRequest
from arrester.domain.commands.rollout import Finish, Issue, Stop, Wait, next_step
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandCancelled,
    CommandIssued,
    Event,
)
from arrester.domain.identity import uuids
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import CommandState, if_set
from arrester.domain.state.stream_state import StreamState


def start_rollout(application: str, requested: CommandRequest) -> CommandState:
    """Issue a command for all tasks that a cause has stopped, and the first commands for tasks.

    The number of tasks of `requested.rollout` is replaced by the present one. A repetition with the
    same id changes nothing. Raises CommandForbidden if there is no such task, or if a rollout for
    them is in progress; InvalidValue for values outside their limits.
    """
    if requested.kind not in ROLLOUTS or requested.rollout is None:
        raise InvalidValue("kind", requested.kind, ", ".join(ROLLOUTS))
    tasks = rollout_progress.count_waiting(application, requested.kind, requested.rollout)
    for earlier in row_mapping.COMMANDS.load("id = %s", [requested.command]):
        tasks = tasks if earlier.rollout is UNSET else earlier.rollout.tasks
    requested = replace(requested, rollout=replace(requested.rollout, tasks=tasks))
    advance_rollout(issue_command(application, requested), now=datetime.now(UTC))
    (command,) = row_mapping.COMMANDS.load("id = %s", [requested.command])
    return command


def advance_rollouts(application: str, *, now: datetime) -> None:
    """Advance the rollouts of an application that are in progress, each by one step."""
    for command in row_mapping.COMMANDS.load(
        "application = %s AND open AND kind = ANY(%s)", [application, list(ROLLOUTS)]
    ):
        advance_rollout(command, now=now)


def advance_rollout(command: CommandState, *, now: datetime) -> None:
    """Make the next step of a rollout. Any number of processes may do so at the same time.

    The step follows from stored states and is one transaction. It has no effect if another process
    has made a step meanwhile. The id of a task's command follows from the rollout and the task.
    """
    if command.status.final or command.rollout is UNSET:
        return
    rollout = command.rollout
    progress = rollout_progress.progress_of(command, rollout)
    match next_step(rollout, progress, now):
        case Wait():
            return
        case Issue(number=limit):
            tasks = rollout_progress.next_tasks(
                command.application, command.kind, rollout, limit=limit, id=command.id
            )
            _issue(command, tasks, now, after=progress.issued)
        case Finish(detail=detail):
            end(command, CommandApplied(command=command.id, detail=detail), now)
        case Stop(reason=reason):
            end(command, CommandCancelled(command=command.id, reason=reason), now)


def _issue(command: CommandState, tasks: Sequence[TaskId], now: datetime, *, after: int) -> None:
    """Issue the commands of some tasks; a refusal of one does not affect the others."""
    requests = [_request(command, task) for task in tasks]

    def rule(state: StreamState) -> list[Event]:
        # The lock of the stream is held. Another process may have issued some commands before.
        if state.commands[command.id].status.final:
            return []
        if rollout_progress.count_issued(command.id) != after:
            return []
        return [
            event
            for requested in requests
            if requested.command not in state.commands
            for event in part_events(command, requested, state, now=now)
        ]

    ids = [command.id, *(requested.command for requested in requests)]
    pipelines = {task.pipeline for task in tasks}
    advance(command.application, rule, tasks=tasks, commands=ids, pipelines=pipelines)


def _request(command: CommandState, task: TaskId) -> CommandRequest:
    return CommandRequest(
        command=uuids.part_of(command.id, task.digest),
        kind=ROLLOUTS[command.kind],
        actor=command.actor,
        reason=command.reason,
        task=task,
        patch=if_set(command.patch),
        part_of=command.id,
    )


def part_events(
    command: CommandState, requested: CommandRequest, state: StreamState, *, now: datetime
) -> list[Event]:
    """Return the events of a command that a rollout or redrive issues."""
    expiry = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)
    return [
        Event(
            occurred_at=now,
            data=data,
            caused_by=command.id if isinstance(data, CommandIssued) else requested.command,
        )
        for data in decide(requested, state, now=now, expiry=expiry)
    ]


def end(command: CommandState, data: CommandApplied | CommandCancelled, now: datetime) -> None:
    """End a rollout or redrive, unless it has ended."""

    def rule(state: StreamState) -> list[Event]:
        if state.commands[command.id].status.final:
            return []
        return [Event(occurred_at=now, data=data, caused_by=command.id)]

    advance(command.application, rule, commands=[command.id])
