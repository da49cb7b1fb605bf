"""A thread without Spark: it answers commands as the engine does, and remembers them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.thread_protocol import (
    Outbox,
    PipelineCommand,
    PolicyCommand,
    RecordTestAnswer,
    RedriveCommand,
    ThreadCommand,
    ThreadEnd,
)
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    Event,
    EventData,
    PolicyChanged,
    RecordTest,
    ResumeHow,
    Run,
    TaskPaused,
    TaskResumed,
    ThreadStarted,
)
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.states import PipelinePause, TaskState, ThreadStatus
from arrester.domain.wire.codec import InProgress, RunFlow
from tests.agents.sample_events import INSTANCE, NOW
from tests.patience import PATIENCE_SECONDS


def applied(reason: str) -> CommandAnswer:
    return CommandAnswer(applied=True, reason=reason)


def refused(reason: str) -> CommandAnswer:
    return CommandAnswer(applied=False, reason=reason)


@dataclass(slots=True)
class FakeThread:
    """`paused` are the keys of PAUSED tasks; `journal` survives the thread."""

    outbox: Outbox
    on_end: Callable[[ThreadEnd], None]
    pipeline_name: str = "delays"
    checkpoint_id: str = "c1"
    epoch: int = 1
    instance: UUID = INSTANCE
    paused: set[str | None] = field(default_factory=lambda: {"JFK"})
    journal: dict[UUID, CommandAnswer] = field(default_factory=dict)
    redrives: list[RedriveCommand] = field(default_factory=list)
    pauses: list[PipelineCommand] = field(default_factory=list)
    resumes: list[tuple[str | None, ResumeHow | TaskAct, int | None]] = field(default_factory=list)
    #: The exception of `apply`, if any.
    broken: Exception | None = None
    #: Whether a refusal is neither recorded nor reported, as when the thread is ending.
    ending: bool = False
    #: The exception of `start`, if any.
    cannot_start: Exception | None = None
    #: The time that a graceful stop takes.
    busy_seconds: float = 0.0
    #: Whether its sink does not return, so that it does not end.
    hangs: bool = False
    is_stopping: bool = False
    #: Set by a forced stop, which ends it although it is busy.
    forced: threading.Event = field(default_factory=threading.Event)
    alive: bool = False
    is_end_handled: bool = False
    is_global: bool = False
    is_static: bool = False
    is_idle: bool = False
    pause: PipelinePause | None = None
    was_finished: bool = False
    in_progress: InProgress | None = None
    rows_per_second: float | None = None
    flow: RunFlow | None = None
    #: The weight of its tasks, and how often a report was requested.
    weight: int | None = 0
    reports: int = 0
    states: list[TaskState] = field(default_factory=list)
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
        self.is_end_handled = False
        self._put(ThreadStarted())

    def stop(self, reason: str, *, timeout_seconds: float) -> bool:
        self.is_stopping = True
        if self.hangs:
            return False
        graceful = self.busy_seconds <= timeout_seconds
        forced = self.forced.wait(min(self.busy_seconds, timeout_seconds))
        self.die(ThreadEnd(reason))
        return graceful and not forced

    def force_stop(self) -> None:
        self.forced.set()

    def die(self, end: ThreadEnd) -> None:
        self.alive = False
        self._put(end.event)
        if not self.is_stopping:
            self.on_end(end)
        self.is_end_handled = True

    def tasks(self) -> list[TaskState]:
        return self.states

    def apply(self, command: ThreadCommand) -> CommandAnswer:
        if isinstance(command, PolicyCommand):
            return self._set_policy(command)
        if isinstance(command, PipelineCommand):
            self.pauses.append(command)
            return self._answered(command.command, applied("paused"))
        if isinstance(command, RedriveCommand):
            self.redrives.append(command)
            return self._answered(command.command, applied("redriven"))
        self.applying.set()
        assert self.may_apply.wait(PATIENCE_SECONDS)
        if self.broken is not None:
            raise self.broken
        key, how = command.key, command.how
        at = command.position if command.target is None else command.target
        self.resumes.append((key, how, at))
        if how is TaskAct.TEST:
            test = RecordTest(rows=2)
            return RecordTestAnswer(applied=True, reason="the record passes", test=test)
        if not isinstance(how, ResumeHow):
            return self._answered(command.command, self._paused_by_hand(key, command.command))
        if key not in self.paused:
            return self._answered(command.command, refused(f"{key} is RUNNING"))
        self.paused.remove(key)
        self._put(TaskResumed(task=key, how=how), command.command)
        return self._answered(command.command, applied("resumed"))

    def _set_policy(self, command: PolicyCommand) -> CommandAnswer:
        stage, answer = command.stage, command.answer
        if stage != "produce":
            return self._answered(command.command, refused(f"there is no stage {stage}"))
        changed = PolicyChanged(
            stage=stage, answer=answer, actor=command.actor, reason=command.reason
        )
        self._put(changed, command.command)
        return self._answered(command.command, applied(f"answered {answer}"))

    def _paused_by_hand(self, key: str | None, command: UUID | None) -> CommandAnswer:
        if key in self.paused:
            return refused(f"{key} is PAUSED")
        self.paused.add(key)
        self._put(TaskPaused(task=key, position=None), command)
        return applied("paused")

    def _answered(self, command: UUID | None, outcome: CommandAnswer) -> CommandAnswer:
        if command is not None and not self.ending:
            self.journal[command] = outcome
            answer: EventData = CommandRefused(command=command, reason=outcome.reason)
            self._put(CommandApplied(command=command) if outcome.applied else answer, command)
        return outcome

    def task_weight(self) -> int | None:
        return self.weight

    def report(self) -> None:
        self.reports += 1

    def redrive(self, dead_letters: Any, *, actor: str | None, reason: str) -> Redriven:
        raise NotImplementedError  # It needs Spark: only commands are played here.

    def answer_to(self, command: UUID) -> CommandAnswer | None:
        return self.journal.get(command)

    def _put(self, data: EventData, command: UUID | None = None) -> None:
        run = Run(pipeline=self.pipeline_name, checkpoint=self.checkpoint_id, epoch=self.epoch)
        event = Event(
            occurred_at=NOW, instance=self.instance, run=run, caused_by=command, data=data
        )
        self.outbox.put(uuid7(NOW), [event])
