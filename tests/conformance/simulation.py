"""Run records through the real rules, with a clock and a handler of the test.

The counters are those that `evolve` derives from the events that an agent reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, repeat

from arrester.agents.error_policy.respond import (
    NOT_CALLED,
    CallHandler,
    Decided,
    DecisionReason,
    FailedAttempt,
    Outcome,
    SelfHealingFailure,
    TaskRun,
    respond,
)
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.classify import describe
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.policy import Policy, Response, StageKind
from arrester.domain.error_policy.retry import Attempts, RetryAfter
from arrester.domain.events import (
    Failure,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    RetriesCounted,
    TaskEvent,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state.evolve import At, evolve_task
from arrester.domain.state.states import Counters, TaskState
from arrester.domain.state.uncaught_policy import UncaughtAnswer
from tests.conformance.cases import Known

AT = At(sequence=1, occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
NO_TASK = TaskState(id=TaskId(application="a", pipeline="p", checkpoint="c", key="0_0"))
CAUSES = Known(
    {
        "retriable": describe(TimeoutError("later")),
        "other": describe(ValueError("never")),
        "fail": describe(TimeoutError("later")),
        "bad": describe(ValueError("never")),
    }
)
#: Connect's stages. A converter that can fail retriably is a `.process` here.
STAGES = Known(
    {
        "TASK_POLL": StageKind.SOURCE,
        "KAFKA_CONSUME": StageKind.SOURCE,
        "TRANSFORMATION": StageKind.PROCESS,
        "KEY_CONVERTER": StageKind.PROCESS,
        "VALUE_CONVERTER": StageKind.PROCESS,
        "HEADER_CONVERTER": StageKind.PROCESS,
        "TASK_PUT": StageKind.PRODUCE,
        "KAFKA_PRODUCE": StageKind.PRODUCE,
    }
)
#: The answers of handlers by their names, which include aliases.
ANSWERS = Known(Response.__members__)
UNCAUGHT_ANSWERS = Known(UncaughtAnswer.__members__)
KILL_REASONS = {
    "TOLERANCE_EXCEEDED": "tolerance_exceeded",
    "RATE_EXCEEDED": "tolerance_exceeded",
    "NO_POLICY": "tolerance_exceeded",
    "NOT_TOLERABLE": "not_tolerable",
    "SOURCE": "not_tolerable",
    "FATAL": "not_tolerable",
}


def policy(stage: str = "TRANSFORMATION", **given: object) -> Policy:
    """Return the stage's policy by the real configuration; `_` in a name represents a dot."""
    settings = {name.replace("_", "."): value for name, value in given.items()}
    return ErrorSettings.read(settings).policy(STAGES[stage])


def once(outcomes: Iterable[str]) -> Iterator[str]:
    """Return the outcomes of attempts and repeat the last one."""
    whole = list(outcomes)
    return chain(whole, repeat(whole[-1]))


