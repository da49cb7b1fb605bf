"""Decide about a failed record, steps 1 to 4 of the order, as one function without effects.

Classify, retry, call the stage's handler, check the tolerance. The caller does what the outcome
requires, calls the handler if requested, and calls again with its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from arrester.domain.error_policy import tolerance as tolerances
from arrester.domain.error_policy.classify import Classification, Kind
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Policy, Response, StageKind
from arrester.domain.error_policy.retry import (
    Attempts,
    Chance,
    RetryAfter,
    next_attempt,
)
from arrester.domain.error_policy.tolerance import Tally
from arrester.domain.events import FinalResponse
from arrester.domain.python_versions import StrEnum

#: Stages whose operations are retried without a handler; a native expression always has the same
#: result.
RETRIED_STAGES = (StageKind.SOURCE, StageKind.PROCESS, StageKind.PRODUCE)


class HandlerRaised(msgspec.Struct, frozen=True):
    """The answer of a handler that raised."""

    #: Class and message of the exception.
    error: str
    #: Its stack trace.
    stack: str = ""


#: The answer of a handler that has not been called.
NOT_CALLED: Final = object()


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An operation on a record has just failed, for the first time or again."""

    stage: StageKind
    cause: Cause
    attempts: Attempts = Attempts()
    #: The task's key; None is the global task.
    task: str | None = None
    position: int | None = None


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task in a thread run; the next run starts with an empty one."""

    tally: Tally = Tally()
    #: FAIL was decided; only the first such failure counts.
    failed: bool = False


class DecisionReason(StrEnum):
    """The reason of a decision about records."""

    HANDLER = "HANDLER"
    #: No handler; a limit alone tolerates records until it is exceeded.
    LIMIT_ALONE = "LIMIT_ALONE"
    NO_POLICY = "NO_POLICY"
    FATAL = "FATAL"
    #: No handler, and output is only skipped for failures that a retry might have cured.
    NOT_TOLERABLE = "NOT_TOLERABLE"
    TOLERANCE_EXCEEDED = "TOLERANCE_EXCEEDED"
    RATE_EXCEEDED = "RATE_EXCEEDED"
    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    NOT_RETRIABLE = "NOT_RETRIABLE"
    HANDLER_BROKEN = "HANDLER_BROKEN"
    GLOBAL_TASK = "GLOBAL_TASK"
    NO_POSITION = "NO_POSITION"
    SOURCE = "SOURCE"
    ALREADY_FAILED = "ALREADY_FAILED"


class SelfHealingFailure(msgspec.Struct, frozen=True, tag=True):
    """Self-healing: the platform repairs it; no handler is called, nothing is counted."""

    reason: str


class CallHandler(msgspec.Struct, frozen=True, tag=True):
    """Call the stage's handler, once, and call `respond` again with its answer."""


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The decision about the failed record. CONTINUE leaves it out: it becomes a dead letter."""

    response: FinalResponse
    reason: DecisionReason
    #: The new state of the task.
    run: TaskRun
    messages: tuple[LogMessage, ...] = ()


Outcome = SelfHealingFailure | RetryAfter | CallHandler | Decided


def respond(
    failure: FailedAttempt,
    policy: Policy,
    run: TaskRun,
    *,
    chance: Chance,
    answer: object = NOT_CALLED,
) -> Outcome:
    """Return what follows from a failed attempt.

    `answer` is the handler's, or NOT_CALLED; a constant answer saves the second call.
    """
    case = _Case(failure, policy, run, policy.table.classify(failure.cause), chance)
    outcome = case.outcome_before_handler()
    if outcome is not None:
        return outcome
    declared = policy.answer_for(failure.cause)
    if declared is not None:
        return case.apply_answer(declared)
    if not policy.handled:
        return case.decide_without_handler()
    if answer is NOT_CALLED:
        return CallHandler()
    return case.apply_answer(as_answer(answer))


def as_answer(answer: object) -> Response | None:
    """Return a handler's answer; None if it is not valid."""
    return Response(answer.value) if isinstance(answer, Response | FinalResponse) else None


