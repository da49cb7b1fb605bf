"""Call a batch sink until it returns or its failure is decided."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.record_columns import may_split_records
from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.end_reasons import SinkFailed
from arrester.agents.decisions.outage import SinkProgress, records_in
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores.jdbc_call import JdbcCall
from arrester.agents.error_policy.respond import (
    CallHandler,
    Decided,
    DecisionReason,
    FailedAttempt,
    TaskRun,
    respond,
)
from arrester.agents.execution.step_runner import unchanged
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.sink.probe import SearchInterrupted, SinkProbe
from arrester.agents.sink.rejected_record import RejectedRecord, rejected_rows
from arrester.agents.sink.stage import (
    SinkStage,
    UndeliveredRows,
    with_all_failed,
    with_failures,
    with_few_failures,
)
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.frames.local_checkpoint import ID, numbered
from arrester.agents.spark.jvm.exceptions.problems import problem_of
from arrester.agents.spark.sources.rows_read import RowsUnread
from arrester.agents.worker.columns import FILTERED, OUTCOME
from arrester.domain.error_policy.classify import of_row
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Response, StageKind
from arrester.domain.error_policy.retry import Attempts, RetryAfter
from arrester.domain.events import FinalResponse

#: Messages that are logged when the failed records are decided.
_LOGGED_WITH_RECORDS = (LogMessage.TASK_PAUSED, LogMessage.TASK_KILLED, LogMessage.OUTPUT_SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The arguments of a call of the sink; repeated calls have the same number."""

    evaluated: Evaluated
    #: Whether a record that passed is held; None if none is.
    held: Column | None
    number: int
    #: Returns the probe of the batch.
    probe: Callable[[], SinkProbe]
    #: For a table of a database: rows have an ID, are staged once, and the table is searched.
    table: JdbcCall | None

    @property
    def is_held(self) -> Column:
        """Whether a record that passed is held."""
        return F.lit(False) if self.held is None else self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class _FailedCall:
    """A call that failed, after all retries with the same rows, or would fail."""

    #: The exception of the call; None if it was not made.
    raised: BaseException | None
    problem: Problem
    #: The rejected records; if none is known, one answer for all records.
    outcome: Sequence[RejectedRecord] | Response


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter(SinkStage):
    """Writes a micro-batch or a chunk of held records with one call of the sink."""

    def write(
        self,
        evaluated: Evaluated,
        held: Column | None,
        number: int,
        reported: Sequence[Coordinates],
    ) -> Iterator[UndeliveredRows]:
        """Call the sink with the rows that passed; after a failure again, without rejected ones."""
        table = self._table_call()
        if table is None:
            yield from self._write_until_decided(evaluated, held, number, reported, None)
            return
        rows = numbered(evaluated.frame)
        evaluated = replace(evaluated, rows=rows, add_internal_columns=unchanged)
        with table:
            yield from self._write_until_decided(evaluated, held, number, reported, table)

    def _write_until_decided(
        self,
        evaluated: Evaluated,
        held: Column | None,
        number: int,
        reported: Sequence[Coordinates],
        table: JdbcCall | None,
    ) -> Iterator[UndeliveredRows]:
        # One probe for all failures of the sink: the number of its jobs is limited.
        probe = cache(lambda: self._probe(table))
        call = _Call(evaluated=evaluated, held=held, number=number, probe=probe, table=table)
        try:
            failed = self._would_fail(call) or self._write(call)
            while failed is not None:
                undelivered = self._undelivered(failed, call, reported)
                if undelivered is None:
                    return
                if call.evaluated is not evaluated:
                    call.evaluated.release()
                held = held_after(undelivered.decision.pause_offsets)
                call = replace(call, evaluated=undelivered.evaluated, held=held)
                yield undelivered
                if isinstance(failed.outcome, Response):
                    return
                # If the sink is not atomic, a call without rows replaces what the failed call left
                # under this number.
                if self._is_atomic and call.evaluated.passed(self.pipeline, call.held).isEmpty():
                    return
                if table is not None:
                    table.leave_out(self._left_out(call).select(ID))
                failed = self._write(call)
        finally:
            # The caller releases the first one.
            if call.evaluated is not evaluated:
                call.evaluated.release()

    def _table_call(self) -> JdbcCall | None:
        """Return the calls of a table for the rows of records; None for any other sink or rows."""
        final_transform = self.pipeline.final_transform
        return None if final_transform is not None else self._sink.store.open_call()

    def _left_out(self, call: _Call) -> DataFrame:
        """Return the rows that the last decision about this call left out."""
        outcomes = [self.number]
        if may_split_records(self.pipeline.steps):
            outcomes.append(FILTERED)
        return call.evaluated.frame.where(F.col(OUTCOME).isin(outcomes) | call.is_held)

    def _probe(self, table: JdbcCall | None) -> SinkProbe:
        return SinkProbe(
            self.pipeline,
            self._sink,
            self.policy.policy,
            table=table,
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

    def _would_fail(self, call: _Call) -> _FailedCall | None:
        """Return the failure of a call if constraints of the table are known to refuse records.

        This takes less time than a write that fails.
        """
        refused = call.probe().violating(call.evaluated, call.is_held)
        now_ms = self.rules.now_ms()
        attempts = Attempts(made=1, started_ms=now_ms, now_ms=now_ms)
        causes = {each.problem.cause for each in refused}
        if not refused or not all(self._is_answered(self._attempt(c, attempts)) for c in causes):
            return None
        return _FailedCall(raised=None, problem=refused[0].problem, outcome=refused)

    def _write(self, call: _Call) -> _FailedCall | None:
        """Call the sink until it returns or no retry is left."""
        more = () if call.table is None else (ID,)
        rows = call.evaluated.passed(self.pipeline, call.held, more=more)
        write = self._sink if call.table is None else call.table.write
        started_ms, attempt = self.rules.now_ms(), 0
        while True:
            attempt += 1
            try:
                write(rows, call.number)
            except BaseException as exc:  # SystemExit would hang the query forever
                raised = exc
            else:
                return None
            # A job interrupted by a stop request is not a failure of the sink.
            self.check()
            if isinstance(raised, RowsUnread):
                # No record is the cause, and a repeated call would return early, too.
                raise SinkFailed(raised) from raised
            now_ms = self.rules.now_ms()
            problem = problem_of(rows.sparkSession, raised, attempts=attempt)
            problem = replace(problem, took_ms=now_ms - started_ms)
            attempts = Attempts(made=attempt, started_ms=started_ms, now_ms=now_ms)
            outcome = self._outcome(problem, attempts, raised, call)
            if not isinstance(outcome, RetryAfter):
                return _FailedCall(raised=raised, problem=problem, outcome=outcome)
            at = f" at number {call.number}, attempt {attempt}"
            log_failure(LogMessage.SINK_RETRYING, self._log_line(problem, at))
            self.wait(outcome.wait_ms)

    def _outcome(
        self, problem: Problem, attempts: Attempts, raised: BaseException, call: _Call
    ) -> Sequence[RejectedRecord] | Response | RetryAfter:
        """Return the outcome of a failed call; raises SinkFailed if the response is FAIL.

        Here one failure represents all records. Afterwards each is counted in its task.
        """
        failure = self._attempt(problem.cause, attempts)
        may_be_of_row = self._may_be_of_row(problem)
        searched = self._attempt(of_row(problem.cause), attempts) if may_be_of_row else failure
        if self._is_answered(searched):
            # The probe comes first: if it passes without some records, these are bad, and there is
            # no outage.
            try:
                rejected = call.probe().rejected(call.evaluated, call.is_held, problem)
            except SearchInterrupted as exc:
                spark = self.pipeline.source.sparkSession
                again = problem_of(spark, exc.raised, attempts=problem.attempts)
                again = replace(again, took_ms=problem.took_ms)
                return self._outcome(again, attempts, exc.raised, call)
            # A probe cancelled by a stop request has no result.
            self.check()
            if rejected:
                return rejected
            if not may_be_of_row:
                if self._is_outage(call):
                    # As for all outages, the final answer is decided with the records.
                    return Response.PAUSE
                if self._sink.store.finds_all_refused:
                    # The database failed, not its records.
                    raise SinkFailed(raised) from raised
        return self._answer(failure, problem, raised)

    def _may_be_of_row(self, problem: Problem) -> bool:
        """Whether a failure that is fatal otherwise may be of rows, which are searched first."""
        is_database = self._sink.store.is_database
        return is_database and self.policy.policy.table.may_be_of_row(problem.cause)

    def _answer(
        self, failure: FailedAttempt, problem: Problem, raised: BaseException
    ) -> Response | RetryAfter:
        """Return one answer for all records; raises SinkFailed if it is FAIL."""
        try:
            outcome = self.rules.decide(self.number, failure, problem)
        except SelfHealing as exc:
            raise exc from raised
        if isinstance(outcome, RetryAfter):
            return outcome
        for message in outcome.messages:
            if message not in _LOGGED_WITH_RECORDS:
                log_failure(message, self._log_line(problem))
        if outcome.response is FinalResponse.FAIL:
            fault = self.rules.handler_faults.pop(None, None)
            raise SinkFailed(raised, handler_fault=fault) from raised
        return Response(outcome.response.value)

    def _attempt(self, cause: Cause, attempts: Attempts) -> FailedAttempt:
        """Return a failed attempt of the sink."""
        return FailedAttempt(
            stage=StageKind.PRODUCE,
            cause=cause,
            attempts=attempts,
            task=None if self.pipeline.task is None else "*",
            position=0,
        )

    def _is_answered(self, failure: FailedAttempt) -> bool:
        """Whether a handler or a declared answer decides: the failure is not retried, nor FATAL."""
        policy = self.policy.policy
        outcome = respond(failure, policy, TaskRun(), chance=random.randrange)
        fatal = isinstance(outcome, Decided) and outcome.reason is DecisionReason.FATAL
        return isinstance(outcome, CallHandler | Decided) and not fatal

    def _is_outage(self, call: _Call) -> bool:
        """Whether all records of the call, if they fail alike, are an outage."""
        if self.outage.share is None:
            return False
        passed = call.evaluated.frame.where(F.col(OUTCOME).isNull() & ~call.is_held)
        records = records_in(passed, self.pipeline.steps)
        return self.outage.is_outage(records, records)

    def _undelivered(
        self, failed: _FailedCall, call: _Call, reported: Sequence[Coordinates]
    ) -> UndeliveredRows | None:
        """Decide about the records of a failed call; None if it had none."""
        outcome, never = failed.outcome, F.lit(False)
        policy = self.policy.without_retries()
        if not isinstance(outcome, Response):
            splits = may_split_records(self.pipeline.steps)
            evaluated, is_held, rules = call.evaluated, call.is_held, policy.policy
            if splits or any(each.position is None for each in outcome):
                rows = rejected_rows(self.pipeline.source.sparkSession, outcome, rules)
                batch = with_failures(evaluated, is_held, rows, self.number, splits=splits)
            else:
                batch = with_few_failures(evaluated, is_held, outcome, self.number, rules)
            # No rows are written under this number yet, so no later record precedes a failed one.
            progress = SinkProgress(stopped=F.lit(True), not_sent=never)
            return self.decide(batch, policy, reported, progress, raised=failed.raised)
        batch = with_all_failed(call.evaluated, call.is_held, failed.problem, self.pipeline)
        if not batch.failed and outcome is not Response.PAUSE:
            batch.release()
            return None
        outage = self.outage
        if not self._is_atomic:
            # The sink may have left rows under this number. Held records get other numbers; only a
            # replay, which has the same number, writes each record once.
            outage = msgspec.structs.replace(outage, response=FinalResponse.FAIL)
        return self.decide(
            batch,
            policy.always(outcome),
            reported,
            SinkProgress(stopped=never, not_sent=never),
            outage=outage,
            raised=failed.raised,
        )

    def _log_line(self, problem: Problem, at: str = "") -> str:
        return f"the sink of {self.pipeline.name} failed{at}: {problem.line}"
