"""Apply the domain's rules to failed records, with the state that a run keeps per task."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import SOURCE
from arrester.agents.failure_log import say
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.location import where
from arrester.agents.failures.payload import Redaction
from arrester.agents.handlers import ErrorContext, Record, RecordError, Stage, ask
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.kafka_source import COORDINATES
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.exception_identity import Cause
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Answer, Scope
from arrester.controlplane.domain.error_policy.respond import (
    AskHandler,
    Because,
    Decided,
    FailedAttempt,
    NotOurs,
    TaskRun,
    respond,
)
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter, Undecided
from arrester.controlplane.domain.error_policy.tolerance import Counted, count
from arrester.controlplane.domain.errors import ArresterError

#: Logged once per decision, not per record.
_QUIET = (
    Saying.RECORD_SKIPPED,
    Saying.OUTPUT_SKIPPED,
    Saying.TASK_PAUSED,
    Saying.TASK_KILLED,
)
_TOLERANCE = (Because.TOLERANCE_EXCEEDED, Because.RATE_EXCEEDED)


class SelfHealing(ArresterError):
    """A failure that the platform repairs by itself: nothing is decided, the batch is replayed.

    Its message may be published, so it does not include the exception's text about a record.
    """

    def __init__(self, problem: Problem, reason: str) -> None:
        super().__init__(f"{problem.exception_class} ({reason})")


@dataclass(slots=True, kw_only=True)
class Responder:
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
    runs: dict[str | None, TaskRun] = field(default_factory=dict)
    #: The state as of the last durable decision.
    _kept: dict[str | None, TaskRun] = field(default_factory=dict)

    def keep(self) -> None:
        """Keep the state: the decision that it counts is durable."""
        self._kept.clear()
        self._kept.update(self.runs)

    def forget_undecided(self) -> None:
        """Discard counts of a decision that was not committed: it is made again."""
        self.runs.clear()
        self.runs.update(self._kept)

    def now_ms(self) -> int:
        """Return the time of a decision, in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1_000)

    def run(self, task: str | None) -> TaskRun:
        """Return the state of a task in this run."""
        return self.runs.get(task, TaskRun())

    def ends_only_its_task(self, each: FailedRecord) -> bool:
        """Whether FAIL ends only the task, with its records held: it has a task and a position."""
        placed = each.task is not None and each.position is not None
        return self.scope is Scope.TASK and placed

    def forget(self, task: str | None) -> None:
        """Reset the state of a task that died and may be restarted by an operator."""
        self.runs.pop(task, None)

    def respond_to_one(
        self, each: FailedRecord, *, now_ms: int, attempts: Attempts | None = None
    ) -> Decided | RetryAfter:
        """Decide about one record by calling its handler.

        Raises SelfHealing for failures that the platform repairs.
        """
        stage = self.stages[each.number]
        attempts = attempts or Attempts(made=each.problem.attempts, now_ms=now_ms)
        fate = self._respond(each, stage, attempts)
        match fate:
            case NotOurs():
                raise SelfHealing(each.problem, fate.reason)
            case Decided():
                self.runs[each.task] = fate.run
                self.say(fate.said, each)
        return fate

    def _respond(
        self, each: FailedRecord, stage: StagePolicy, attempts: Attempts
    ) -> Decided | RetryAfter | NotOurs:
        failure = FailedAttempt(
            stage=stage.stage,
            cause=each.problem.cause,
            attempts=attempts,
            task=each.task,
            position=each.position,
        )
        run = self.run(each.task)
        fate = respond(failure, stage.policy, run, chance=random.randrange)
        if isinstance(fate, AskHandler):
            answer = stage.answer or self._asked(each, attempts)
            fate = respond(failure, stage.policy, run, chance=random.randrange, answer=answer)
        # The run is not stopping here, and an answer was given.
        assert not isinstance(fate, AskHandler | Undecided)
        return fate

    def _asked(self, failed: FailedRecord, attempts: Attempts) -> object:
        handler = self.stages[failed.number].handler
        assert handler is not None
        problem, row = failed.problem, failed.row.asDict(recursive=True)
        from_kafka = row if row.keys() >= COORDINATES else {}
        context = ErrorContext(
            application=self.application,
            pipeline=self.pipeline.name,
            stage=failed.stage,
            task=failed.task,
            position=failed.position,
            attempt=attempts.made,
            at=self.clock(),
            took_ms=_took_ms(problem, attempts),
            topic=from_kafka.get("topic"),
            partition=from_kafka.get("partition"),
            offset=from_kafka.get("offset"),
            timestamp=from_kafka.get("timestamp"),
            headers=_headers(from_kafka.get("headers")),
            stages=self.described,
            index=failed.number,
            settings=self.settings,
        )
        error = RecordError(
            problem.exception_class,
            problem.message,
            condition=problem.condition,
            stack=problem.stack,
        )
        record = Record(
            key=failed.key,
            value=failed.value,
            row=row,
            raw_key=from_kafka.get("key"),
            raw_value=from_kafka.get("value"),
        )
        return ask(handler, context, record, error)

    def respond_to_group(
        self, number: int, cause: Cause, *, task: str | None, position: int | None
    ) -> tuple[Answer, Sequence[Saying]]:
        """Return the answer to equal failures of one task, and its log lines.

        The failures are counted afterwards.
        """
        stage = self.stages[number]
        failure = FailedAttempt(stage=stage.stage, cause=cause, task=task, position=position)
        fate = respond(failure, stage.policy, TaskRun(), chance=random.randrange)
        if isinstance(fate, AskHandler):
            answer = stage.answer
            fate = respond(failure, stage.policy, TaskRun(), chance=random.randrange, answer=answer)
        if isinstance(fate, NotOurs):
            name = next(iter(cause.names), str(cause.condition))
            raise SelfHealing(Problem(exception_class=name, message=""), fate.reason)
        assert isinstance(fate, Decided)
        if fate.because in _TOLERANCE:
            return Answer.CONTINUE, ()
        return Answer(fate.response.value), fate.said

    @property
    def limited(self) -> bool:
        """Whether there is a limit of failed records."""
        tolerance = self.stages[SOURCE].policy.tolerance
        limits = (tolerance.limit, tolerance.rate_limit)
        return any(limit is not None and limit >= 0 for limit in limits)

    def counted(self, task: str | None, records: int, *, now_ms: int) -> Counted:
        """Count the records that a task left out, and keep the count."""
        tolerance = self.stages[SOURCE].policy.tolerance
        run = self.run(task)
        counted = count(tolerance, run.tally, now_ms=now_ms, records=records)
        failed = counted.exceeded is not None
        self.runs[task] = replace(run, tally=counted.tally, failed=failed)
        return counted

    def say(self, said: Sequence[Saying], each: FailedRecord) -> None:
        """Log the lines about a record that are not logged once per decision."""
        for saying in said:
            if saying not in _QUIET:
                say(saying, self.said_of(each))

    def said_of(self, each: FailedRecord) -> str:
        """Return a failed record in one line for the log (KIP-990): coordinates and class."""
        place, problem = where(each, self.redaction), each.problem
        return f"{self.pipeline.name}: {each.stage} failed at {place}: {problem.exception_class}"

    def is_fatal(self, each: FailedRecord) -> bool:
        """Whether a failure affects every record.

        Raises SelfHealing for failures that the platform repairs.
        """
        ruling = self.stages[each.number].policy.table.classify(each.problem.cause)
        if ruling.kind is Kind.SELF_HEALING:
            raise SelfHealing(each.problem, ruling.reason)
        return ruling.kind is Kind.FATAL


def _took_ms(problem: Problem, attempts: Attempts) -> int | None:
    """Return the duration of the operation, including the driver's retries."""
    if attempts.started_ms and attempts.now_ms > attempts.started_ms:
        return attempts.now_ms - attempts.started_ms
    return problem.took_ms


def _headers(given: object) -> tuple[tuple[str, bytes | None], ...]:
    """Return a record's headers as Kafka has them; a column of that name may have any type."""
    if not isinstance(given, list):
        return ()
    if not all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in given):
        return ()
    found = [(each["key"], each["value"]) for each in given]
    of_kafka = (isinstance(k, str) and isinstance(v, bytes | bytearray | None) for k, v in found)
    return tuple(found) if all(of_kafka) else ()
