"""Events that change the state of a task, and reports of states."""

from __future__ import annotations

from typing import Literal

from arrester.domain.events.parts import Count, Data, Failure, Position
from arrester.domain.python_versions import StrEnum


class ResumeHow(StrEnum):
    """Where a task continues."""

    #: The failed record is tried again.
    RETRY = "RETRY"
    #: The failed record is changed by a person and tried again, at its place.
    MEND = "MEND"
    #: The failed record becomes a dead letter; the task continues after it.
    SKIP = "SKIP"
    #: A new instance restarts paused tasks at the failed record (KIP-990).
    RESTART = "RESTART"
    #: The task continues at a position; the held records before it become dead letters.
    AT = "AT"


class TaskPaused(Data, frozen=True, kw_only=True, tag=True):
    """The task stopped at a record; everything before it is processed and written (KIP-990)."""

    task: str | None
    position: Position | None
    failure: Failure | None = None
    #: The person who paused it by hand.
    actor: str | None = None
    reason: str | None = None


class RecordsHeld(Data, frozen=True, kw_only=True, tag=True):
    """The number of rows that the task holds, after a micro-batch or after a chunk of them has
    run."""

    task: str | None
    held: Count
    first_position: Position | None = None
    #: Its redriven records up to this position are processed; None: it is not reported. If it holds
    #: no record, all are.
    processed_until: Position | None = None


class TaskResumed(Data, frozen=True, kw_only=True, tag=True):
    """The task runs again; held records go first, in order."""

    task: str | None
    how: ResumeHow
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None
    #: With AT: the number of held records left out. SKIP leaves out one.
    skipped: Count = 0


class TaskDied(Data, frozen=True, kw_only=True, tag=True):
    """A failure of this task was answered by FAIL."""

    task: str | None
    position: Position | None
    failure: Failure
    #: Its thread continues, and its records are held (errors.failure.scope=task).
    alone: bool = False


class TaskRestarted(Data, frozen=True, kw_only=True, tag=True):
    """A dead task runs again: in a new run, or restarted by an operator."""

    task: str | None
    #: For a task that died alone: where its held records begin.
    position: Position | None = None
    actor: str | None = None
    reason: str | None = None


class TaskDismissed(Data, frozen=True, kw_only=True, tag=True):
    """A person dismissed a task without a run: it is not counted until an agent reports it."""

    task: str | None
    actor: str
    reason: str


class TaskReported(Data, frozen=True, kw_only=True):
    """The state of a task that is not RUNNING, or has held rows."""

    task: str | None
    status: Literal["RUNNING", "PAUSED", "DEAD"]
    position: Position | None = None
    failure: Failure | None = None
    held: Count = 0


class StateReported(Data, frozen=True, kw_only=True, tag=True):
    """The state of all tasks of a run, reported because the server had stored other states.

    It covers the tasks whose digest is greater than `above` and not greater than `through` (None:
    no bound): those not in `tasks` are RUNNING and hold nothing.
    """

    tasks: tuple[TaskReported, ...] = ()
    above: str | None = None
    through: str | None = None


TaskMove = TaskPaused | RecordsHeld | TaskResumed | TaskDied | TaskRestarted | TaskDismissed
