"""How things stand now: reads of the view tables."""

from __future__ import annotations

from uuid import UUID

from controlplane.domain.states import (
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
    ThreadState,
)
from controlplane.queries.answers import GroupDetail, Overview, Page, Pipeline, Summary, TaskDetail


def overview() -> Overview:
    """Return the first page: all applications and what needs somebody."""
    raise NotImplementedError


def applications() -> tuple[Summary, ...]:
    """Return all applications by name."""
    raise NotImplementedError


def application(name: str) -> Summary:
    """Return one application; raise NotFound."""
    raise NotImplementedError


def instances(application: str, *, ended: bool = False) -> tuple[InstanceState, ...]:
    """Return the instances that have not ended, newest first; with `ended` those that have."""
    raise NotImplementedError


def threads(application: str) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline at each checkpoint, live ones first."""
    raise NotImplementedError


def pipelines(application: str, *, history: bool = False, limit: int = 500) -> tuple[Pipeline, ...]:
    """Return the task grid: each live checkpoint (with `history` each one) with its tasks.

    A checkpoint is live while its newest run is RUNNING; the newest one of a pipeline is shown
    in any case, so that a dead pipeline does not vanish from its page.
    """
    raise NotImplementedError


def task(digest: str) -> TaskDetail:
    """Return a task by its digest; raise NotFound."""
    raise NotImplementedError


def held(application: str | None = None) -> tuple[TaskState, ...]:
    """Return the tasks that hold records, most records first."""
    raise NotImplementedError


def groups(
    application: str | None = None, *, cursor: str | None = None, limit: int = 50
) -> Page[GroupState]:
    """Return error groups, those that failed last first."""
    raise NotImplementedError


def group(application: str, fingerprint: str) -> GroupDetail:
    """Return an error group; raise NotFound."""
    raise NotImplementedError


def commands(
    application: str | None = None,
    *,
    task: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[CommandState]:
    """Return commands (of one application, of the task with this digest), newest first."""
    raise NotImplementedError


def command(id: UUID) -> CommandState:
    """Return a command; raise NotFound."""
    raise NotImplementedError
