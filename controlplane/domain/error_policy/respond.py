"""Decide about a failed record, steps 1 to 4 of the order, as one function without effects.

Classify, retry, call the stage's handler, check the tolerance. The caller does what the outcome
requires, calls the handler if requested, and calls again with its answer.
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

#: Stages whose operations are retried without a handler; a native expression always has the same
#: result.
RETRIED_STAGES = (StageKind.SOURCE, StageKind.PROCESS, StageKind.PRODUCE)


class HandlerRaised(msgspec.Struct, frozen=True):
    """Stands for the answer of a handler that raised."""

    error: str


#: Stands for the answer of a handler that has not been called.
UNASKED: Final = object()


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a record has just failed, for the first time or again."""

    stage: StageKind
    cause: Cause
    attempts: Attempts = Attempts()
    #: The task's key; None is the global task.
    task: str | None = None
    position: int | None = None
    #: `send` itself raised, not the future or callback that it returned.
    immediate: bool = False
    #: The number of records of the task that failed alike in one micro-batch.
    records: int = 1


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task in a thread run; the next run starts with an empty one."""

    tally: Tally = Tally()
    #: FAIL was decided; only the first such failure counts.
    failed: bool = False


class Because(StrEnum):
    """The reason for a record's fate."""

    HANDLER = "HANDLER"
    #: No handler; a limit alone tolerates records until it is exceeded.
    LIMIT_ALONE = "LIMIT_ALONE"
    NO_POLICY = "NO_POLICY"
    FATAL = "FATAL"
    #: No handler, and output is only skipped for failures that a retry might have cured.
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
    """Self-healing: the platform repairs it; no handler is called, nothing is counted."""

    reason: str


class AskHandler(msgspec.Struct, frozen=True, tag=True):
    """Call the stage's handler, once, and call `respond` again with its answer."""


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fate of the failed records: `continued` of them are left out, then `response`."""

    response: Response
    because: Because
    #: The new state of the task.
    run: TaskRun
    #: The number of records left out, which become dead letters. If `response` is CONTINUE, all of
    #: them; else the next record gets the response.
    continued: int = 0
    said: tuple[Saying, ...] = ()

    @property
    def decided(self) -> int:
        """The number of decided records: those to count, log and report."""
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

    `answer` is the handler's, or UNASKED; a constant answer saves the second call. `stopping` means
    that a stop was requested, so nothing waits.
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
    """Return a handler's answer; None if it is not valid."""
    return Answer(answer.value) if isinstance(answer, Answer | Response) else None


@dataclass(frozen=True, slots=True)
class _Case:
    """A failed attempt with everything that its fate depends on."""

    failure: FailedAttempt
    policy: Policy
    run: TaskRun
    ruling: Ruling
    chance: Chance
    stopping: bool

    def unasked(self) -> Outcome | None:
        """Return the outcome that needs no handler; None if the handler must be called."""
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
        """Return the next attempt if there is budget for one."""
        decision = next_attempt(
            self.policy.retry, self.failure.attempts, chance=self.chance, stopping=self.stopping
        )
        return None if isinstance(decision, Spent) else decision

    def unhandled(self) -> Decided:
        """Return the decision of a limit alone; without one, nothing is tolerated.

        Connect's rule (accepted KIP-298): a record that cannot be read or processed may be left out
        for any exception; output only after a retriable failure.
        """
        if not self.policy.tolerance.configured:
            return self.failed(Because.NO_POLICY)
        if self.failure.stage is StageKind.PRODUCE and self.ruling.kind is not Kind.RETRIABLE:
            return self.failed(Because.NOT_TOLERABLE)
        return self.tolerated(Because.LIMIT_ALONE)

    def answered(self, answer: Answer | None) -> Outcome:
        """Return the outcome of the answer."""
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
        """Return the next attempt if RETRY is valid: a retriable failure, and budget left."""
        if self.ruling.kind is not Kind.RETRIABLE:
            return self.failed(Because.NOT_RETRIABLE, Saying.RETRY_REFUSED)
        again = self.try_again()
        return again or self.failed(Because.RETRIES_SPENT, Saying.RETRY_REFUSED)

    def paused(self) -> Decided:
        """Stop the task at the record; FAIL if nothing can be held, or there is no position."""
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
        """Leave records out until one exceeds the tolerance."""
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
