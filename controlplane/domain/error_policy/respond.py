"""What becomes of a failed record: steps 1 to 4 of the order, as one function without effects.

Classify, retry, ask the stage's handler, check the tolerance. Whoever calls it does what the
outcome says, asks the handler when told to, and calls again with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from arrester.controlplane.domain.error_policy import tolerance as tolerances
from arrester.controlplane.domain.error_policy.classify import Kind, Ruling
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Answer, Policy, StageKind
from arrester.controlplane.domain.error_policy.retry import (
    Attempts,
    Chance,
    RetryAfter,
    Spent,
    Undecided,
    next_attempt,
)
from arrester.controlplane.domain.error_policy.tolerance import Tally
from arrester.controlplane.domain.events import Response

#: Where an operation is repeated without asking anybody; a native expression never changes.
RETRIED_STAGES = (StageKind.SOURCE, StageKind.PROCESS, StageKind.PRODUCE)


class HandlerRaised(msgspec.Struct, frozen=True):
    """Stands for the answer of a handler that raised."""

    error: str


#: Stands for the answer of a handler that nobody has asked yet.
UNASKED: Final = object()


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a record has just failed, for the first time or again."""

    stage: StageKind
    cause: Cause
    attempts: Attempts = Attempts()
    #: The task's key; None is the global task.
    task: str | None = None
    position: int | None = None
    #: `send` itself raised, instead of the future or callback that it returned.
    immediate: bool = False
    #: So many records of the task failed alike in one micro-batch, at its one decision time.
    records: int = 1


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread run has to remember of a task; the next run starts with an empty one."""

    tally: Tally = Tally()
    #: FAIL was decided; only the first such failure counts.
    failed: bool = False


class Because(StrEnum):
    """Why a record's fate is what it is."""

    HANDLER = "HANDLER"
    #: No handler; a limit alone lets records go until it is exceeded.
    LIMIT_ALONE = "LIMIT_ALONE"
    NO_POLICY = "NO_POLICY"
    FATAL = "FATAL"
    #: No handler, and output is only given up for failures that a retry might have cured.
    NOT_TOLERABLE = "NOT_TOLERABLE"
    TOLERANCE_EXCEEDED = "TOLERANCE_EXCEEDED"
    RATE_EXCEEDED = "RATE_EXCEEDED"
    RETRIES_SPENT = "RETRIES_SPENT"
    NOT_RETRIABLE = "NOT_RETRIABLE"
    HANDLER_BROKEN = "HANDLER_BROKEN"
    GLOBAL_TASK = "GLOBAL_TASK"
    NO_POSITION = "NO_POSITION"
    SOURCE = "SOURCE"
    ALREADY_FAILED = "ALREADY_FAILED"


class NotOurs(msgspec.Struct, frozen=True, tag=True):
    """Self-healing: let the platform repair it; nobody is asked, nothing is counted."""

    reason: str


