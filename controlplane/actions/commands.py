"""Commands for tasks and applications; each has an id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings

from arrester.controlplane import store
from arrester.controlplane.actions.transaction import advance, check_text, new_id
from arrester.controlplane.domain.commands.decide import CommandRequest, decide, why_not_cancelled
from arrester.controlplane.domain.errors import CommandRefused, InvalidValue, NotFound
from arrester.controlplane.domain.events import (
    ApplicationOpened,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    Event,
    StageAnswer,
)
from arrester.controlplane.domain.identity.names import check_name
from arrester.controlplane.domain.state.states import (
    ApplicationState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    TaskStatus,
)
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.views import row_mapping


def resume_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Resume a PAUSED task at the failed record."""
    return _task_command(CommandKind.RESUME_TASK, digest, actor, reason, command)


def skip_record(
    digest: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Resume a PAUSED task after the failed record, which becomes a dead letter."""
    return _task_command(CommandKind.SKIP_RECORD, digest, actor, reason, command)


def cancel_command(
    command: UUID, *, actor: str, reason: str | None = None, id: UUID | None = None
) -> CommandState:
    """Cancel a command that no instance has fetched yet; raise CommandRefused if it is too late.

    An instance may have fetched it without an answer yet: its later answer is final.
    """
    check_text(actor=actor, reason=reason)
    found = row_mapping.COMMANDS.load("id = %s", [command])
    if not found:
        raise NotFound(f"there is no command {command}")

    def rule(state: StreamState) -> list[Event]:
        known = state.commands[command]
        late = why_not_cancelled(known)
        if late is not None:
            raise CommandRefused(late, state=known.status, sequence=known.sequence)
        data = CommandCancelled(command=command, reason=reason or "taken back", actor=actor)
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    state = advance(found[0].application, rule, commands=[command], id=id)
    return state.commands[command]


def resume_task_at(
    digest: str, *, position: int, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Resume a PAUSED task at a position; held records before it are skipped."""
    kind = CommandKind.RESUME_AT
    return _task_command(kind, digest, actor, reason, command, target=position)


def pause_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Pause a RUNNING task until it is resumed."""
    return _task_command(CommandKind.PAUSE_TASK, digest, actor, reason, command)


def restart_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Restart a task that died alone at the record that it died at."""
    return _task_command(CommandKind.RESTART_TASK, digest, actor, reason, command)


def set_policy(
    application: str,
    *,
    pipeline: str,
    stage: str,
    answer: StageAnswer | None,
    actor: str,
    reason: str,
    command: UUID | None = None,
) -> CommandState:
    """Override the answer to failures of a stage in every run of the pipeline; None removes the
    override.

    It precedes the policy of the author and the configuration, and is stored in the checkpoints.
    """
    requested = CommandRequest(
        command=command or new_id(),
        kind=CommandKind.SET_POLICY,
        actor=actor,
        reason=reason,
        pipeline=pipeline,
        stage=stage,
        answer=answer,
    )
    return issue_command(application, requested)


def shut_down_application(
    application: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Latch the application and end all its instances."""
    kind = CommandKind.SHUT_DOWN_APPLICATION
    requested = CommandRequest(command=command or new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, requested)


def start_application(
    application: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Open a LATCHED application: its instances may run again, but are not started."""
    kind = CommandKind.START_APPLICATION
    requested = CommandRequest(command=command or new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, requested)


def issue_command(application: str, requested: CommandRequest) -> CommandState:
    """Issue any command."""
    state = issue_all(application, [requested])
    command = state.commands[requested.command]
    if command.status is CommandStatus.REFUSED:
        raise CommandRefused(
            command.outcome or "refused", state=_status(requested, state), sequence=command.sequence
        )
    return command


def issue_all(application: str, requests: Sequence[CommandRequest]) -> StreamState:
    """Issue commands, all or none, and return the resulting states, which include refusals.

    Several commands must each be about a different task: no result affects another.
    """
    patience = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)

    def rule(state: StreamState) -> list[Event]:
        new = [requested for requested in requests if requested.command not in state.commands]
        ids = [requested.command for requested in new]
        for taken in row_mapping.COMMANDS.load("id = ANY(%s::uuid[])", [ids]):
            raise InvalidValue("command", str(taken.id), "an id that no other command has")
        now = datetime.now(UTC)
        return [
            Event(
                occurred_at=now,
                data=data,
                caused_by=None if isinstance(data, CommandIssued) else requested.command,
            )
            for requested in new
            for data in decide(requested, state, now=now, patience=patience)
        ]

    tasks = [requested.task for requested in requests if requested.task is not None]
    pipelines = [requested.pipeline for requested in requests if requested.pipeline is not None]
    ids = [requested.command for requested in requests]
    state = advance(application, rule, tasks=tasks, commands=ids, pipelines=pipelines)
    for requested in requests:
        if not _is_for(state.commands[requested.command], requested):
            raise InvalidValue("command", str(requested.command), "an id that no other command has")
    return state


def _is_for(command: CommandState, requested: CommandRequest) -> bool:
    """Whether the command with the request's id is the same request."""
    if (command.pipeline, command.stage, command.answer) != (
        requested.pipeline,
        requested.stage,
        requested.answer,
    ):
        return False
    return (command.kind, command.task, command.target) == (
        requested.kind,
        requested.task,
        requested.target,
    )


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


def _task_command(
    kind: CommandKind,
    digest: str,
    actor: str,
    reason: str | None,
    command: UUID | None,
    *,
    target: int | None = None,
) -> CommandState:
    task = row_mapping.task_state(digest).id
    requested = CommandRequest(
        command=command or new_id(),
        kind=kind,
        actor=actor,
        reason=reason,
        task=task,
        target=target,
    )
    return issue_command(task.application, requested)


def _status(requested: CommandRequest, state: StreamState) -> str:
    """Return the state named in a refusal."""
    if requested.task is None:
        return state.application.status
    task = state.tasks.get(requested.task.digest)
    return TaskStatus.RUNNING if task is None else task.status
