"""Sink probe: find the records that a sink rejects, by writing parts of a batch elsewhere.

Under the number of a micro-batch only the complete remaining batch is written. The probe therefore
writes elsewhere: for file sinks into a scratch folder, for other sinks as their author defines. A
record is isolated only if the probe passes without any record and fails with this one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.end_reasons import reason_of
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores.jdbc_call import JdbcCall
from arrester.agents.definition.stores.table_constraints import (
    CONDITION,
    EXCEPTION_CLASS,
    MESSAGE,
    REASON,
)
from arrester.agents.execution.bisection import Bisection, FailingRecord, NoSingleRecord
from arrester.agents.execution.transforms import transformed, with_barrier
from arrester.agents.journal.scratch import Scratch
from arrester.agents.sink.refused_rows import RefusedRows
from arrester.agents.sink.rejected_record import PLACE, RejectedRecord, record_at, records_at
from arrester.agents.spark.errors import (
    Problem,
    StepFailed,
)
from arrester.agents.spark.frames.column_names import with_columns_named
from arrester.agents.spark.frames.local_checkpoint import ID, numbered
from arrester.agents.spark.job_attempts import AttemptFailed, run_job, with_row_counter
from arrester.agents.spark.jvm.exceptions.causes import java_exception_of
from arrester.agents.spark.jvm.exceptions.problems import problem_of, problem_of_job
from arrester.agents.spark.jvm.stores.jdbc_connection import is_refusal_of_row
from arrester.agents.worker.columns import (
    ENTRY,
    OUTCOME,
    POSITION,
    TASK,
)
from arrester.domain.error_policy.classify import Kind, of_row
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.named_fields import named_column
from arrester.domain.error_policy.policy import Policy
from arrester.domain.errors import ArresterError

_log = logging.getLogger("arrester.thread")

#: The most refused rows of one call that are found on the driver.
_REFUSED_ROWS: Final = 20_000
#: In place of the failure of a sink that was not called.
_NOT_TRIED: Final = Problem(exception_class="", message="")


class ProbeExited(ArresterError):
    """A probe raised something that is not an Exception, such as SystemExit."""


class SearchInterrupted(ArresterError):
    """The store failed in a way that a repeated call may not; `raised` has the reason."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(str(raised))
        self.raised = raised


