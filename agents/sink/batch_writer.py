"""Call a batch sink until it returns or its failure is decided."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import may_split_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.end_reasons import SinkFailed
from arrester.agents.decisions.outage import SinkProgress, records_in
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.sinks import Sink
from arrester.agents.error_policy.respond import (
    CallHandler,
    Decided,
    DecisionReason,
    FailedAttempt,
    TaskRun,
    respond,
)
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.sink.probe import RejectedRecord, SinkProbe, rejected_rows
from arrester.agents.sink.stage import (
    SinkStage,
    UndeliveredRows,
    with_all_failed,
    with_failures,
)
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.problems import problem_of
from arrester.agents.spark.rows_read import RowsUnread
from arrester.agents.worker.columns import OUTCOME
from arrester.controlplane.domain.error_policy.log_levels import LogMessage
from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter
from arrester.controlplane.domain.events import Response

#: Logged with the records.
_LOGGED_WITH_RECORDS = (LogMessage.TASK_PAUSED, LogMessage.TASK_KILLED, LogMessage.OUTPUT_SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call of the sink, always with the same number."""

    evaluated: Evaluated
    #: None if nothing is held.
    held: Column | None
    number: int
    probe: Callable[[], SinkProbe]

    @property
    def is_held(self) -> Column:
        """Whether a record that passed is held."""
        return F.lit(False) if self.held is None else self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """The sink failed and is not called again with the same rows."""

    raised: BaseException
    problem: Problem
    #: The rejected records; or, if none is known, one answer for all.
    outcome: Sequence[RejectedRecord] | Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter(SinkStage):
    """Write a micro-batch or a chunk of held records with one call of the sink."""

    def write(
        self,
        evaluated: Evaluated,
        held: Column | None,
        number: int,
        reported: Sequence[Coordinates],
    ) -> Iterator[UndeliveredRows]:
        """Give the sink the passed rows, and again without rejected records after a failure."""
        # One for all failures of the sink: together they have a limited number of jobs.
        probe = cache(self._probe)
        call = _Call(evaluated=evaluated, held=held, number=number, probe=probe)
        try:
            while (failed := self._write(call)) is not None:
                undelivered = self._undelivered(failed, call, reported)
                if undelivered is None:
                    return
                if call.evaluated is not evaluated:
                    call.evaluated.release()
                held = held_after(undelivered.decision.pause_offsets)
                call = replace(call, evaluated=undelivered.evaluated, held=held)
                yield undelivered
                if isinstance(failed.outcome, Answer):
                    return
                # Without atomicity, a call without rows replaces what the failed call left under
                # this number.
                if self._is_atomic and call.evaluated.passed(self.pipeline, call.held).isEmpty():
                    return
        finally:
            # The first one belongs to the caller.
            if call.evaluated is not evaluated:
                call.evaluated.release()

    def _probe(self) -> SinkProbe:
        return SinkProbe(
            self.pipeline,
            self._sink,
            self.policy.policy,
            scratch=self.scratch,
            cancelled_on_stop=self.cancelled_on_stop,
        )

    @property
    def _sink(self) -> Sink:
        assert isinstance(self.pipeline.sink, Sink)
        return self.pipeline.sink

    @property
    def _is_atomic(self) -> bool:
        """Whether a call that raises leaves nothing visible."""
        return self._sink.is_atomic(self.pipeline.source.sparkSession)

    def _write(self, call: _Call) -> _Failed | None:
        """Call the sink until it returns or finally fails."""
        rows = call.evaluated.passed(self.pipeline, call.held)
        started_ms, made = self.rules.now_ms(), 0
        while True:
            made += 1
            try:
                self._sink(rows, call.number)
            except BaseException as exc:  # SystemExit would hang the query forever
                raised = exc
            else:
                return None
            # A job interrupted by a stop request is not a failure of the sink.
            self.check()
            if isinstance(raised, RowsUnread):
                # No record caused it, and a repeated call would return early, too.
                raise SinkFailed(raised) from raised
            now_ms = self.rules.now_ms()
            problem = problem_of(rows.sparkSession, raised, attempts=made)
            problem = replace(problem, took_ms=now_ms - started_ms)
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=now_ms)
            outcome = self._outcome(problem, attempts, raised, call)
            if not isinstance(outcome, RetryAfter):
                return _Failed(raised=raised, problem=problem, outcome=outcome)
            at = f" at number {call.number}, attempt {made}"
            log_failure(LogMessage.SINK_RETRYING, self._log_line(problem, at))
            self.wait(outcome.wait_ms)

    def _outcome(
        self, problem: Problem, attempts: Attempts, raised: BaseException, call: _Call
    ) -> Sequence[RejectedRecord] | Answer | RetryAfter:
        """Return the outcome of a failed batch; raises SinkFailed if that is FAIL.

        Its records are counted afterwards, each in its task; here one represents all.
        """
        failure = FailedAttempt(
            stage=StageKind.PRODUCE,
            cause=problem.cause,
            attempts=attempts,
            task=None if self.pipeline.task is None else "*",
            position=0,
        )
        if self._is_answered(failure):
            # Before it counts as an outage: a probe that passes without some records shows bad
            # records.
            rejected = call.probe().rejected(call.evaluated, call.is_held, problem)
            # A probe cancelled by a stop request has no result.
            self.check()
            if rejected:
                return rejected
            if self._is_outage(call):
                # The final answer is decided with its records, as for all outages.
                return Answer.PAUSE
        try:
            outcome = self.rules.decide(self.number, failure, problem)
        except SelfHealing as exc:
            raise exc from raised
        if isinstance(outcome, RetryAfter):
            return outcome
        for line in outcome.messages:
            if line not in _LOGGED_WITH_RECORDS:
                log_failure(line, self._log_line(problem))
        if outcome.response is Response.FAIL:
            fault = self.rules.handler_faults.pop(None, None)
            raise SinkFailed(raised, handler_fault=fault) from raised
        return Answer(outcome.response.value)

    def _is_answered(self, failure: FailedAttempt) -> bool:
        """Whether a handler or a declared answer decides about a failure."""
        policy = self.policy.policy
        outcome = respond(failure, policy, TaskRun(), chance=random.randrange)
        fatal = isinstance(outcome, Decided) and outcome.reason is DecisionReason.FATAL
        return isinstance(outcome, CallHandler | Decided) and not fatal

    def _is_outage(self, call: _Call) -> bool:
        """Whether this many records failing alike, together with the whole batch, are an outage."""
        if self.outage.share is None:
            return False
        passed = call.evaluated.frame.where(F.col(OUTCOME).isNull() & ~call.is_held)
        records = records_in(passed, self.pipeline.steps)
        return self.outage.is_outage(records, records)

    def _undelivered(
        self, failed: _Failed, call: _Call, reported: Sequence[Coordinates]
    ) -> UndeliveredRows | None:
        """Decide about rejected records; None if there are none."""
        outcome, never = failed.outcome, F.lit(False)
        policy = self.policy.without_retries()
        if not isinstance(outcome, Answer):
            rows = rejected_rows(self.pipeline.source.sparkSession, outcome, policy.policy)
            splits = may_split_records(self.pipeline.steps)
            batch = with_failures(call.evaluated, call.is_held, rows, self.number, splits=splits)
            # Nothing is written under this number yet: no later record was sent before a failed
            # one.
            progress = SinkProgress(stopped=F.lit(True), not_sent=never)
            return self.decide(batch, policy, reported, progress, raised=failed.raised)
        batch = with_all_failed(call.evaluated, call.is_held, failed.problem, self.pipeline)
        if not batch.failed and outcome is not Answer.PAUSE:
            batch.release()
            return None
        outage = self.outage
        if not self._is_atomic:
            # The sink may have left something under this number. Held records are written under
            # other numbers; only a replay, under the same one, writes each record once.
            outage = msgspec.structs.replace(outage, response=Response.FAIL)
        return self.decide(
            batch,
            policy.always(outcome),
            reported,
            SinkProgress(stopped=never, not_sent=never),
            outage=outage,
            raised=failed.raised,
        )

    def _log_line(self, problem: Problem, at: str = "") -> str:
        return f"the sink of {self.pipeline.name} failed{at}: {problem.exception_class}"
