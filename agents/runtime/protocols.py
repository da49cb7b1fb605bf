"""What the runtime requires of the engine's threads."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from arrester.controlplane.domain.events import Failure, ResumeHow, StageAnswer
from arrester.controlplane.domain.state.states import TaskState, ThreadStatus


class Outcome(Protocol):
    """The result of a command in a thread, with a reason in either case."""

    @property
    def applied(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class Controls(Protocol):
    """What a command requires of a thread, which answers with events of its own from its
    checkpoint."""

    @property
    def pipeline_name(self) -> str: ...

    @property
    def checkpoint_id(self) -> str: ...

    def resume(
        self,
        key: str | None,
        *,
        how: ResumeHow | None,
        position: int | None = None,
        target: int | None = None,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Outcome: ...

    def set_policy(
        self,
        stage: str,
        answer: StageAnswer | None,
        *,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Outcome: ...

    def is_applied(self, command: UUID) -> Outcome | None: ...


class Death(Protocol):
    """How a thread ended; reported by the engine once per thread."""

    @property
    def reason(self) -> str: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def exception(self) -> BaseException | None: ...

    @property
    def superseded(self) -> bool: ...

    @property
    def finished(self) -> bool: ...


class Thread(Controls, Protocol):
    """One run of a pipeline, as the runtime uses it."""

    @property
    def state(self) -> ThreadStatus: ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_global(self) -> bool:
        """Whether the pipeline has one task only, the global one."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens any more without a command."""
        ...

    @property
    def is_answered(self) -> bool:
        """Whether it has ended, and `on_death`, if it had to be called, has returned."""
        ...

    def stop(self, *, timeout_seconds: float) -> bool: ...

    def standing(self) -> int | None:
        """Return the weight of its tasks that are not RUNNING; None while events are
        unpublished."""
        ...

    def report(self) -> None:
        """Report the state of its tasks soon."""
        ...

    def tasks(self) -> list[TaskState]: ...