class SinkProbe:
    """Finds the records of one micro-batch or chunk that its sink rejects.

    The number of jobs is limited for all failures of the sink together.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        sink: Sink,
        policy: Policy,
        *,
        table: JdbcCall | None,
        scratch: Scratch,
        cancelled_on_stop: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._pipeline = pipeline
        self._policy = policy
        self._scratch = scratch
        self._cancelled_on_stop = cancelled_on_stop
        final_transform = pipeline.final_transform
        self._store = sink.store
        #: Whether its constraints are known, and its rows are those of records.
        self._knows_constraints = self._store.has_known_constraints and final_transform is None
        #: The call of a database that finds the rows that its table refuses; jobs find only those
        #: that executors cannot send. None for other sinks.
        self._table = table
        self._action = self._store.probe(scratch.folder) if table is None else table.probe_staging
        if final_transform is not None and final_transform.stateful:
            # The transform's result for some rows is no part of its result for all rows.
            self._action = None
        self._bisection = Bisection(self._probe, is_probe=True)

    def rejected(
        self, evaluated: Evaluated, is_held: Column, problem: Problem
    ) -> list[RejectedRecord]:
        """Return the rejected records: without them the probe passes.

        Empty if the sink has no probe or fails as a whole. `problem` is the failure of the sink.
        Raises SelfHealing if the probes fail for a reason that the platform repairs, and
        SearchInterrupted if a database fails that a repeated call may find repaired.
        """
        if self._action is None or not self._may_be_of_record(problem):
            return []
        name = self._pipeline.name
        _log.info("pipeline %r: the sink failed; probing for rejected records", name)
        passed = _passed(evaluated, is_held)
        try:
            with self._cancelled_on_stop():
                records = self._violating(passed, problem) or self._refused(passed, problem)
                if records is None:
                    records = self._isolate(passed, problem)
        except (NoSingleRecord, StepFailed) as exc:
            _, kind = self._classify(passed.sparkSession, exc.raised)
            self._log_reason(exc)
            if self._store.finds_all_refused and kind is Kind.RETRIABLE:
                raise SearchInterrupted(exc.raised) from exc
            return []
        finally:
            self._scratch.clear()
        rejected = str(len(records)) if records else "none, its probe passes"
        _log.info("pipeline %r: records rejected by the sink: %s", name, rejected)
        return records

    def violating(self, evaluated: Evaluated, is_held: Column) -> list[RejectedRecord]:
        """Return the records that violate known constraints of the table, before a write.

        Empty if the table has none that are known, or if they cannot be read.
        """
        if not self._knows_constraints:
            return []
        try:
            with self._cancelled_on_stop():
                records = self._violating(_passed(evaluated, is_held), _NOT_TRIED)
        except NoSingleRecord as exc:
            _log.debug("pipeline %r: %s", self._pipeline.name, exc)
            return []
        if records:
            message = "pipeline %r: records that the table would refuse: %s"
            _log.info(message, self._pipeline.name, len(records))
        return records

    def _log_reason(self, exc: NoSingleRecord | StepFailed) -> None:
        """Log why no record is isolated, without text that may quote a record."""
        name = self._pipeline.name
        if isinstance(exc, NoSingleRecord) and exc.recordless:
            reason = f"{type(exc.raised).__name__}: {reason_of(exc.raised)}"
            _log.warning("pipeline %r: the sink probe fails without any record: %s", name, reason)
            return
        reason = exc.reason if isinstance(exc, StepFailed) else str(exc)
        _log.info(
            "pipeline %r: the sink failed, and no single record is the cause: %s", name, reason
        )

    def _may_be_of_record(self, problem: Problem) -> bool:
        """Whether a record may be the cause of the sink's failure."""
        return not self._store.finds_all_refused or self._kind(problem) is not Kind.RETRIABLE

    def _violating(self, passed: DataFrame, problem: Problem) -> list[RejectedRecord]:
        """Return the records that violate known constraints of the table, by one job."""
        if not self._knows_constraints:
            return []
        rows = with_columns_named(passed, [*PLACE, *self._pipeline.columns])
        try:
            refused = self._store.refused(rows).select(*PLACE, *REASON)
            found = refused.limit(_REFUSED_ROWS + 1).collect()
        except Exception as exc:  # of Spark, the table or its store: none of a record
            raise NoSingleRecord("the constraints of the table cannot be read", exc) from exc
        if len(found) > _REFUSED_ROWS:
            why = f"the table refuses more than {_REFUSED_ROWS:,} of its rows"
            raise NoSingleRecord(why, ArresterError(why))
        return records_at(found, {row[ID]: _violation(row) for row in found}, problem)

    def _refused(self, passed: DataFrame, problem: Problem) -> list[RejectedRecord] | None:
        """Return the records that the table refuses; None if the database cannot find them.

        It cannot if no rows are staged: executors failed to send them.
        """
        if self._table is None:
            return None
        spark = passed.sparkSession
        try:
            with self._table.staged_rows() as staged:
                if staged is None:
                    return None
                check = partial(self._check_cause, spark, problem=problem, accepts_others=True)
                search = RefusedRows(staged, check)
                refused = search.find()
        except (NoSingleRecord, SelfHealing):
            raise
        except Exception as exc:  # of the JDBC driver: none of a record
            raise NoSingleRecord("the database does not find its rows", exc) from exc
        others = not search.are_all
        problems = {
            id: self._check_cause(spark, raised, problem, accepts_others=others)
            for id, raised in refused.items()
        }
        return self._records_of(passed, problems, problem)

    def _records_of(
        self, passed: DataFrame, problems: Mapping[int, Problem], problem: Problem
    ) -> list[RejectedRecord]:
        """Return the records of rows with these ids, with the problems of the rows."""
        rows = passed.where(F.col(ID).isin(list(problems))).select(*PLACE)
        return records_at(rows.collect(), problems, problem)

    def _isolate(self, passed: DataFrame, problem: Problem) -> list[RejectedRecord]:
        """Isolate records until the probe passes without them."""
        records: list[RejectedRecord] = []
        rows = passed
        while True:
            try:
                run_job(rows.sparkSession, partial(self._probe, rows))
                return records
            except AttemptFailed as exc:
                failed = exc.failed
            self._check_cause(rows.sparkSession, failed.raised, problem)
            failing = self._bisection.find(rows, failed)
            records.append(self._rejected_record(rows, failing, problem))
            rows = passed.where(~reduce(Column.__or__, [each.is_at() for each in records]))

    def _probe(self, rows: DataFrame) -> None:
        """Write some rows as the sink does, without a visible result."""
        assert self._action is not None
        try:
            self._action(self._sink_rows(rows))
        except Exception:
            raise
        except BaseException as exc:
            raise ProbeExited(f"{type(exc).__name__}: {exc}") from exc

    def _sink_rows(self, rows: DataFrame) -> DataFrame:
        """Return rows as the sink gets them."""
        final_transform = self._pipeline.final_transform
        if final_transform is not None:
            return with_row_counter(transformed(rows, final_transform))
        # A filter in the author's probe must not run on excluded rows.
        return with_columns_named(with_barrier(rows), self._pipeline.columns)

    def _rejected_record(
        self, rows: DataFrame, failing: FailingRecord, problem: Problem
    ) -> RejectedRecord:
        """Return the record of a failing row. Its problem has the sink's attempts and duration."""
        own_problem = self._check_cause(rows.sparkSession, failing.raised, problem)
        row = rows.where(F.col(ID) == failing.id).select(TASK, ENTRY, POSITION).collect()[0]
        return record_at(row, own_problem, problem)

    def _check_cause(
        self,
        spark: SparkSession,
        raised: Exception,
        problem: Problem,
        *,
        accepts_others: bool = False,
    ) -> Problem:
        """Return the problem of a failed probe; raises NoSingleRecord if no record caused it.

        `accepts_others`: other rows of the same call may pass, so a fatal state may be of this row.
        """
        probe_problem, kind = self._classify(spark, raised)
        if self._is_refused_row(raised, probe_problem, accepts_others=accepts_others):
            return replace(probe_problem, cause=of_row(probe_problem.cause))
        # If the sink's failure was not retriable, this one is another, such as a lost connection.
        is_temporary = kind is Kind.RETRIABLE and kind is not self._kind(problem)
        if kind is Kind.FATAL or is_temporary:
            raise NoSingleRecord(f"the probe fails with {probe_problem.exception_class}", raised)
        return probe_problem

    def _is_refused_row(self, raised: Exception, problem: Problem, *, accepts_others: bool) -> bool:
        """Whether a database refuses a row with a SQLSTATE that is fatal otherwise."""
        if not self._store.is_database or not self._policy.table.may_be_of_row(problem.cause):
            return False
        return accepts_others or is_refusal_of_row(raised)

    def _classify(self, spark: SparkSession, raised: BaseException) -> tuple[Problem, Kind]:
        """Return the problem of a failed probe and its kind; raises SelfHealing."""
        is_python = java_exception_of(raised) is None
        problem = (problem_of if is_python else problem_of_job)(spark, raised)
        kind = self._kind(problem)
        if kind is Kind.SELF_HEALING:
            reason = self._policy.table.classify(problem.cause).reason
            raise SelfHealing(problem, reason) from raised
        return problem, kind

    def _kind(self, problem: Problem) -> Kind:
        return self._policy.table.classify(problem.cause).kind


def _passed(evaluated: Evaluated, is_held: Column) -> DataFrame:
    """Return the rows for the sink with their IDs."""
    rows = evaluated.frame
    rows = rows if ID in rows.columns else numbered(rows)
    return rows.where(F.col(OUTCOME).isNull() & ~is_held)


def _violation(row: Row) -> Problem:
    """Return the problem of a row that violates a constraint of its table."""
    name, condition, message = row[EXCEPTION_CLASS], row[CONDITION], row[MESSAGE]
    return Problem(
        exception_class=name,
        message=message,
        condition=condition,
        field=named_column(condition, message),
        cause=Cause(names=(name,), condition=condition),
    )
