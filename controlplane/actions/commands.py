"""Commands for tasks and applications; each has an id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Annotated
from uuid import UUID

import msgspec
from django.conf import settings
from msgspec import Meta

from arrester.controlplane import access, store
from arrester.controlplane.actions.transaction import advance, check_text, new_id
from arrester.controlplane.views import row_mapping
from arrester.domain.commands.decide import decide
from arrester.domain.commands.refusals.commands import pending_command
from arrester.domain.commands.refusals.in_progress import cancel_refusal
from arrester.domain.commands.request import CommandRequest
from arrester.domain.errors import (
    CommandForbidden,
    InvalidValue,
    NotFound,
    PendingCommand,
)
from arrester.domain.events import (
    ApplicationOpened,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    Event,
    Run,
    TaskDismissed,
)
from arrester.domain.identity import uuids
from arrester.domain.identity.names import TaskId, check_name
from arrester.domain.state.states import (
    ApplicationState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    TaskStatus,
    if_set,
)
from arrester.domain.state.stream_state import StreamState

#: The most tasks of one act.
MAX_TASKS = 500
#: What two requests with the same id must have in common.
_SUBJECT = attrgetter("kind", "task", "target", "pipeline", "stage", "answer")


def _is_about_same(command: CommandState, requested: CommandRequest) -> bool:
    until = requested.paused_until(command.issued_at)
    instances = [part.instance for part in command.deliveries]
    return (
        _SUBJECT(command) == _SUBJECT(requested)
        and command.paused_until == until
        and if_set(command.rollout) == requested.rollout
        and bool(command.force) is requested.force
        and requested.instance in (None, *instances)
    )


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one task of many."""

    task: TaskId
    #: The issued command; None if the state forbids it.
    command: CommandState | None
    refused: Annotated[
        str, Meta(description="The reason of a refusal; empty if there is none.")
    ] = ""


def command_task(
    kind: CommandKind,
    digest: str,
    *,
    actor: str,
    reason: str | None = None,
    target: int | None = None,
    until: datetime | None = None,
    duration: timedelta | None = None,
    patch: str | None = None,
    command: UUID | None = None,
) -> CommandState:
    """Issue a command of any kind for a task, with the fields of `CommandRequest`."""
    task = task_id(digest)
    requested = CommandRequest(
        command=command or new_id(),
        kind=kind,
        actor=actor,
        reason=reason,
        task=task,
        target=target,
        until=until,
        duration=duration,
        patch=patch,
    )
    return issue_command(task.application, requested)


def task_id(digest: str) -> TaskId:
    """Return the task with this digest; raise NotFound."""
    return row_mapping.task_state(digest).id


def command_application(
    kind: CommandKind,
    application: str,
    *,
    actor: str,
    reason: str | None = None,
    command: UUID | None = None,
) -> CommandState:
    """Issue a command without further values for an application."""
    requested = CommandRequest(command=command or new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, requested)


resume_task = partial(command_task, CommandKind.RESUME_TASK)
skip_record = partial(command_task, CommandKind.SKIP_RECORD)
shut_down_application = partial(command_application, CommandKind.SHUT_DOWN_APPLICATION)
start_application = partial(command_application, CommandKind.START_APPLICATION)


def issue_command(application: str, requested: CommandRequest) -> CommandState:
    """Issue any command; raise CommandForbidden if the state forbids it."""
    state = _issue_all(application, [requested])
    command = state.commands[requested.command]
    if command.status is CommandStatus.REFUSED:
        status: str = state.application.status
        if requested.task is not None:
            task = state.tasks.get(requested.task.digest)
            status = TaskStatus.RUNNING if task is None else task.status
        raise CommandForbidden(
            command.outcome or "refused",
            state=status,
            sequence=command.sequence,
            command=command.id,
            pending=_pending(requested, command, state),
        )
    return command


def _pending(
    requested: CommandRequest, refused: CommandState, state: StreamState
) -> PendingCommand | None:
    """Return the command in progress because of which one was refused; None: another reason."""
    pending = pending_command(requested, state, reason=refused.outcome)
    if pending is None:
        return None
    return PendingCommand(
        id=pending.id, kind=pending.kind.value, actor=pending.actor, issued_at=pending.issued_at
    )


def command_tasks(
    kind: CommandKind,
    digests: Sequence[str],
    *,
    actor: str,
    reason: str | None = None,
    id: UUID | None = None,
) -> list[TaskResult]:
    """Issue a command for each of some tasks; a refusal of one does not affect the others.

    Each gets a command, whose id is derived from `id` and the task. Those of an application are
    issued in one transaction and relayed once. Raises InvalidValue for too many, NotFound for a
    missing task, NotPermitted for one of an application that the person may not act on, before
    anything is issued.
    """
    if not 1 <= len(digests) <= MAX_TASKS:
        raise InvalidValue("tasks", len(digests), f"1 to {MAX_TASKS} tasks at once")
    act = id or new_id()
    tasks = _tasks(digests)
    for application in sorted({task.application for task in tasks}):
        access.require(application)
    requests: dict[str, list[CommandRequest]] = defaultdict(list)
    for task in tasks:
        requested = CommandRequest(
            command=uuids.part_of(act, task.digest),
            kind=kind,
            actor=actor,
            reason=reason,
            task=task,
        )
        requests[task.application].append(requested)
    commands: dict[UUID, CommandState] = {}
    for application, some in requests.items():
        commands.update(_issue_all(application, some).commands)
    return [_result(task, commands[uuids.part_of(act, task.digest)]) for task in tasks]


