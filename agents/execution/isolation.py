"""Run a segment of steps, and isolate its failing records if it fails as a Spark job.

Only failed micro-batches are isolated: a healthy one runs all steps at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.execution.bisection import Bisection, NoSingleRecord, evaluating
from arrester.agents.spark.errors import (
    Problem,
    StepFailed,
    error_column,
    error_row,
)
from arrester.agents.spark.frames.column_names import with_columns_named
from arrester.agents.spark.frames.local_checkpoint import (
    AS_BYTES,
    ID,
    Checkpoints,
    numbered,
    releasing,
)
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.job_attempts import (
    AttemptFailed,
    Operation,
    run_job,
    with_row_counter,
)
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
from arrester.agents.spark.jvm.job_status import FailedJob
from arrester.agents.spark.jvm.plans.catalyst import partition_count
from arrester.agents.spark.session_conf import FAULT_HANDLER, conf
from arrester.agents.worker.columns import ERROR, ERROR_TYPE, OUTCOME
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.policy import Policy

_FAILURE = "__arrester_failure"
#: Python's message about a module that it does not find. It has no value of a record.
_NO_MODULE = re.compile(r"No module named '[\w.]+'")
#: Up to this many isolated records are marked by expressions, without a join.
_MARKED_BY_EXPRESSIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Steps that run as one. Only shorter segments show in which step a record fails."""

    stage: str
    #: Python steps catch exceptions. If they fail as a job, their worker has crashed, or no record
    #: is the cause.
    crashes_only: bool
    #: Rows depend on each other, so a record that fails alone need not be the cause.
    stateful: bool = False
    #: For each step, its number and an operation that runs the steps up to it.
    prefixes: Sequence[tuple[int, Operation]]

    @property
    def all_steps(self) -> Operation:
        """The operation that runs all steps."""
        return self.prefixes[-1][1]


class IsolationResult(NamedTuple):
    """Rows with the failing records marked, and the result of the steps for the other rows."""

    marked: DataFrame
    result: DataFrame
    #: The number of isolated records.
    isolated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _IsolatedRecord:
    """A failing record, the step in which it fails, and its problem."""

    id: int
    number: int
    problem: Problem


