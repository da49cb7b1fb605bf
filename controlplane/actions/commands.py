"""What people wish of tasks and applications: each wish is a command with an id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

import msgspec
from django.conf import settings

from controlplane import rows, store
from controlplane.actions.road import advance, check_text, new_id
from controlplane.domain.decide import Wish, decide, why_not_cancelled
from controlplane.domain.errors import CommandRefused, InvalidValue, NotFound
from controlplane.domain.events import (
    ApplicationOpened,
    CommandCancelled,
    CommandIssued,
    CommandKind,
    Event,
)
from controlplane.domain.names import TaskId, check_name
from controlplane.domain.states import (
    ApplicationState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    TaskStatus,
)
from controlplane.domain.stream import StreamState

#: How many tasks one click may resume.
MOST_AT_ONCE = 500


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task of many that were to be resumed."""

    task: TaskId
    #: None when the state forbids it; then `refused` says why.
    command: CommandState | None
    refused: str = ""


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


def resume_tasks(
    digests: Sequence[str], *, actor: str, reason: str | None = None, id: UUID | None = None
) -> list[Resumed]:
    """Ask for each of some PAUSED tasks to go on; what one of them forbids stops no other.

    Each gets a command of its own, whose id is made of `id` and the task. Raises InvalidValue
    for too many, NotFound for a task that does not exist, before anything is asked.
    """
    if not 1 <= len(digests) <= MOST_AT_ONCE:
        raise InvalidValue("tasks", len(digests), f"1 to {MOST_AT_ONCE} tasks at once")
    id = id or new_id()
    tasks = [_task_id(digest) for digest in dict.fromkeys(digests)]
    return [_resumed(task, uuid5(id, task.digest), actor, reason) for task in tasks]


def _resumed(task: TaskId, command: UUID, actor: str, reason: str | None) -> Resumed:
    kind = CommandKind.RESUME_TASK
    wish = Wish(command=command, kind=kind, actor=actor, reason=reason, task=task)
    try:
        return Resumed(task=task, command=issue_command(task.application, wish))
    except CommandRefused as refused:
        return Resumed(task=task, command=None, refused=str(refused))


def cancel_command(
    command: UUID, *, actor: str, reason: str | None = None, id: UUID | None = None
) -> CommandState:
    """Take a wish back that no instance has fetched yet; raise CommandRefused where it is late.

    An instance may have fetched it and not said so yet: what it then says it did is final.
    """
    check_text(actor=actor, reason=reason)
    found = rows.COMMANDS.load("id = %s", [command])
    if not found:
        raise NotFound(f"there is no command {command}")

    def rule(state: StreamState) -> list[Event]:
        known = state.commands[command]
        late = why_not_cancelled(known)
        if late is not None:
            raise CommandRefused(late, state=known.status, sequence=known.sequence)
        data = CommandCancelled(command=command, reason=reason or "taken back", actor=actor)
        return [Event(occurred_at=datetime.now(UTC), data=data)]

    state = advance(found[0].application, rule, command=command, id=id)
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
    patience = timedelta(seconds=settings.ENVIRONMENT.command_expiry_seconds)

    def rule(state: StreamState) -> list[Event]:
        if wish.command in state.commands:
            return []
        if rows.COMMANDS.load("id = %s", [wish.command]):
            raise InvalidValue("command", str(wish.command), "an id that no other command has")
        now = datetime.now(UTC)
        return [
            Event(
                occurred_at=now,
                data=data,
                caused_by=None if isinstance(data, CommandIssued) else wish.command,
            )
            for data in decide(wish, state, now=now, patience=patience)
        ]

    state = advance(application, rule, task=wish.task, command=wish.command)
    command = state.commands[wish.command]
    if (command.kind, command.task, command.target) != (wish.kind, wish.task, wish.target):
        raise InvalidValue("command", str(wish.command), "an id that no other command has")
    if command.status is CommandStatus.REFUSED:
        raise CommandRefused(
            command.outcome or "refused", state=_status(wish, state), sequence=command.sequence
        )
    return command


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
    task = _task_id(digest)
    wish = Wish(
        command=command or new_id(),
        kind=kind,
        actor=actor,
        reason=reason,
        task=task,
        target=target,
    )
    return issue_command(task.application, wish)


def _task_id(digest: str) -> TaskId:
    try:
        found = rows.TASKS.load("digest = %s", [UUID(hex=digest)])
    except ValueError:
        found = []
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    return found[0].id


def _status(wish: Wish, state: StreamState) -> str:
    """Return the state that a refusal speaks of."""
    if wish.task is None:
        return state.application.status
    task = state.tasks.get(wish.task.digest)
    return TaskStatus.RUNNING if task is None else task.status