@dataclass(slots=True)
class Task:
    """A task in one run: its clock, state and counters."""

    policy: Policy
    stage: StageKind = StageKind.PROCESS
    key: str | None = "0_0"
    now_ms: int = 0
    answer: object = NOT_CALLED
    logged: bool = True
    stop_during_wait: int | None = None
    run: TaskRun = field(default_factory=TaskRun)
    state: TaskState = NO_TASK
    #: Over all records.
    waits: list[int] = field(default_factory=list)
    drawn_below: list[int] = field(default_factory=list)
    asked: int = 0
    attempts: int = 0
    errors: int = 0
    dead_letters: int = 0
    last: Outcome | None = None

    def operate(self, outcomes: Iterable[str]) -> str:
        """Run one operation on a record; each item is the outcome of the next attempt."""
        started_ms = self.now_ms
        for made, outcome in enumerate(outcomes, start=1):
            self.attempts += 1
            if outcome == "ok":
                if made > 1:
                    self.report(RetriesCounted(task=self.key, retries=made - 1))
                return "success"
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=self.now_ms)
            decision = self.fail(CAUSES[outcome], attempts)
            if not isinstance(decision, RetryAfter):
                return self.ended(decision, attempts=made)
            self.now_ms += decision.wait_ms
            self.waits.append(decision.wait_ms)
            if len(self.waits) == self.stop_during_wait:
                return "undecided"
        raise AssertionError("the attempts ran out")

    def fail(self, cause: Cause, attempts: Attempts | None = None) -> Outcome:
        """Apply the real rules, with the handler's answer if they require it."""
        failure = FailedAttempt(
            stage=self.stage,
            cause=cause,
            attempts=attempts or Attempts(now_ms=self.now_ms),
            task=self.key,
            position=2,
        )
        decision = respond(failure, self.policy, self.run, chance=self.draw)
        if isinstance(decision, CallHandler):
            self.asked += 1
            decision = respond(failure, self.policy, self.run, chance=self.draw, answer=self.answer)
        self.last = decision
        return decision

    @property
    def counters(self) -> Counters:
        """The counters so far."""
        return self.state.counters

    def report(self, event: TaskEvent) -> None:
        """Fold an event of the agent."""
        self.state = evolve_task(self.state, event, AT)

    def dead_letter(self) -> None:
        """Report the dead letters as written."""
        written = RecordsDeadLettered(
            task=self.key,
            count=self.dead_letters,
            place="",
            format="parquet",
            first_position=None,
            last_position=None,
        )
        self.report(written)

    def report_decision(self, decision: Decided, attempts: int) -> None:
        """Report a decided record; none was decided after the task's failure."""
        if decision.reason is DecisionReason.ALREADY_FAILED:
            return
        failure = Failure(
            stage="process:p",
            exception_class="E",
            message="",
            fingerprint="1-0",
            attempts=attempts,
        )
        failed = RecordFailed(
            task=self.key,
            position=0,
            failure=failure,
            response=decision.response,
            logged=self.logged,
        )
        self.report(failed)

    def ended(self, decision: Outcome, *, attempts: int = 1) -> str:
        """Report a decision and return its name."""
        match decision:
            case Decided():
                self.run = decision.run
                self.errors += decision.reason is not DecisionReason.ALREADY_FAILED
                self.dead_letters += decision.response is FinalResponse.CONTINUE
                self.report_decision(decision, attempts)
                return {
                    FinalResponse.CONTINUE: "skipped",
                    FinalResponse.PAUSE: "paused",
                    FinalResponse.FAIL: "task_killed",
                }[decision.response]
            case SelfHealingFailure():
                return "not ours"
            case _:
                raise AssertionError(decision)

    def draw(self, below: int) -> int:
        """Replace the random draw and record its bound."""
        self.drawn_below.append(below)
        return 0

    @property
    def kill_reason(self) -> str | None:
        """Connect's name of the reason why the task was killed."""
        if not isinstance(self.last, Decided) or self.last.response is not FinalResponse.FAIL:
            return None
        return KILL_REASONS[self.last.reason]

    def connect_counters(self) -> dict[str, int]:
        """Return the counters under the names that Connect shipped."""
        return {
            "total-record-failures": self.counters.record_failures,
            "total-record-errors": self.errors,
            "total-records-skipped": self.counters.records_skipped,
            "total-retries": self.counters.total_retries,
            "total-errors-logged": self.counters.failures_logged,
            "deadletterqueue-produce-requests": self.counters.dlq_records_produced
            + self.counters.dlq_produce_failures,
            "deadletterqueue-produce-failures": self.counters.dlq_produce_failures,
        }

    def last_failure_ms(self) -> int:
        """Return the time of the last failure in epoch milliseconds, 0 before the first."""
        moment = self.counters.last_failure_timestamp
        return int(moment.timestamp() * 1000) if moment else 0