@dataclass(frozen=True, slots=True)
class _Case:
    """A failed attempt with everything that the decision depends on."""

    failure: FailedAttempt
    policy: Policy
    run: TaskRun
    classification: Classification
    chance: Chance

    def outcome_before_handler(self) -> Outcome | None:
        """Return the outcome that no answer can change; None if the answer decides."""
        if self.run.failed:
            return self.fail(DecisionReason.ALREADY_FAILED)
        if self.classification.kind is Kind.SELF_HEALING:
            return SelfHealingFailure(self.classification.reason)
        if self.classification.kind is Kind.FATAL:
            return self.fail(DecisionReason.FATAL, LogMessage.FATAL_FAILURE)
        if self.classification.kind is Kind.RETRIABLE and self.failure.stage in RETRIED_STAGES:
            retry = self.next_attempt()
            if retry is not None:
                return retry
        is_source = self.failure.stage is StageKind.SOURCE
        return self.fail(DecisionReason.SOURCE) if is_source else None

    def next_attempt(self) -> RetryAfter | None:
        """Return the next attempt if there is budget for one."""
        return next_attempt(self.policy.retry, self.failure.attempts, chance=self.chance)

    def decide_without_handler(self) -> Decided:
        """Return the decision of a limit alone; without one, nothing is tolerated.

        Connect's rule (accepted KIP-298): a record that cannot be read or processed may be left out
        for any exception; output only after a retriable failure.
        """
        if not self.policy.tolerance.configured:
            return self.fail(DecisionReason.NO_POLICY)
        if (
            self.failure.stage is StageKind.PRODUCE
            and self.classification.kind is not Kind.RETRIABLE
        ):
            return self.fail(DecisionReason.NOT_TOLERABLE)
        return self.tolerate(DecisionReason.LIMIT_ALONE)

    def apply_answer(self, answer: Response | None) -> Outcome:
        """Return the outcome of the answer."""
        match answer:
            case Response.CONTINUE:
                return self.tolerate(DecisionReason.HANDLER)
            case Response.RETRY:
                return self.retry()
            case Response.PAUSE:
                return self.pause()
            case Response.FAIL:
                return self.fail(DecisionReason.HANDLER)
            case _:
                return self.fail(DecisionReason.HANDLER_BROKEN, LogMessage.HANDLER_BROKEN)

    def retry(self) -> Outcome:
        """Return the next attempt if RETRY is valid: a retriable failure, and budget left."""
        if self.classification.kind is not Kind.RETRIABLE:
            return self.fail(DecisionReason.NOT_RETRIABLE, LogMessage.RETRY_REFUSED)
        return self.next_attempt() or self.fail(
            DecisionReason.RETRIES_EXHAUSTED, LogMessage.RETRY_REFUSED
        )

    def pause(self) -> Decided:
        """Stop the task at the record; FAIL if nothing can be held, or there is no position."""
        if self.failure.task is None:
            return self.fail(DecisionReason.GLOBAL_TASK, LogMessage.PAUSE_REFUSED)
        if self.failure.position is None:
            return self.fail(DecisionReason.NO_POSITION, LogMessage.PAUSE_REFUSED)
        return Decided(
            response=FinalResponse.PAUSE,
            reason=DecisionReason.HANDLER,
            run=self.run,
            messages=(LogMessage.TASK_PAUSED,),
        )

    def tolerate(self, reason: DecisionReason) -> Decided:
        """Leave the record out unless it exceeds the tolerance."""
        counted = tolerances.count(
            self.policy.tolerance, self.run.tally, now_ms=self.failure.attempts.now_ms
        )
        run = replace(self.run, tally=counted.tally)
        if counted.exceeded is None:
            is_output = self.failure.stage is StageKind.PRODUCE
            skipped = LogMessage.OUTPUT_SKIPPED if is_output else LogMessage.RECORD_SKIPPED
            return Decided(
                response=FinalResponse.CONTINUE, reason=reason, run=run, messages=(skipped,)
            )
        limit_exceeded = {
            tolerances.Exceeded.TOTAL: DecisionReason.TOLERANCE_EXCEEDED,
            tolerances.Exceeded.RATE: DecisionReason.RATE_EXCEEDED,
        }[counted.exceeded]
        return replace(self.fail(limit_exceeded), run=replace(run, failed=True))

    def fail(self, reason: DecisionReason, *messages: LogMessage) -> Decided:
        """Decide FAIL."""
        return Decided(
            response=FinalResponse.FAIL,
            reason=reason,
            run=replace(self.run, failed=True),
            messages=()
            if reason is DecisionReason.ALREADY_FAILED
            else (*messages, LogMessage.TASK_KILLED),
        )
