"""Commands: one, and lists."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import UNSET

from arrester.controlplane import store
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.queries.paging import Page, task_id
from arrester.controlplane.views import rollout_progress, row_mapping
from arrester.controlplane.views.redrive_progress import progress_of as progress_of_redrive
from arrester.domain.commands.kinds import KINDS, ROLLOUTS, Subject
from arrester.domain.commands.redrive import RedriveProgress
from arrester.domain.commands.rollout import Progress
from arrester.domain.commands.verdict import NextStop, Verdict, has_verdict, verdict_of
from arrester.domain.errors import NotFound
from arrester.domain.events import (
    CommandKind,
    Rollout,
    StoredEvent,
    TaskDied,
    TaskPaused,
)
from arrester.domain.state.states import CommandState, TaskState

#: The kind of the commands that a redrive issues.
[_PART] = [
    row.part.value for row in KINDS.values() if row.part and row.subject is Subject.DEAD_LETTERS
]


def command(id: UUID) -> CommandState:
    """Return a command; raise NotFound."""
    for state in row_mapping.COMMANDS.load("id = %s", [id]):
        return state
    raise NotFound(f"there is no command {id}")


def commands(
    application: str | None = None,
    *,
    task: str | None = None,
    status: str | None = None,
    kind: str | None = None,
    actor: str | None = None,
    part_of: UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    open: bool = False,
    parts: bool = True,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[CommandState]:
    """Return commands (of an application, a task by its digest, a rollout), newest first.

    `since` and `until` (exclusive) limit the time at which a command was issued. With `open` only
    those without a final status. Without `parts`, a redrive is one command: those that it has
    issued are left out.
    """
    before = paging.unpack(cursor, tuple[datetime, UUID], of="commands")
    digest = None if task is None else task_id(task)
    equal = {
        "application": application,
        "task": digest,
        "status": status,
        "kind": kind,
        "actor": actor,
        "part_of": part_of,
    }
    where, parameters = sql.where(equal, "issued_at, id", before)
    for limit_of_time, moment in (("issued_at >= %s", since), ("issued_at < %s", until)):
        if moment is not None:
            where, parameters = f"{where} AND {limit_of_time}", [*parameters, moment]
    if not parts:
        where, parameters = f"{where} AND kind <> %s", [*parameters, _PART]
    rows = row_mapping.COMMANDS.load(
        f"{where}{' AND open' if open else ''} ORDER BY issued_at DESC, id DESC LIMIT %s",
        [*parameters, paging.checked(limit) + 1],
    )
    return paging.page(rows, of="commands", limit=limit, key=lambda each: (each.issued_at, each.id))


def verdict(command: CommandState) -> Verdict | None:
    """Return what an applied command has achieved; None if it let no task continue."""
    return verdicts([command])[0]


def verdicts(commands: Sequence[CommandState]) -> list[Verdict | None]:
    """Return the verdict on each command; the number of statements does not grow with theirs."""
    asked = [
        (UUID(each.task.digest), each.sequence)
        for each in commands
        if each.task is not None and has_verdict(each)
    ]
    states = row_mapping.TASKS.load("digest = ANY(%s)", [[digest for digest, _ in asked]])
    tasks = {state.id: state for state in states}
    stops = dict(zip(asked, store.read_next_stops(asked), strict=True))
    found: list[Verdict | None] = []
    for command in commands:
        task = tasks.get(command.task) if command.task and has_verdict(command) else None
        if task is None:
            found.append(None)
        else:
            stop = stops[UUID(task.id.digest), command.sequence]
            found.append(verdict_of(command, task, _next_stop(task, stop)))
    return found


def _next_stop(task: TaskState, stored: StoredEvent | None) -> NextStop | None:
    """Return the stop of a task that an event reports."""
    if stored is None:
        return None
    data = stored.event.data
    assert isinstance(data, TaskPaused | TaskDied)
    stops = task.stops if task.status_sequence == stored.sequence else None
    return NextStop(at=stored.event.occurred_at, position=data.position, stops=stops)


def progress(command: CommandState) -> Progress | None:
    """Return what a rollout has achieved so far; None for other commands."""
    if command.rollout is UNSET:
        return None
    return rollout_progress.progress_of(command, command.rollout)


def redrive_progress(command: CommandState) -> RedriveProgress | None:
    """Return what a redrive has achieved so far; None for other commands."""
    return None if command.redrive is UNSET else progress_of_redrive(command)


def rollout_tasks(application: str, *, fingerprint: str | None = None) -> dict[CommandKind, int]:
    """Return for each kind of rollout how many tasks it would be for.

    Raises NotFound for an unknown application.
    """
    store.read_stream(application)
    rollout = Rollout(fingerprint=fingerprint, tasks=0)
    return {kind: rollout_progress.count_waiting(application, kind, rollout) for kind in ROLLOUTS}


def open_commands(application: str) -> tuple[CommandState, ...]:
    """Return the open commands of an application, newest first."""
    where = "application = %s AND open ORDER BY issued_at DESC, id"
    return tuple(row_mapping.COMMANDS.load(where, [application]))
