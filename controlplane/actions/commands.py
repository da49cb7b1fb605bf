"""What people wish of tasks and applications: each wish is a command with an id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.conf import settings

from arrester.controlplane import store
from arrester.controlplane.actions.transaction import advance, check_text, new_id
from arrester.controlplane.domain.commands.decide import Wish, decide, why_not_cancelled
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
    """Ask for a PAUSED task to go on with the record that failed."""
    return _task_command(CommandKind.RESUME_TASK, digest, actor, reason, command)


def skip_record(
    digest: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Ask for a PAUSED task to go on past the record that failed; it becomes a dead letter."""
    return _task_command(CommandKind.SKIP_RECORD, digest, actor, reason, command)


def cancel_command(
    command: UUID, *, actor: str, reason: str | None = None, id: UUID | None = None
) -> CommandState:
    """Take a wish back that no instance has fetched yet; raise CommandRefused where it is late.

    An instance may have fetched it and not said so yet: what it then says it did is final.
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
    """Ask for a PAUSED task to go on at a position; what it holds before that is skipped."""
    kind = CommandKind.RESUME_AT
    return _task_command(kind, digest, actor, reason, command, target=position)


def pause_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Ask for a RUNNING task to hold its records until somebody resumes it."""
    return _task_command(CommandKind.PAUSE_TASK, digest, actor, reason, command)


def restart_task(
    digest: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Ask for a task that died alone to go on at the record that it died of."""
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
    """Ask that failures of a stage be answered so, in every run of the pipeline; None: as before.

    It goes before what the author and the configuration say, and is kept beside the checkpoints.
    """
    wish = Wish(
        command=command or new_id(),
        kind=CommandKind.SET_POLICY,
        actor=actor,
        reason=reason,
        pipeline=pipeline,
        stage=stage,
        answer=answer,
    )
    return issue_command(application, wish)


def shut_down_application(
    application: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Latch the application and ask all its instances to end."""
    kind = CommandKind.SHUT_DOWN_APPLICATION
    wish = Wish(command=command or new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, wish)


def start_application(
    application: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Open a LATCHED application: its instances may run again (somebody has to start them)."""
    kind = CommandKind.START_APPLICATION
    wish = Wish(command=command or new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, wish)


def issue_command(application: str, wish: Wish) -> CommandState:
    """Issue any command."""
    state = issue_all(application, [wish])
    command = state.commands[wish.command]
    if command.status is CommandStatus.REFUSED:
        raise CommandRefused(
            command.outcome or "refused", state=_status(wish, state), sequence=command.sequence
        )
    return command


def issue_all(application: str, wishes: Sequence[Wish]) -> StreamState:
    """Issue commands, all or none, and return the states after that; refused ones say so there.

    Each of several has to be about a task of its own: no one's outcome changes another's.
    """
    patience = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)

    def rule(state: StreamState) -> list[Event]:
        new = [wish for wish in wishes if wish.command not in state.commands]
        ids = [wish.command for wish in new]
        for taken in row_mapping.COMMANDS.load("id = ANY(%s::uuid[])", [ids]):
            raise InvalidValue("command", str(taken.id), "an id that no other command has")
        now = datetime.now(UTC)
        return [
            Event(
                occurred_at=now,
                data=data,
                caused_by=None if isinstance(data, CommandIssued) else wish.command,
            )
            for wish in new
            for data in decide(wish, state, now=now, patience=patience)
        ]

    tasks = [wish.task for wish in wishes if wish.task is not None]
    pipelines = [wish.pipeline for wish in wishes if wish.pipeline is not None]
    ids = [wish.command for wish in wishes]
    state = advance(application, rule, tasks=tasks, commands=ids, pipelines=pipelines)
    for wish in wishes:
        if not _is_for(state.commands[wish.command], wish):
            raise InvalidValue("command", str(wish.command), "an id that no other command has")
    return state


def _is_for(command: CommandState, wish: Wish) -> bool:
    """Whether the command that has the wish's id wishes the same."""
    if (command.pipeline, command.stage, command.answer) != (
        wish.pipeline,
        wish.stage,
        wish.answer,
    ):
        return False
    return (command.kind, command.task, command.target) == (wish.kind, wish.task, wish.target)


def open_application(
    application: str, *, actor: str, reason: str | None = None
) -> ApplicationState:
    """Make sure that the application exists and is OPEN; opening an open one changes nothing."""
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
    wish = Wish(
        command=command or new_id(),
        kind=kind,
        actor=actor,
        reason=reason,
        task=task,
        target=target,
    )
    return issue_command(task.application, wish)


def _status(wish: Wish, state: StreamState) -> str:
    """Return the state that a refusal speaks of."""
    if wish.task is None:
        return state.application.status
    task = state.tasks.get(wish.task.digest)
    return TaskStatus.RUNNING if task is None else task.status
