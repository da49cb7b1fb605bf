"""A thread without Spark: it answers commands as the engine does, and remembers them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from arrester.agents.journal.outbox import Outbox
from arrester.agents.runtime.protocols import Death
from arrester.controlplane.domain.events import (
    CommandApplied,
    CommandRefused,
    Event,
    EventData,
    Failure,
    PolicyChanged,
    ResumeHow,
    Run,
    StageAnswer,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state.states import TaskState, ThreadStatus
from tests.agents.sample_events import INSTANCE, NOW

STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Outcome:
    applied: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FakeDeath:
    reason: str
    failure: Failure | None = None
    exception: BaseException | None = None
    superseded: bool = False
    finished: bool = False


@dataclass(slots=True)
class FakeThread:
    """`paused` are the keys that a resume is true for; `journal` survives the thread."""

    outbox: Outbox
    on_death: Callable[[Death], None]
    pipeline_name: str = "delays"
    checkpoint_id: str = "c1"
    epoch: int = 1
    instance: UUID = INSTANCE
    paused: set[str | None] = field(default_factory=lambda: {"JFK"})
    journal: dict[UUID, Outcome] = field(default_factory=dict)
    resumes: list[tuple[str | None, ResumeHow | None, int | None]] = field(default_factory=list)
    #: What `resume` raises, if anything.
    broken: Exception | None = None
    #: Whether a refusal is neither written down nor told, as when the thread is ending.
    forgetful: bool = False
    #: What `start` raises, if anything.
    cannot_start: Exception | None = None
    #: How long a graceful stop would take.
    busy_seconds: float = 0.0
    alive: bool = False
    is_answered: bool = False
    is_global: bool = False
    is_idle: bool = False
    #: What it says its tasks weigh, and how often it was asked to report them.
    weight: int | None = 0
    reports: int = 0
    applying: threading.Event = field(default_factory=threading.Event)
    may_apply: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_apply.set()

    @property
    def state(self) -> ThreadStatus:
        return ThreadStatus.RUNNING if self.alive else ThreadStatus.DEAD

    def start(self) -> None:
        if self.cannot_start is not None:
            raise self.cannot_start
        self.alive = True
        self.is_answered = False
        self._tell(ThreadStarted())

    def stop(self, *, timeout_seconds: float) -> bool:
        graceful = self.busy_seconds <= timeout_seconds
        threading.Event().wait(min(self.busy_seconds, timeout_seconds))
        self.die(FakeDeath(STOPPED))
        return graceful

    def die(self, death: FakeDeath) -> None:
        self.alive = False
        self._tell(ThreadDied(reason=death.reason, failure=death.failure))
        if death.reason != STOPPED:
            self.on_death(death)
        self.is_answered = True

    def tasks(self) -> list[TaskState]:
        return []

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
    ) -> Outcome:
        self.applying.set()
        assert self.may_apply.wait(10)
        if self.broken is not None:
            raise self.broken
        self.resumes.append((key, how, position if target is None else target))
        if how is None:
            return self._answered(command, self._paused_by_hand(key, command))
        applied = key in self.paused
        outcome = Outcome(applied, "resumed" if applied else f"{key} is RUNNING")
        if applied:
            self.paused.remove(key)
            self._tell(TaskResumed(task=key, how=how), command)
        return self._answered(command, outcome)

    def set_policy(
        self,
        stage: str,
        answer: StageAnswer | None,
        *,
        command: UUID | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Outcome:
        if stage != "produce":
            return self._answered(command, Outcome(False, f"there is no stage {stage}"))
        self._tell(PolicyChanged(stage=stage, answer=answer, actor=actor, reason=reason), command)
        return self._answered(command, Outcome(True, f"answered {answer}"))

    def _paused_by_hand(self, key: str | None, command: UUID | None) -> Outcome:
        if key in self.paused:
            return Outcome(False, f"{key} is PAUSED")
        self.paused.add(key)
        self._tell(TaskPaused(task=key, position=None), command)
        return Outcome(True, "paused")

    def _answered(self, command: UUID | None, outcome: Outcome) -> Outcome:
        if command is not None and not self.forgetful:
            self.journal[command] = outcome
            answer: EventData = CommandRefused(command=command, reason=outcome.reason)
            self._tell(CommandApplied(command=command) if outcome.applied else answer, command)
        return outcome

    def standing(self) -> int | None:
        return self.weight

    def report(self) -> None:
        self.reports += 1

    def is_applied(self, command: UUID) -> Outcome | None:
        return self.journal.get(command)

    def _tell(self, data: EventData, command: UUID | None = None) -> None:
        run = Run(pipeline=self.pipeline_name, checkpoint=self.checkpoint_id, epoch=self.epoch)
        event = Event(
            occurred_at=NOW, instance=self.instance, run=run, caused_by=command, data=data
        )
        self.outbox.put(uuid7(NOW), [event])