class AskHandler(msgspec.Struct, frozen=True, tag=True):
    """Ask the stage's handler, once, and call `respond` again with its answer."""


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fate of the failed records: `continued` of them are left out, then `response`."""

    response: Response
    because: Because
    #: The task's memory from now on.
    run: TaskRun
    #: Records left out, which are what becomes a dead letter. When `response` is CONTINUE, all of
    #: them; else the next one gets it.
    continued: int = 0
    said: tuple[Saying, ...] = ()

    @property
    def decided(self) -> int:
        """How many failed records got their fate: those to count, to log and to tell of."""
        if self.because is Because.ALREADY_FAILED:
            return 0
        return self.continued + (self.response is not Response.CONTINUE)


Outcome = NotOurs | RetryAfter | Undecided | AskHandler | Decided


def respond(
    failure: FailedAttempt,
    policy: Policy,
    run: TaskRun,
    *,
    chance: Chance,
    answer: object = UNASKED,
    stopping: bool = False,
) -> Outcome:
    """Return what follows from a failed attempt.

    `answer` is the handler's, or UNASKED, which a constant answer saves; `stopping` says that a
    stop was requested, so that nobody waits.
    """
    ruling = policy.table.classify(failure.cause, immediate=failure.immediate)
    case = _Case(failure, policy, run, ruling, chance, stopping)
    unasked = case.unasked()
    if unasked is not None:
        return unasked
    said = policy.answer_for(failure.cause)
    if said is not None:
        return case.answered(said)
    if not policy.handled:
        return case.unhandled()
    if answer is UNASKED:
        return AskHandler()
    return case.answered(as_answer(answer))


def as_answer(answer: object) -> Answer | None:
    """Return what a handler answered, or None for what is no answer."""
    return Answer(answer.value) if isinstance(answer, Answer | Response) else None


@dataclass(frozen=True, slots=True)
class _Case:
    """A failed attempt with all that its fate depends on."""

    failure: FailedAttempt
    policy: Policy
    run: TaskRun
    ruling: Ruling
    chance: Chance
    stopping: bool

    def unasked(self) -> Outcome | None:
        """Return what follows without asking anybody, or None: it is time to ask."""
        if self.run.failed:
            return self.failed(Because.ALREADY_FAILED)
        if self.ruling.kind is Kind.SELF_HEALING:
            return NotOurs(self.ruling.reason)
        if self.ruling.kind is Kind.FATAL:
            return self.failed(Because.FATAL, Saying.FATAL_NOT_ASKED)
        if self.ruling.kind is Kind.RETRIABLE and self.failure.stage in RETRIED_STAGES:
            again = self.try_again()
            if again is not None:
                return again
        return self.failed(Because.SOURCE) if self.failure.stage is StageKind.SOURCE else None

    def try_again(self) -> RetryAfter | Undecided | None:
        """Return the next attempt while there is budget for one."""
        decision = next_attempt(
            self.policy.retry, self.failure.attempts, chance=self.chance, stopping=self.stopping
        )
        return None if isinstance(decision, Spent) else decision

    def unhandled(self) -> Decided:
        """Return what a limit alone says; without one, nothing is tolerated.

        Connect's rule (accepted KIP-298): a record that cannot be read or processed may be left
        out, whatever it raises; output only when it failed retriably.
        """
        if not self.policy.tolerance.configured:
            return self.failed(Because.NO_POLICY)
        if self.failure.stage is StageKind.PRODUCE and self.ruling.kind is not Kind.RETRIABLE:
            return self.failed(Because.NOT_TOLERABLE)
        return self.tolerated(Because.LIMIT_ALONE)

    def answered(self, answer: Answer | None) -> Outcome:
        """Return what the answer comes to here."""
        match answer:
            case Answer.CONTINUE:
                return self.tolerated(Because.HANDLER)
            case Answer.RETRY:
                return self.retried()
            case Answer.PAUSE:
                return self.paused()
            case Answer.FAIL:
                return self.failed(Because.HANDLER)
            case _:
                return self.failed(Because.HANDLER_BROKEN, Saying.HANDLER_BROKEN)

    def retried(self) -> Outcome:
        """Return the next attempt when RETRY is valid: a retriable failure, and budget left."""
        if self.ruling.kind is not Kind.RETRIABLE:
            return self.failed(Because.NOT_RETRIABLE, Saying.RETRY_REFUSED)
        again = self.try_again()
        return again or self.failed(Because.RETRIES_SPENT, Saying.RETRY_REFUSED)

    def paused(self) -> Decided:
        """Hold the task at the record; FAIL where there is nothing to hold, or no place to."""
        if self.failure.task is None:
            return self.failed(Because.GLOBAL_TASK, Saying.PAUSE_REFUSED)
        if self.failure.position is None:
            return self.failed(Because.NO_POSITION, Saying.PAUSE_REFUSED)
        return Decided(
            response=Response.PAUSE,
            because=Because.HANDLER,
            run=self.run,
            said=(Saying.TASK_PAUSED,),
        )

    def tolerated(self, because: Because) -> Decided:
        """Leave records out, until one of them is one too many."""
        counted = tolerances.count(
            self.policy.tolerance,
            self.run.tally,
            now_ms=self.failure.attempts.now_ms,
            records=self.failure.records,
        )
        output = self.failure.stage is StageKind.PRODUCE
        skipped = Saying.OUTPUT_SKIPPED if output else Saying.RECORD_SKIPPED
        said = (skipped,) if counted.tolerated else ()
        run = replace(self.run, tally=counted.tally)
        if counted.exceeded is None:
            return Decided(
                response=Response.CONTINUE,
                because=because,
                run=run,
                continued=counted.tolerated,
                said=said,
            )
        exceeded = {
            tolerances.Exceeded.TOTAL: Because.TOLERANCE_EXCEEDED,
            tolerances.Exceeded.RATE: Because.RATE_EXCEEDED,
        }[counted.exceeded]
        return replace(
            self.failed(exceeded, *said),
            run=replace(run, failed=True),
            continued=counted.tolerated,
        )

    def failed(self, because: Because, *said: Saying) -> Decided:
        """Decide FAIL."""
        killed = Saying.KILLED_WHILE_STOPPING if self.stopping else Saying.TASK_KILLED
        return Decided(
            response=Response.FAIL,
            because=because,
            run=replace(self.run, failed=True),
            said=(*said, killed) if because is not Because.ALREADY_FAILED else (),
        )
