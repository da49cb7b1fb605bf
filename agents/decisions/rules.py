"""Apply the domain's rules to failed records, with the state that a run keeps per task."""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as evolved
from datetime import datetime

from msgspec.structs import replace

from arrester.agents.decisions.handler_calls import call_handler, fault_of
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.error_policy.respond import (
    CallHandler,
    Decided,
    DecisionReason,
    FailedAttempt,
    HandlerRaised,
    SelfHealingFailure,
    TaskRun,
    respond,
)
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction, UnmatchedRules, location_of
from arrester.agents.handlers import ErrorContext, Record, RecordError, Stage
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.sources.kafka_source import COORDINATES
from arrester.agents.worker.columns import SOURCE
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Response, Scope
from arrester.domain.error_policy.retry import Attempts, RetryAfter
from arrester.domain.error_policy.tolerance import Counted, count
from arrester.domain.errors import ArresterError

_log = logging.getLogger("arrester.handlers")
#: Logged once per decision, not per record.
_ONCE_PER_DECISION = (
    LogMessage.RECORD_SKIPPED,
    LogMessage.OUTPUT_SKIPPED,
    LogMessage.TASK_PAUSED,
    LogMessage.TASK_KILLED,
)
_TOLERANCE = (DecisionReason.TOLERANCE_EXCEEDED, DecisionReason.RATE_EXCEEDED)
_NEW_RUN = TaskRun()


class SelfHealing(ArresterError):
    """A failure that the platform repairs by itself: nothing is decided, the batch is replayed.

    Its message may be published, so it does not include the exception's text about a record.
    """

    def __init__(self, problem: Problem, reason: str) -> None:
        super().__init__(f"{problem.exception_class} ({reason})")


