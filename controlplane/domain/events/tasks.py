"""What happens to tasks."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from arrester.controlplane.domain.events.base import Count, Data, Failure, Position


class ResumeHow(StrEnum):
    """From where a task goes on."""

    #: The failed record is tried again.
    RETRY = "RETRY"
    #: The failed record becomes a dead letter; the one after it is next.
    SKIP = "SKIP"
    #: A new instance starts paused tasks again at the failed record (KIP-990).
    RESTART = "RESTART"
    #: The task goes on at a position; the held records before it become dead letters.
    AT = "AT"


class TaskPaused(Data, frozen=True, kw_only=True, tag=True):
    """The task holds at a record; everything before it is processed and written (KIP-990)."""

    task: str | None
    position: Position | None
    failure: Failure | None = None
    #: Of the person who paused it by hand.
    actor: str | None = None
    reason: str | None = None


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
    #: With AT: how many held records were left out. SKIP leaves out one.
    skipped: Count = 0


class TaskDied(Data, frozen=True, kw_only=True, tag=True):
    """A failure of this task was answered by FAIL."""

    task: str | None
    position: Position | None
    failure: Failure
    #: Its thread goes on, and its records are held (errors.failure.scope=task).
    alone: bool = False


class TaskRestarted(Data, frozen=True, kw_only=True, tag=True):
    """A dead task runs again: a new run took it up, or an operator wished so."""

    task: str | None
    #: Of a task that had died alone: where its held records begin.
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None


class TaskReported(Data, frozen=True, kw_only=True):
    """How a task stands that does not run, or has rows to run first."""

    task: str | None
    status: Literal["RUNNING", "PAUSED", "DEAD"]
    position: Position | None = None
    failure: Failure | None = None
    held: Count = 0


class StateReported(Data, frozen=True, kw_only=True, tag=True):
    """How all tasks of a run stand, told because the server saw them otherwise.

    It speaks of the tasks whose digest is greater than `above` and not greater than `through`
    (None: no bound): those that are not in `tasks` run, and hold nothing.
    """

    tasks: tuple[TaskReported, ...] = ()
    above: str | None = None
    through: str | None = None


TaskMove = TaskPaused | RecordsHeld | TaskResumed | TaskDied | TaskRestarted