def _result(task: TaskId, command: CommandState) -> TaskResult:
    if command.status is CommandStatus.REFUSED:
        return TaskResult(task=task, command=None, refused=command.outcome or "refused")
    return TaskResult(task=task, command=command)


resume_tasks = partial(command_tasks, CommandKind.RESUME_TASK)
dismiss_tasks = partial(command_tasks, CommandKind.DISMISS_TASK)


def _tasks(digests: Sequence[str]) -> list[TaskId]:
    """Return the tasks in the order of the request, each once; raise NotFound."""
    requested = dict.fromkeys(_digest(digest) for digest in digests)
    ids = {
        task.id.digest: task.id
        for task in row_mapping.TASKS.load("digest = ANY(%s::uuid[])", [[*requested]])
    }
    for digest in requested.keys() - ids.keys():
        raise NotFound(f"there is no task {digest!r}")
    return [ids[digest] for digest in requested]


def _digest(text: str) -> str:
    try:
        return UUID(hex=text).hex
    except ValueError:
        raise NotFound(f"there is no task {text!r}") from None


def cancel_command(
    command: UUID, *, actor: str, reason: str | None = None, id: UUID | None = None
) -> CommandState:
    """Cancel a command that no instance has fetched yet; raise CommandForbidden if it is too late.

    An instance may have fetched it without an answer yet: its later answer is final.
    """
    check_text(actor=actor, reason=reason)
    commands = row_mapping.COMMANDS.load("id = %s", [command])
    if not commands:
        raise NotFound(f"there is no command {command}")

    def rule(state: StreamState) -> list[Event]:
        current = state.commands[command]
        late = cancel_refusal(current)
        if late is not None:
            raise CommandForbidden(late, state=current.status, sequence=current.sequence)
        by = f"cancelled by {actor}"
        data = CommandCancelled(
            command=command, reason=f"{by}: {reason}" if reason else by, actor=actor
        )
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    state = advance(commands[0].application, rule, commands=[command], id=id)
    return state.commands[command]


def open_application(
    application: str, *, actor: str, reason: str | None = None
) -> ApplicationState:
    """Ensure that the application exists and is OPEN; an open one is not changed."""
    store.open_stream(check_name("application", application))

    def rule(state: StreamState) -> list[Event]:
        if state.application.sequence:
            return []
        data = ApplicationOpened(reason=reason, actor=actor)
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    state = advance(application, rule)
    if state.application.status is ApplicationStatus.LATCHED:
        start_application(application, actor=actor, reason=reason)
        state = advance(application, lambda _: [])
    return state.application


def _issue_all(application: str, requests: Sequence[CommandRequest]) -> StreamState:
    """Issue commands, all or none, and return the resulting states, which include refusals.

    Several commands must each be about a different task: no result affects another.
    """
    expiry = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)

    def rule(state: StreamState) -> list[Event]:
        new = [requested for requested in requests if requested.command not in state.commands]
        ids = [requested.command for requested in new]
        for taken in row_mapping.COMMANDS.load("id = ANY(%s::uuid[])", [ids]):
            raise _other_command(taken.id)
        now = datetime.now(UTC)
        return [
            Event(
                occurred_at=now,
                data=data,
                run=_run(requested.task, state) if isinstance(data, TaskDismissed) else None,
                caused_by=None if isinstance(data, CommandIssued) else requested.command,
            )
            for requested in new
            for data in decide(requested, state, now=now, expiry=expiry)
        ]

    tasks = [requested.task for requested in requests if requested.task is not None]
    subjects = [requested.task or requested for requested in requests]
    pipelines = [each.pipeline for each in subjects if each.pipeline is not None]
    ids = [requested.command for requested in requests]
    state = advance(application, rule, tasks=tasks, commands=ids, pipelines=pipelines)
    for requested in requests:
        if not _is_about_same(state.commands[requested.command], requested):
            raise _other_command(requested.command)
    return state


def _run(task: TaskId | None, state: StreamState) -> Run | None:
    """Return the current run of a task, to which an event of the server about it belongs."""
    if task is None:
        return None
    current = state.threads.get((task.pipeline, task.checkpoint)) or state.tasks[task.digest]
    return Run(pipeline=task.pipeline, checkpoint=task.checkpoint, epoch=current.epoch)


def _other_command(id: UUID) -> InvalidValue:
    return InvalidValue("command", str(id), "an id that no other command has")
