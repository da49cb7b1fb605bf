"""The current states, one by one or in lists, from the view tables."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from arrester.controlplane import store
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.domain.state.states import (
    ENDED,
    CommandState,
    InstanceState,
    TaskStatus,
    ThreadState,
)
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.failure_history import history
from arrester.controlplane.queries.filters import task_id
from arrester.controlplane.queries.results import GroupDetail, Page, TaskDetail
from arrester.controlplane.views import row_mapping

STOPPED = [TaskStatus.PAUSED.value, TaskStatus.DEAD.value]
#: The statuses of instances that have ended.
OVER = [status.value for status in ENDED]
#: Whether an instance is live: it has not ended, and is not lost with all its runs taken over.
LIVES = f"(status <> ALL(%s::text[]) AND NOT (lost AND NOT {row_mapping.RUNS}))"


def check_known(application: str) -> None:
    """Raise NotFound for an unknown application."""
    store.read_stream(application)


def instances(application: str, *, ended: bool = False) -> tuple[InstanceState, ...]:
    """Return the live instances, newest first; with `ended` the others.

    A lost instance whose runs were all taken over is among the others.
    """
    which = f"NOT {LIVES}" if ended else LIVES
    where = f"application = %s AND {which} ORDER BY started_at DESC NULLS LAST, id"
    return tuple(
        row_mapping.INSTANCES.load(f"{where} LIMIT %s", [application, OVER, cursors.MOST_ROWS])
    )


def instance(application: str, id: UUID) -> InstanceState:
    """Return an instance; raise NotFound."""
    for state in row_mapping.INSTANCES.load("application = %s AND id = %s", [application, id]):
        return state
    raise NotFound(f"there is no instance {id} of {application!r}")


def threads(application: str) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline on each checkpoint, live ones first."""
    where = "application = %s ORDER BY status DESC, pipeline, since DESC NULLS LAST, checkpoint"
    return tuple(row_mapping.THREADS.load(where, [application]))


def task(digest: str) -> TaskDetail:
    """Return a task by its digest; raise NotFound."""
    state = row_mapping.task_state(digest)
    id = state.id
    lines = "application = %s AND pipeline = %s AND checkpoint = %s"
    found = row_mapping.THREADS.load(lines, [id.application, id.pipeline, id.checkpoint])
    newest = commands(id.application, task=digest, limit=1).rows
    # However many were refused since it was issued.
    waiting = row_mapping.COMMANDS.load(
        "application = %s AND task = %s AND open ORDER BY issued_at, id LIMIT 1",
        [id.application, UUID(id.digest)],
    )
    return TaskDetail(
        state=state,
        thread=found[0] if found else None,
        failure=history.event_if_kept(id.application, state.failure_sequence),
        open_command=waiting[0] if waiting else None,
        last_command=newest[0] if newest else None,
    )


def group(application: str, fingerprint: str) -> GroupDetail:
    """Return an error group; raise NotFound."""
    found = row_mapping.GROUPS.load(
        "application = %s AND fingerprint = %s", [application, fingerprint]
    )
    if not found:
        raise NotFound(f"there is no error group {application} {fingerprint!r}")
    (state,) = found
    stopped = row_mapping.TASKS.load(
        "application = %s AND fingerprint = %s AND status <> 'RUNNING'"
        " ORDER BY since DESC, digest DESC LIMIT %s",
        [application, fingerprint, cursors.MOST_ROWS],
    )
    return GroupDetail(
        state=state,
        example=history.event_if_kept(application, state.example_sequence),
        stopped=tuple(stopped),
    )


def commands(
    application: str | None = None,
    *,
    task: str | None = None,
    state: str | None = None,
    open: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[CommandState]:
    """Return commands (of an application, of the task with this digest), newest first.

    With `open` only those without a final status.
    """
    before = cursors.unpack(cursor, tuple[datetime, UUID])
    asked = None if task is None else task_id(task)
    equal = {"application": application, "task": asked, "status": state}
    where, parameters = cursors.where(equal, "issued_at, id", before)
    found = row_mapping.COMMANDS.load(
        f"{where}{' AND open' if open else ''} ORDER BY issued_at DESC, id DESC LIMIT %s",
        [*parameters, cursors.bounded(limit) + 1],
    )
    return cursors.page(found, limit=limit, key=lambda each: (each.issued_at, each.id))


def command(id: UUID) -> CommandState:
    """Return a command; raise NotFound."""
    for state in row_mapping.COMMANDS.load("id = %s", [id]):
        return state
    raise NotFound(f"there is no command {id}")