class Isolation:
    """Isolates the failing records of a segment, one after the other, in one micro-batch."""

    def __init__(self, rows: DataFrame, segment: Segment, policy: Policy) -> None:
        self._rows = rows
        self._segment = segment
        self._policy = policy
        self._bisection = Bisection(evaluating(segment.all_steps))
        self._isolated: list[_IsolatedRecord] = []

    def run(self, operation: Operation, checkpoints: Checkpoints) -> IsolationResult:
        """Return the rows with failing records marked, and the operation's result for the others.

        Raises StepFailed if no record is the cause.
        """
        while True:
            marked = self._marked()
            evaluate = partial(_evaluate, operation, marked, checkpoints)
            try:
                return IsolationResult(
                    marked, run_job(marked.sparkSession, evaluate), len(self._isolated)
                )
            except AttemptFailed as exc:
                self._isolate(exc.failed)

    def _isolate(self, failed: FailedJob) -> None:
        """Isolate one failing record; raises StepFailed if there is none."""
        spark, raised = self._rows.sparkSession, failed.raised
        problem = problem_of_job(spark, raised)
        self._check_isolable(problem, raised)
        isolated_ids = [record.id for record in self._isolated]
        not_isolated = F.col(OUTCOME).isNull() & ~F.col(ID).isin(isolated_ids)
        candidates = numbered(self._rows).where(not_isolated)
        # In a union, the partitions of the second part follow those of the first.
        partition = failed.partition
        if partition is not None:
            partition %= partition_count(candidates)
        try:
            # After a worker crash only Python's fault handler reports the position.
            with conf(spark, FAULT_HANDLER if problem.is_crash else {}):
                failing = self._bisection.find(candidates, replace(failed, partition=partition))
                record = candidates.where(F.col(ID) == failing.id)
                number, problem = _failed_step(record, self._segment, failing.raised)
        except NoSingleRecord as exc:
            problem = problem_of_job(spark, exc.raised)
            if self._is_self_healing(problem):
                raise exc.raised from None
            raise self._step_failed(
                problem, exc.raised, str(exc), recordless=exc.recordless
            ) from exc.raised
        if self._is_self_healing(problem):
            # The input was lost in the meantime, so every record fails alone.
            raise failing.raised
        self._isolated.append(_IsolatedRecord(id=failing.id, number=number, problem=problem))

    def _check_isolable(self, problem: Problem, raised: Exception) -> None:
        """Raise if no single record can be the cause of a failed job."""
        if self._is_self_healing(problem):
            raise raised
        if self._policy.table.classify(problem.cause).kind is Kind.FATAL:
            raise self._step_failed(problem, raised, _why_fatal(problem), recordless=True)
        if self._segment.crashes_only and not problem.is_crash:
            raise raised
        if self._segment.stateful:
            raise self._step_failed(
                problem, raised, "it is stateful: no single record is the cause"
            )

    def _is_self_healing(self, problem: Problem) -> bool:
        return self._policy.table.classify(problem.cause).kind is Kind.SELF_HEALING

    def _step_failed(
        self, problem: Problem, raised: Exception, why: str, *, recordless: bool = False
    ) -> StepFailed:
        return StepFailed(self._segment.stage, problem, raised, why=why, recordless=recordless)

    def _marked(self) -> DataFrame:
        """Return the rows, with the isolated records marked as failed."""
        if not self._isolated:
            return self._rows
        if len(self._isolated) <= _MARKED_BY_EXPRESSIONS:
            return self._marked_by_expressions()
        failure_type = T.StructType().add("outcome", T.IntegerType()).add("error", ERROR_TYPE)
        schema = T.StructType().add(ID, T.LongType()).add(_FAILURE, failure_type)
        failures = local_frame(
            self._rows.sparkSession,
            [
                (each.id, {"outcome": each.number, "error": error_row(each.problem, self._policy)})
                for each in self._isolated
            ],
            schema,
        )
        failure = F.col(_FAILURE)
        columns = {
            OUTCOME: F.coalesce(failure["outcome"], F.col(OUTCOME)),
            ERROR: F.coalesce(failure["error"], F.col(ERROR)),
        }
        joined = numbered(self._rows).join(F.broadcast(failures), ID, "left")
        return with_columns_named(joined.withColumns(columns), self._rows.columns)

    def _marked_by_expressions(self) -> DataFrame:
        """Return the rows with a few isolated records marked without a join."""
        outcome, error = F.col(OUTCOME), F.col(ERROR)
        for record in self._isolated:
            is_record = F.col(ID) == record.id
            own_error = error_column(error_row(record.problem, self._policy))
            outcome = F.when(is_record, F.lit(record.number)).otherwise(outcome)
            error = F.when(is_record, own_error).otherwise(error)
        marked = numbered(self._rows).withColumns({OUTCOME: outcome, ERROR: error})
        return with_columns_named(marked, self._rows.columns)


def _evaluate(operation: Operation, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
    return checkpoints.add(with_row_counter(operation(frame)), level=AS_BYTES)


def _failed_step(record: DataFrame, segment: Segment, raised: Exception) -> tuple[int, Problem]:
    """Return the number of the step in which an isolated record fails, and its problem there."""
    spark, (*before, last) = record.sparkSession, segment.prefixes
    with releasing() as checkpoints:
        if before:
            record = checkpoints.add(record)
        for number, operation in before:
            try:
                operation(record).write.format("noop").mode("overwrite").save()
            except Exception as exc:  # the failure of the record
                return number, problem_of_job(spark, exc)
    return last[0], problem_of_job(spark, raised)


def _why_fatal(problem: Problem) -> str:
    """Return why a failure ends the run, and what helps."""
    if _NO_MODULE.search(problem.message) is None:
        return "a class that hits every record"
    return (
        "install it in the Python of the executors, or add it with spark.sparkContext.addPyFile or"
        " spark.submit.pyFiles if it is Python only"
    )
