"""Tasks that may be resumed or dismissed together, and those that an act has resumed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from django.conf import settings

from arrester.controlplane import store
from arrester.controlplane.queries import paging, sql
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.events import CommandKind
from arrester.domain.identity import uuids
from arrester.domain.state.states import TaskState

#: Whether a task may be resumed together with others.
_RESUMABLE = (
    f"{live_checkpoints.OF_THREADS} AND status = 'PAUSED'"
    " AND NOT EXISTS (SELECT FROM command WHERE command.task = task.digest AND command.open)"
)


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that may be resumed together, the longest stopped first."""

    tasks: tuple[TaskState, ...]
    #: The number of further ones.
    more: int

    @property
    def total(self) -> int:
        """The number of all of them."""
        return len(self.tasks) + self.more


def paused(application: str, *, fingerprint: str | None = None, limit: int = 500) -> Paused:
    """Return the PAUSED tasks of live checkpoints, of one cause if given.

    Without those that have an open command. Raises NotFound for an unknown application.
    """
    store.read_stream(application)
    threads = row_mapping.THREADS.load("application = %s", [application])
    where = f"{_RESUMABLE} AND (%s::text IS NULL OR fingerprint = %s)"
    live = live_checkpoints.columns(threads)
    parameters = [*live, fingerprint, fingerprint]
    tasks = row_mapping.TASKS.load(
        f"{where} ORDER BY since, digest LIMIT %s", [*parameters, paging.checked(limit)]
    )
    ((count,),) = sql.rows(f"SELECT count(*) FROM task WHERE {where}", parameters)
    return Paused(tasks=tuple(tasks), more=count - len(tasks))


def paused_of(digests: Sequence[str]) -> Paused:
    """Return those of some tasks that are PAUSED, of a live checkpoint, and have no open
    command."""
    threads = row_mapping.THREADS.load_readable("true", [])
    tasks = row_mapping.TASKS.load(
        f"{_RESUMABLE} AND digest = ANY(%s::uuid[]) ORDER BY since, digest",
        [*live_checkpoints.columns(threads), list(digests)],
    )
    return Paused(tasks=tuple(tasks), more=0)


def without_run(digests: Sequence[str]) -> tuple[TaskState, ...]:
    """Return those of some tasks that are stopped or hold records, and that no run processes."""
    where = f"digest = ANY(%s::uuid[]) AND ({sql.STOPPED} OR held > 0) ORDER BY since, digest"
    tasks = row_mapping.TASKS.load(where, [list(digests)])
    known = live_checkpoints.checkpoints({each.id.application for each in tasks})
    return tuple(
        each for each in tasks if live_checkpoints.pipeline_key(each.id) in known.no_run_since
    )


def resumed_by(act: UUID, application: str) -> list[str]:
    """Return the digests of the tasks that an act has resumed; empty if it is a new one.

    Acts are known as long as batches are.
    """
    horizon = timedelta(days=settings.ENVIRONMENT.replay_days)
    rows = sql.rows(
        "SELECT id, task FROM command"
        " WHERE application = %s AND kind = %s AND issued_at > %s AND task IS NOT NULL"
        " ORDER BY task",
        [application, CommandKind.RESUME_TASK.value, datetime.now(UTC) - horizon],
    )
    return [task.hex for id, task in rows if id == uuids.part_of(act, task.hex)]
