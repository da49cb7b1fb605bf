"""What happens to tasks."""

from __future__ import annotations

from enum import StrEnum

from controlplane.domain.events.base import Count, Data, Failure, Position


class ResumeHow(StrEnum):
    """From where a task goes on."""

    #: The failed record is tried again.
    RETRY = "RETRY"
    #: The failed record becomes a dead letter; the one after it is next.
    SKIP = "SKIP"
    #: A new instance starts paused tasks again at the failed record (KIP-990).
    RESTART = "RESTART"


class TaskPaused(Data, frozen=True, kw_only=True, tag=True):
    """The task holds at a record; everything before it is processed and written (KIP-990)."""

    task: str | None
    position: Position | None
    failure: Failure | None = None


class RecordsHeld(Data, frozen=True, kw_only=True, tag=True):
    """How many rows the task holds now, after a micro-batch or after a chunk of them has run."""

    task: str | None
    held: Count
    first_position: Position | None = None


class TaskResumed(Data, frozen=True, kw_only=True, tag=True):
    """The task runs again; what it held goes first, in order."""

    task: str | None
    how: ResumeHow
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None


class TaskDied(Data, frozen=True, kw_only=True, tag=True):
    """A failure of this task was answered by FAIL."""

    task: str | None
    position: Position | None
    failure: Failure


class TaskRestarted(Data, frozen=True, kw_only=True, tag=True):
    """A new run took a dead task up again."""

    task: str | None


TaskMove = TaskPaused | RecordsHeld | TaskResumed | TaskDied | TaskRestarted
