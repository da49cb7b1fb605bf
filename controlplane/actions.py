"""Every write by people and by the clock: one function each, all on the road of `_advance`.

Each action that a person takes is a command with an id: giving the id again changes nothing and
answers alike. A wish that the state forbids is in the log as CommandIssued and CommandRefused,
and raises CommandRefused (with `state` and `sequence`); one that is no wish (no reason where one
is required) raises InvalidValue and leaves no trace; what does not exist raises NotFound.
None of them needs Redis: what is committed is relayed later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import transaction

from controlplane import broker, models, presence, projections, relay, rows, store
from controlplane.domain import ids, keys
from controlplane.domain.decide import Wish, decide
from controlplane.domain.decide import watch as passing_of_time
from controlplane.domain.errors import CommandRefused, InvalidValue, NotFound
from controlplane.domain.events import ApplicationOpened, CommandIssued, CommandKind, Event
from controlplane.domain.names import TaskId, check_name
from controlplane.domain.states import (
    ApplicationState,
    ApplicationStatus,
    CommandState,
    CommandStatus,
    TaskStatus,
)
from controlplane.domain.stream import StreamState

log = logging.getLogger(__name__)

Rule = Callable[[StreamState], list[Event]]


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


def shut_down_application(
    application: str, *, actor: str, reason: str, command: UUID | None = None
) -> CommandState:
    """Latch the application and ask all its instances to end."""
    kind = CommandKind.SHUT_DOWN_APPLICATION
    wish = Wish(command=command or _new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, wish)


def start_application(
    application: str, *, actor: str, reason: str | None = None, command: UUID | None = None
) -> CommandState:
    """Open a LATCHED application: its instances may run again (somebody has to start them)."""
    kind = CommandKind.START_APPLICATION
    wish = Wish(command=command or _new_id(), kind=kind, actor=actor, reason=reason)
    return issue_command(application, wish)


def issue_command(application: str, wish: Wish) -> CommandState:
    """Issue any command: what the four above do."""
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

    state = _advance(application, rule, task=wish.task, command=wish.command)
    command = state.commands[wish.command]
    if (command.kind, command.task) != (wish.kind, wish.task):
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

    state = _advance(application, rule)
    if state.application.status is ApplicationStatus.LATCHED:
        start_application(application, actor=actor, reason=reason)
        state = _advance(application, lambda _: [])
    return state.application


def watch(*, now: datetime | None = None) -> int:
    """Tell what time made true: instances lost or found, commands expired. Return how much."""
    now = now or datetime.now(UTC)
    patience = timedelta(seconds=keys.LOST_AFTER_SECONDS)
    unbroken = presence.look(now=now)
    told = 0
    for stream in store.known():
        try:
            told += _watch(stream.application, now=now, may_declare_lost=unbroken >= patience)
        except broker.ResponseError:
            # A key of another type in the place of one of ours is no other application's matter.
            log.exception("%s: Redis refuses to be watched", stream.application)
    return told


def sighted(*names: str) -> None:
    """Note that parts of the system (redis, wake, worker) are at work now."""
    now = datetime.now(UTC)
    for name in names:
        models.Sighting.objects.update_or_create(name=name, defaults={"at": now})


def _watch(application: str, *, now: datetime, may_declare_lost: bool) -> int:
    before = projections.standing(application)
    asked = before.instances.keys()
    heard = presence.heard(application, asked)
    # What an instance said before it fell silent may still wait to be folded.
    sure = may_declare_lost and presence.is_folded(application, now=now)

    def rule(state: StreamState) -> list[Event]:
        # Until the lock was ours others may have come: silence of whom nobody asked proves nothing.
        new = state.instances.keys() - asked
        return passing_of_time(state, heard=heard | new, may_declare_lost=sure, now=now)

    # Asked twice: the lock and the rest are for the rare time when something is to be told.
    told = len(rule(before))
    if told:
        _advance(application, rule)
    return told


def _task_command(
    kind: CommandKind, digest: str, actor: str, reason: str | None, command: UUID | None
) -> CommandState:
    task = _task_id(digest)
    wish = Wish(command=command or _new_id(), kind=kind, actor=actor, reason=reason, task=task)
    return issue_command(task.application, wish)


def _task_id(digest: str) -> TaskId:
    try:
        found = rows.TASKS.load("digest = %s", [UUID(hex=digest)])
    except ValueError:
        found = []
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    return found[0].id


def _new_id() -> UUID:
    return ids.uuid7(datetime.now(UTC))


def _status(wish: Wish, state: StreamState) -> str:
    """Return the state that a refusal speaks of."""
    if wish.task is None:
        return state.application.status
    task = state.tasks.get(wish.task.digest)
    return TaskStatus.RUNNING if task is None else task.status


@transaction.atomic(durable=True)
def _advance(
    application: str, rule: Rule, *, task: TaskId | None = None, command: UUID | None = None
) -> StreamState:
    """Lock the stream, load what rules look at, ask `rule` what happens, append and show it.

    Return the states after that; agents are told after the commit.
    """
    stream = store.lock(application)
    state = projections.standing(application, task=task, command=command)
    events = rule(state)
    if not events:
        return state
    now = datetime.now(UTC)
    _, stored = store.append(
        stream, [store.Batch(id=ids.uuid7(now), events=events)], received_at=now
    )
    projections.project(application, stored)
    transaction.on_commit(partial(relay.relay_or_leave, application))
    return state.fold(stored)
