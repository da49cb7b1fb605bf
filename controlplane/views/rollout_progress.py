"""The progress of a rollout, and the next tasks: both are found in the views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from arrester.controlplane.store import batches
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.commands.kinds import KINDS, NEEDS_FAILED_RECORD, ROLLOUTS
from arrester.domain.commands.rollout import Progress
from arrester.domain.events import CommandKind, ResumeHow, Rollout
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import CommandState, TaskStatus

_COMMANDS = """
SELECT count(*), count(*) FILTER (WHERE open), count(*) FILTER (WHERE status = 'APPLIED'),
    max(issued_at), max(sequence) FILTER (WHERE NOT open)
FROM command WHERE part_of = %s
"""
#: A task is RUNNING when its command is APPLIED.
_STOPPED_AGAIN = """
SELECT task.digest FROM command JOIN task ON task.digest = command.task
WHERE command.part_of = %s AND command.status = 'APPLIED' AND task.status = ANY(%s)
    AND task.fingerprint IS NOT NULL AND (%s::text IS NULL OR task.fingerprint = %s)
"""


def progress_of(command: CommandState, rollout: Rollout) -> Progress:
    """Return what a rollout has achieved so far."""
    ((issued, open, applied, issued_at, answered),) = _rows(_COMMANDS, [command.id])
    last = answered and batches.read_containing(command.application, answered)
    return Progress(
        issued=issued,
        open=open,
        applied=applied,
        stopped_again=len(stopped_again(command.id, rollout)),
        waiting=count_waiting(command.application, command.kind, rollout, id=command.id),
        issued_at=issued_at,
        answered_at=last.received_at if last else None,
    )


def count_issued(id: UUID) -> int:
    """Return the number of commands that a rollout has issued."""
    ((count,),) = _rows("SELECT count(*) FROM command WHERE part_of = %s", [id])
    return int(count)


def stopped_again(id: UUID, rollout: Rollout) -> list[UUID]:
    """Return the tasks of a rollout that stopped again for its cause."""
    stopped = [status.value for status in TaskStatus if status.stopped]
    cause = rollout.fingerprint
    return [digest for (digest,) in _rows(_STOPPED_AGAIN, [id, stopped, cause, cause])]


def count_waiting(
    application: str, kind: CommandKind, rollout: Rollout, *, id: UUID | None = None
) -> int:
    """Return the number of stopped tasks that can get a command of the rollout."""
    where, parameters = _waiting(application, kind, rollout, id)
    ((count,),) = _rows(f"SELECT count(*) FROM task WHERE {where}", parameters)
    return int(count)


def next_tasks(
    application: str, kind: CommandKind, rollout: Rollout, *, limit: int, id: UUID | None = None
) -> list[TaskId]:
    """Return the tasks that get the next commands of the rollout, the longest stopped first."""
    where, parameters = _waiting(application, kind, rollout, id)
    tasks = row_mapping.TASKS.load(f"{where} ORDER BY since, digest LIMIT %s", [*parameters, limit])
    return [task.id for task in tasks]


def _waiting(
    application: str, kind: CommandKind, rollout: Rollout, id: UUID | None
) -> tuple[str, list[Any]]:
    threads = row_mapping.THREADS.load("application = %s", [application])
    where = (
        f"application = %s AND {live_checkpoints.OF_THREADS} AND {_status(kind)}"
        " AND (%s::text IS NULL OR fingerprint = %s) AND NOT EXISTS (SELECT FROM command"
        " WHERE command.task = task.digest AND (command.open OR command.part_of = %s))"
    )
    cause = rollout.fingerprint
    return where, [application, *live_checkpoints.columns(threads), cause, cause, id]


def _status(kind: CommandKind) -> str:
    """Return the condition of the tasks that a rollout is for."""
    how = KINDS[ROLLOUTS[kind]].how
    status = TaskStatus.DEAD if how is ResumeHow.RESTART else TaskStatus.PAUSED
    # A task that was paused by hand has no failed record: it can only be resumed.
    return f"status = '{status}'" + (
        " AND fingerprint IS NOT NULL" if how in NEEDS_FAILED_RECORD else ""
    )


def _rows(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
