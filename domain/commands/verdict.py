"""The verdict on a command that lets a task continue: whether the task has stopped since."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from arrester.domain.commands.kinds import KINDS
from arrester.domain.events import ResumeHow
from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import CommandState, CommandStatus, TaskState


class Outcome(StrEnum):
    """What has happened to the task since the command was applied."""

    #: It has not stopped.
    NO_STOP = "NO_STOP"
    #: It stopped at the same record.
    FAILED_AGAIN = "FAILED_AGAIN"
    #: It stopped at another record, or an operator paused it.
    STOPPED_LATER = "STOPPED_LATER"


class NextStop(msgspec.Struct, frozen=True, kw_only=True):
    """The first stop of a task since a command was applied."""

    at: datetime
    position: int | None = None
    stops: Annotated[
        int | None,
        Meta(description="How often the task has stopped there; null if it has continued since."),
    ] = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an applied command has achieved so far."""

    outcome: Outcome
    #: The first stop since; None: there was none.
    stop: NextStop | None = None
    held: Annotated[int, Meta(description="Without a stop: the records still held.")] = 0


def has_verdict(command: CommandState) -> bool:
    """Whether the command is applied and let a task continue."""
    return command.status is CommandStatus.APPLIED and isinstance(
        KINDS[command.kind].how, ResumeHow
    )


def verdict_of(command: CommandState, task: TaskState, stop: NextStop | None) -> Verdict:
    """Return the verdict on a command for `task`, which has stopped first at `stop` since."""
    if stop is None:
        return Verdict(outcome=Outcome.NO_STOP, held=task.held)
    # A skipped record cannot fail again; without a position, records are indistinguishable.
    is_same = KINDS[command.kind].how in (ResumeHow.RETRY, ResumeHow.RESTART)
    is_same = is_same and stop.position is not None and stop.position == command.position
    outcome = Outcome.FAILED_AGAIN if is_same else Outcome.STOPPED_LATER
    return Verdict(outcome=outcome, stop=stop)


def newest_verdict(command: CommandState | None, task: TaskState) -> Verdict | None:
    """Return the verdict on the newest command for a task; None: it let no task continue."""
    if command is None or not has_verdict(command):
        return None
    stop = None
    if task.status.stopped and task.since is not None:
        stop = NextStop(at=task.since, position=task.position, stops=task.stops)
    return verdict_of(command, task, stop)