@dataclass(slots=True, kw_only=True)
class FailureRules:
    """Decide record by record or for groups; `runs` is the state of the run per task."""

    application: str
    pipeline: Pipeline
    #: By step number; 0 is the source.
    stages: Mapping[int, StagePolicy]
    clock: Callable[[], datetime]
    #: errors.failure.scope: what FAIL ends.
    scope: Scope = Scope.THREAD
    #: The pipeline's stages and the agent's settings, as handlers receive them.
    described: Sequence[Stage] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    #: The redaction of reported records; handlers receive complete records.
    redaction: Redaction = field(default_factory=Redaction)
    #: The redaction rules to warn of; None: warn of none.
    unmatched: UnmatchedRules | None = None
    runs: dict[str | None, TaskRun] = field(default_factory=dict)
    #: By record of the present decision: what is wrong with the answer of its handler. None: the
    #: answer about a whole batch.
    handler_faults: dict[Coordinates | None, str] = field(default_factory=dict)
    #: The answers of handlers about single records, in their order, until their decision is
    #: durable: a decision that is made twice calls no handler twice. Records may share a position.
    _answers: defaultdict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    #: How many of them the present decision has used.
    _used: Counter[object] = field(default_factory=Counter)
    #: The state as of the last durable decision.
    _saved: dict[str | None, TaskRun] = field(default_factory=dict)

    def save(self) -> None:
        """Save the state: the decision that it counts is durable."""
        self._saved.clear()
        self._saved.update(self.runs)
        self.forget_answers()

    def forget_answers(self) -> None:
        """Forget the answers of handlers: other records follow, or the same ones are repeated."""
        self._answers.clear()
        self._used.clear()

    def discard_undecided(self) -> None:
        """Discard counts of a decision that was not committed: it is made again."""
        self.runs.clear()
        self.runs.update(self._saved)
        self._used.clear()

    def now_ms(self) -> int:
        """Return the time of a decision, in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1_000)

    def run(self, task: str | None) -> TaskRun:
        """Return the state of a task in this run."""
        return self.runs.get(task, TaskRun())

    def reset(self, task: str | None) -> None:
        """Reset the state of a task that died and may be restarted by an operator."""
        self.runs.pop(task, None)

    def ends_only_its_task(self, each: FailedRecord) -> bool:
        """Whether FAIL ends only the task, with its records held: it has a task and a position."""
        placed = each.task is not None and each.position is not None
        return self.scope is Scope.TASK and placed

    def respond_to_record(
        self, each: FailedRecord, *, now_ms: int, attempts: Attempts | None = None
    ) -> Decided | RetryAfter:
        """Decide about one record, and log the decision; raises SelfHealing."""
        attempts = attempts or Attempts(made=each.problem.attempts, now_ms=now_ms)
        failure = FailedAttempt(
            stage=self.stages[each.number].stage,
            cause=each.problem.cause,
            attempts=attempts,
            task=each.task,
            position=each.position,
        )
        outcome = self.decide(
            each.number, failure, each.problem, record=each, run=self.run(each.task)
        )
        if isinstance(outcome, Decided):
            self.runs[each.task] = outcome.run
            self.log(outcome.messages, each)
        return outcome

    def respond_to_group(
        self, number: int, cause: Cause, *, task: str | None, position: int | None
    ) -> tuple[Response, Sequence[LogMessage]]:
        """Return the constant answer to equal failures, not counted yet, and its log lines."""
        stage = self.stages[number].stage
        failure = FailedAttempt(stage=stage, cause=cause, task=task, position=position)
        name = next(iter(cause.names), str(cause.condition))
        outcome = self.decide(number, failure, Problem(exception_class=name, message=""))
        assert isinstance(outcome, Decided)
        if outcome.reason in _TOLERANCE:
            return Response.CONTINUE, ()
        return Response(outcome.response.value), outcome.messages

    def decide(
        self,
        number: int,
        failure: FailedAttempt,
        problem: Problem,
        *,
        record: FailedRecord | None = None,
        run: TaskRun = _NEW_RUN,
    ) -> Decided | RetryAfter:
        """Apply the policy of a step to a failure; call its handler if the answer is not constant.

        Raises SelfHealing for failures that the platform repairs.
        """
        stage = self.stages[number]
        outcome = respond(failure, stage.policy, run, chance=random.randrange)
        if isinstance(outcome, CallHandler):
            answer = stage.answer or self._answer(number, problem, failure.attempts, record)
            outcome = respond(failure, stage.policy, run, chance=random.randrange, answer=answer)
        if isinstance(outcome, SelfHealingFailure):
            raise SelfHealing(problem, outcome.reason)
        # An answer was given.
        assert not isinstance(outcome, CallHandler)
        return outcome

    def _answer(
        self, number: int, problem: Problem, attempts: Attempts, record: FailedRecord | None
    ) -> object:
        """Return the answer of a step's handler: the earlier one if the decision is made again."""
        handler = self.stages[number].handler
        assert handler is not None
        if record is None:
            answer, about = self._call_handler(number, problem, attempts, record), None
        else:
            key = number, record.task, record.entry, record.position, attempts.made
            answers, used = self._answers[key], self._used[key]
            self._used[key] += 1
            if used == len(answers):
                answers.append(self._call_handler(number, problem, attempts, record))
            answer, about = answers[used], (record.task, record.position)
        fault = fault_of(handler, answer)
        if fault is not None:
            self.handler_faults[about] = fault
        return answer

    def _call_handler(
        self, number: int, problem: Problem, attempts: Attempts, record: FailedRecord | None
    ) -> object:
        """Return the answer of a step's handler about a record, or about all of a batch."""
        handler = self.stages[number].handler
        assert handler is not None
        row = {} if record is None else record.row.asDict(recursive=True)
        from_kafka = row if row.keys() >= COORDINATES else {}
        context = ErrorContext(
            application=self.application,
            pipeline=self.pipeline.name,
            stage=self.pipeline.stages[number],
            task=None if record is None else record.task,
            position=None if record is None else record.position,
            attempt=attempts.made,
            at=self.clock(),
            took_ms=_took_ms(problem, attempts),
            topic=from_kafka.get("topic"),
            partition=from_kafka.get("partition"),
            offset=from_kafka.get("offset"),
            timestamp=from_kafka.get("timestamp"),
            headers=_headers(from_kafka.get("headers")),
            stages=self.described,
            index=number,
            settings=self.settings,
        )
        handler_record = Record(
            key=None if record is None else record.key,
            value=None if record is None else record.value,
            row=row,
            raw_key=from_kafka.get("key"),
            raw_value=from_kafka.get("value"),
        )
        answer = call_handler(handler, context, handler_record, record_error(problem))
        fault = fault_of(handler, answer)
        if fault is not None:
            # The handler has seen the whole record and may quote it.
            stack = answer.stack if isinstance(answer, HandlerRaised) else None
            shown_fault, shown_stack = self.redaction.texts(row, fault, stack)
            trace = f"\n{shown_stack}" if shown_stack else ""
            _log.error("%s: FAIL, since %s%s", context, shown_fault, trace)
        return answer

    @property
    def limited(self) -> bool:
        """Whether there is a limit of failed records."""
        tolerance = self.stages[SOURCE].policy.tolerance
        limits = (tolerance.limit, tolerance.rate_limit)
        return any(limit is not None and limit >= 0 for limit in limits)

    def count_skipped(self, task: str | None, records: int, *, now_ms: int) -> Counted:
        """Count records that a task skips, and keep the count."""
        tolerance = self.stages[SOURCE].policy.tolerance
        run = self.run(task)
        counted = count(tolerance, run.tally, now_ms=now_ms, records=records)
        failed = counted.exceeded is not None
        self.runs[task] = replace(run, tally=counted.tally, failed=failed)
        return counted

    def log(self, lines: Sequence[LogMessage], each: FailedRecord) -> None:
        """Log the lines about a record that are not logged once per decision."""
        for line in lines:
            if line not in _ONCE_PER_DECISION:
                log_failure(line, self.log_line(each))

    def log_line(self, each: FailedRecord) -> str:
        """Return a failed record in one line for the log (KIP-990): coordinates and exception."""
        place, problem = location_of(each, self.redaction), each.problem
        [message] = self.redaction.texts(each.row.asDict(), problem.message)
        line = evolved(problem, message=message or "").line
        return f"{self.pipeline.name}: {each.stage} failed at {place}: {line}"

    def with_handler_fault(self, each: FailedRecord) -> FailedRecord:
        """Return a record whose message also has the fault of its handler's answer."""
        fault = self.handler_faults.get((each.task, each.position))
        if fault is None:
            return each
        first, *more = each.problem.message.split("\n", 1)
        message = "\n".join([f"{first} (FAIL, since {fault})", *more])
        return evolved(each, problem=evolved(each.problem, message=message))

    def is_fatal(self, each: FailedRecord) -> bool:
        """Whether a failure affects every record; raises SelfHealing."""
        ruling = self.stages[each.number].policy.table.classify(each.problem.cause)
        if ruling.kind is Kind.SELF_HEALING:
            raise SelfHealing(each.problem, ruling.reason)
        return ruling.kind is Kind.FATAL


def record_error(problem: Problem) -> RecordError:
    """Return a problem as handlers receive it."""
    return RecordError(
        problem.exception_class,
        problem.message,
        condition=problem.condition,
        stack=problem.stack,
    )


def _took_ms(problem: Problem, attempts: Attempts) -> int | None:
    """Return the duration of the operation, including the driver's retries."""
    if attempts.started_ms and attempts.now_ms > attempts.started_ms:
        return attempts.now_ms - attempts.started_ms
    return problem.took_ms


def _headers(value: object) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers as Kafka has them; a column of that name may have any type."""
    if not isinstance(value, list):
        return ()
    if not all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in value):
        return ()
    headers = [(each["key"], each["value"]) for each in value]
    of_kafka = (isinstance(k, str) and isinstance(v, bytes | bytearray | None) for k, v in headers)
    return tuple(headers) if all(of_kafka) else ()
