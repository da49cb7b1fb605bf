"""Call a batch sink until it returns or its failure is decided."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.batch.record_atomicity import may_split_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.fatal import SinkFailed
from arrester.agents.decisions.outage import SinkProgress, records_in
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.executor.columns import FATE
from arrester.agents.failure_log import say
from arrester.agents.failures.aggregate_in_spark import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.handlers import Always, ErrorContext, Record, RecordError, ask
from arrester.agents.sink.outcome import all_failed, some_failed
from arrester.agents.sink.probe import RejectedRecord, SinkProbe, failed_rows
from arrester.agents.sink.stage_rules import StageRules, UndeliveredRows
from arrester.agents.spark.driver_errors import problem_of
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
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
from arrester.controlplane.domain.events import Response

#: Logged where the records are reported.
_QUIET = (Saying.TASK_PAUSED, Saying.TASK_KILLED, Saying.OUTPUT_SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Incoming:
    """Rows for the sink: passed and not held."""

    evaluated: Evaluated
    #: None if nothing is held.
    behind: Column | None

    @property
    def held(self) -> Column:
        """Whether a record that passed is held."""
        return F.lit(False) if self.behind is None else self.behind

    def is_empty(self, pipeline: Pipeline) -> bool:
        """Whether the sink would receive nothing."""
        return self.evaluated.passed(pipeline, self.behind).isEmpty()

    def records(self, pipeline: Pipeline) -> int:
        """Count its records."""
        passed = F.col(FATE).isNull() & ~self.held
        return records_in(self.evaluated.frame.where(passed), pipeline.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """The sink failed and is not tried again."""

    raised: BaseException
    problem: Problem
    #: The rejected records; or, if none is known, one answer for all.
    outcome: Sequence[RejectedRecord] | Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """Write one micro-batch or one chunk of held records."""

    rules: StageRules
    sink: Sink
    #: The same for every call.
    number: int
    #: Find rejected records; None if the sink has no probe.
    probe: SinkProbe | None
    #: Whether a call that raises leaves nothing visible.
    atomic: bool

    @property
    def _pipeline(self) -> Pipeline:
        return self.rules.pipeline

    def run(
        self, evaluated: Evaluated, held: Column | None, blamed: Sequence[Coordinates]
    ) -> Iterator[UndeliveredRows]:
        """Give the sink the passed rows, and again without rejected records after a failure.

        Yields each decision about rows that it rejected.
        """
        coming = _Incoming(evaluated=evaluated, behind=held)
        try:
            while (failed := self._written(coming)) is not None:
                out = self._left_out(failed, coming, blamed)
                if out is None:
                    return
                if coming.evaluated is not evaluated:
                    coming.evaluated.release()
                coming = _Incoming(
                    evaluated=out.evaluated, behind=held_after(out.decision.pause_offsets)
                )
                yield out
                # A call without rows replaces what a failed call left under this number.
                over = self.atomic and coming.is_empty(self._pipeline)
                if over or isinstance(failed.outcome, Answer):
                    return
        finally:
            # The first one belongs to the caller.
            if coming.evaluated is not evaluated:
                coming.evaluated.release()

    def _left_out(
        self, failed: _Failed, coming: _Incoming, blamed: Sequence[Coordinates]
    ) -> UndeliveredRows | None:
        """Decide about rejected records; None if there are none."""
        evaluated, held, outcome = coming.evaluated, coming.held, failed.outcome
        never = F.lit(False)
        if not isinstance(outcome, Answer):
            rows = failed_rows(self._pipeline.source.sparkSession, outcome, self._stage.policy)
            whole = may_split_records(self._pipeline.steps)
            left = some_failed(evaluated, held, rows, self.rules.number, whole=whole)
            # Nothing is written under this number yet: no later record was sent before a failed
            # one.
            tried = SinkProgress(stopped=F.lit(True), untried=never)
            spent = self.rules.spent()
            return self.rules.decided(left, spent, blamed, tried, raised=failed.raised)
        left = all_failed(evaluated, held, failed.problem, self._pipeline)
        if not left.failed and outcome is not Answer.PAUSE:
            left.release()
            return None
        tried = SinkProgress(stopped=never, untried=never)
        rules = self.rules if self.atomic else self.rules.ending()
        return rules.decided(left, self._answered(outcome), blamed, tried, raised=failed.raised)

    @property
    def _stage(self) -> StagePolicy:
        return self.rules.stage

    def _answered(self, answer: Answer) -> StagePolicy:
        spent = self.rules.spent()
        policy = msgspec.structs.replace(spent.policy, handled=True, by_class={})
        return replace(self._stage, policy=policy, handler=Always(answer))

    def _written(self, coming: _Incoming) -> _Failed | None:
        """Call the sink until it returns or finally fails, always with the same number."""
        passed = coming.evaluated.passed(self._pipeline, coming.behind)
        responder = self.rules.responder
        started_ms, made = responder.now_ms(), 0
        while True:
            made += 1
            try:
                self.sink(passed, self.number)
            except BaseException as exc:  # SystemExit would hang the query for ever
                raised = exc
            else:
                return None
            # A job interrupted by a stop request is not a failure of the sink.
            self.rules.check()
            now_ms = responder.now_ms()
            problem = replace(
                problem_of(passed.sparkSession, raised, attempts=made), took_ms=now_ms - started_ms
            )
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=now_ms)
            fate = self._fate(problem, attempts, raised, coming)
            if not isinstance(fate, RetryAfter):
                return _Failed(raised=raised, problem=problem, outcome=fate)
            say(Saying.SINK_RETRYING, self._described(problem, self.number))
            self.rules.wait(fate.wait_ms)

    def _fate(
        self, problem: Problem, attempts: Attempts, raised: BaseException, coming: _Incoming
    ) -> Sequence[RejectedRecord] | Answer | RetryAfter:
        """Return the fate of a failed batch; raises SinkFailed if that is FAIL.

        Its records are counted afterwards, each in its task; here one stands for all.
        """
        whole = None if self._pipeline.task is None else "*"
        failure = FailedAttempt(
            stage=StageKind.PRODUCE, cause=problem.cause, attempts=attempts, task=whole, position=0
        )
        run, policy, chance = TaskRun(), self._stage.policy, random.randrange
        fate = respond(failure, policy, run, chance=chance)
        if _is_up_to_somebody(fate):
            # Before it counts as an outage: a probe that passes without some records shows bad
            # records.
            refused = self._refused(problem, coming)
            if refused:
                return refused
            if self._is_outage(coming):
                # The final answer is decided with its records, as for all outages.
                return Answer.PAUSE
        if isinstance(fate, AskHandler):
            answer = self._stage.answer or self._asked(problem)
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

    def _refused(self, problem: Problem, coming: _Incoming) -> Sequence[RejectedRecord]:
        if self.probe is None:
            return ()
        refused = self.probe.refused(coming.evaluated, coming.held, problem)
        # Probes cancelled by a stop request have no result.
        self.rules.check()
        return refused

    def _is_outage(self, coming: _Incoming) -> bool:
        """Whether this many records failing alike, together with the whole batch, are an outage."""
        outage = self.rules.outage
        if outage.share is None:
            return False
        records = coming.records(self._pipeline)
        return outage.is_outage(records, records)

    def _asked(self, problem: Problem) -> object:
        handler, responder = self._stage.handler, self.rules.responder
        assert handler is not None
        context = ErrorContext(
            application=responder.application,
            pipeline=self._pipeline.name,
            stage=StageKind.PRODUCE,
            task=None,
            position=None,
            attempt=problem.attempts,
            at=responder.clock(),
            took_ms=problem.took_ms,
            stages=responder.described,
            index=self.rules.number,
            settings=responder.settings,
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
        return f"the sink of {self._pipeline.name} failed{where}: {problem.exception_class}"


def _is_up_to_somebody(fate: object) -> bool:
    """Whether a handler or a declared answer decides about a failure."""
    fatal = isinstance(fate, Decided) and fate.because is Because.FATAL
    return isinstance(fate, AskHandler | Decided) and not fatal
