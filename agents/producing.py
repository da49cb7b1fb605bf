"""The end of a pipeline under the rules of stage produce (KIP-210): what fails there is decided.

A decision is made after the sink's failure, so it adds to what was decided before it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from agents.afterwards import all_failed
from agents.again import Again
from agents.counted import Coordinates
from agents.decisions import Decision, Judge
from agents.failed import produce_number
from agents.fatal import RecordFatal, SinkFailed
from agents.fates import Fates, SelfHealing
from agents.handlers import Always, ErrorContext, Record, RecordError, ask
from agents.microbatch import Evaluated
from agents.outage import Tried
from agents.pipeline import Pipeline
from agents.policies import StagePolicy
from agents.problem import Problem, problem_of_job
from agents.raised import problem_of
from agents.saying import say
from agents.sending import Sending
from agents.sinks import Producer, Sink
from agents.worker.columns import FATE, ORDINAL
from controlplane.domain.classify import Kind
from controlplane.domain.events import Response
from controlplane.domain.levels import Saying
from controlplane.domain.outage import OutagePolicy
from controlplane.domain.policy import Answer, StageKind
from controlplane.domain.respond import (
    AskHandler,
    Because,
    Decided,
    FailedAttempt,
    NotOurs,
    TaskRun,
    respond,
)
from controlplane.domain.retry import Attempts, RetryAfter, RetryPolicy, Undecided

#: Said where the records are told of.
_QUIET = (Saying.TASK_PAUSED, Saying.TASK_KILLED, Saying.OUTPUT_SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Records that the sink did not take, each failed at stage produce, and what is decided."""

    evaluated: Evaluated
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """Writes what passed the steps of one pipeline, by one run."""

    fates: Fates
    examples_limit: int
    #: errors.outage.*
    outage: OutagePolicy
    #: Raises when the run is to end.
    check: Callable[[], None]
    #: Waits so many milliseconds; raises when the run is to end.
    wait: Callable[[int], None]

    @property
    def pipeline(self) -> Pipeline:
        """Whose end it is."""
        return self.fates.pipeline

    @property
    def number(self) -> int:
        """The step number of stage produce."""
        return produce_number(self.pipeline)

    @property
    def stage(self) -> StagePolicy:
        """What holds for it."""
        return self.fates.stages[self.number]

    def write(
        self, evaluated: Evaluated, held: Column | None, number: int, blamed: Sequence[Coordinates]
    ) -> Iterator[LeftOut]:
        """Write what passed and is not `held`; yield each decision about what was not taken.

        None: nothing is held. The caller makes a decision durable before it asks for more. Raises
        SinkFailed, RecordFatal, SelfHealing, or what `check` raises.
        """
        passed = evaluated.passed(self.pipeline, held)
        held = F.lit(False) if held is None else held
        if isinstance(self.pipeline.sink, Producer):
            yield from Sending(production=self, producer=self.pipeline.sink).run(
                evaluated, held, blamed
            )
            return
        came = evaluated.frame.where((F.col(ORDINAL) == 0) & F.col(FATE).isNull() & ~held)
        failed = self._written(self.pipeline.sink, passed, number, came)
        if failed is None:
            return
        raised, problem, answer = failed
        left = all_failed(evaluated, held, problem, self.pipeline)
        if left.failed or answer is Answer.PAUSE:
            never = F.lit(False)
            tried = Tried(stopped=never, untried=never)
            yield self.decided(left, self._answered(answer), blamed, tried, raised=raised)
        left.release()

    def decided(
        self,
        left: Evaluated,
        stage: StagePolicy,
        blamed: Sequence[Coordinates],
        tried: Tried,
        *,
        raised: BaseException | None = None,
    ) -> LeftOut:
        """Decide about the records of `left` that failed at this stage."""
        if not left.failed and raised is not None:
            raise SinkFailed(raised) from raised
        fates = replace(self.fates, stages={**self.fates.stages, self.number: stage})
        again = Again(fates=fates, policy=stage.policy, wait=self.wait)
        judge = Judge(
            fates=fates,
            again=again,
            examples_limit=self.examples_limit,
            outage=self.outage,
            tried=tried,
        )
        decision = judge.decide(left.failures, blamed) if left.failed else Decision()
        if decision.fatal is not None:
            redaction = self.fates.redaction
            raise RecordFatal(decision.fatal, decision.outage, redaction=redaction) from raised
        return LeftOut(evaluated=left, decision=decision)

    def failed(self, raised: BaseException) -> SinkFailed | SelfHealing:
        """Return what ends a run whose sends failed as a job: no record is to blame."""
        problem = problem_of_job(self.pipeline.source.sparkSession, raised)
        ruling = self.stage.policy.table.classify(problem.cause)
        if ruling.kind is Kind.SELF_HEALING:
            return SelfHealing(problem, ruling.reason)
        return SinkFailed(raised)

    def spent(self) -> StagePolicy:
        """Return what holds for failures whose budget of retries is spent."""
        policy = msgspec.structs.replace(self.stage.policy, retry=RetryPolicy())
        return replace(self.stage, policy=policy)

    def _answered(self, answer: Answer) -> StagePolicy:
        policy = msgspec.structs.replace(self.spent().policy, handled=True, by_class={})
        return replace(self.stage, policy=policy, handler=Always(answer))

    # ── a sink for whole batches ─────────────────────────────────────────────────────────────

    def _written(
        self, sink: Sink, passed: DataFrame, number: int, came: DataFrame
    ) -> tuple[BaseException, Problem, Answer] | None:
        """Call the sink until it returns, or its failure is decided; the number stays the same.

        `came` are the records that have come to it.
        """
        started_ms, made = self.fates.now_ms(), 0
        while True:
            made += 1
            try:
                sink(passed, number)
            except BaseException as exc:  # SystemExit would hang the query for ever
                raised = exc
            else:
                return None
            # An interrupted job after a stop request is the stop, not a failure of its own.
            self.check()
            now_ms = self.fates.now_ms()
            problem = replace(
                problem_of(passed.sparkSession, raised, attempts=made), took_ms=now_ms - started_ms
            )
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=now_ms)
            fate = self._fate(problem, attempts, raised, came)
            if isinstance(fate, Answer):
                return raised, problem, fate
            say(Saying.SINK_RETRYING, self._described(problem, number))
            self.wait(fate.wait_ms)

    def _fate(
        self, problem: Problem, attempts: Attempts, raised: BaseException, came: DataFrame
    ) -> Answer | RetryAfter:
        """Return what follows from a failed batch; raises SinkFailed where that is FAIL.

        Its records are counted afterwards, each in its task: here one stands for all.
        """
        whole = None if self.pipeline.task is None else "*"
        failure = FailedAttempt(
            stage=StageKind.PRODUCE, cause=problem.cause, attempts=attempts, task=whole, position=0
        )
        run, policy, chance = TaskRun(), self.stage.policy, random.randrange
        fate = respond(failure, policy, run, chance=chance)
        if _is_up_to_somebody(fate) and self._is_outage(came):
            # What it comes to is decided with its records, as of all outages.
            return Answer.PAUSE
        if isinstance(fate, AskHandler):
            answer = self.stage.answer or self._asked(problem)
            fate = respond(failure, policy, run, chance=chance, answer=answer)
        assert not isinstance(fate, AskHandler | Undecided)
        if isinstance(fate, NotOurs):
            raise SelfHealing(problem, fate.reason) from raised
        if isinstance(fate, RetryAfter):
            return fate
        for saying in fate.said:
            if saying not in _QUIET:
                say(saying, self._described(problem, None))
        if fate.response is Response.FAIL:
            raise SinkFailed(raised) from raised
        return Answer(fate.response.value)

    def _is_outage(self, came: DataFrame) -> bool:
        """Whether so many records that fail alike, with the whole batch, are an outage."""
        if self.outage.share is None:
            return False
        records = came.count()
        return self.outage.is_outage(records, records)

    def _asked(self, problem: Problem) -> object:
        handler = self.stage.handler
        assert handler is not None
        context = ErrorContext(
            application=self.fates.application,
            pipeline=self.pipeline.name,
            stage=StageKind.PRODUCE,
            task=None,
            position=None,
            attempt=problem.attempts,
            at=self.fates.clock(),
            took_ms=problem.took_ms,
            stages=self.fates.described,
            index=self.number,
            settings=self.fates.settings,
        )
        error = RecordError(
            problem.exception_class,
            problem.message,
            condition=problem.condition,
            stack=problem.stack,
        )
        return ask(handler, context, Record(key=None, value=None, row={}), error)

    def _described(self, problem: Problem, number: int | None) -> str:
        where = "" if number is None else f" at number {number}, attempt {problem.attempts}"
        return f"the sink of {self.pipeline.name} failed{where}: {problem.exception_class}"


def _is_up_to_somebody(fate: object) -> bool:
    """Whether a handler, or what was declared, decides about a failure."""
    fatal = isinstance(fate, Decided) and fate.because is Because.FATAL
    return isinstance(fate, AskHandler | Decided) and not fatal
