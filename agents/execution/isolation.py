"""Run a step, and isolate its failing records if it fails as a Spark job.

Isolation happens after a failure only: a healthy micro-batch runs all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.execution.bisection import Bisection, NoSingleRecord, evaluating
from arrester.agents.spark.column_names import with_columns_named
from arrester.agents.spark.errors import (
    Problem,
    StepFailed,
    error_column,
    error_row,
)
from arrester.agents.spark.job_attempts import (
    AttemptFailed,
    Operation,
    run_job,
    with_row_counter,
)
from arrester.agents.spark.jvm.catalyst import partition_count
from arrester.agents.spark.jvm.job_status import FailedJob
from arrester.agents.spark.jvm.problems import problem_of_job
from arrester.agents.spark.local_checkpoint import (
    AS_BYTES,
    ID,
    Checkpoints,
    numbered,
    releasing,
)
from arrester.agents.spark.session_conf import FAULT_HANDLER, conf
from arrester.agents.worker.columns import ERROR, ERROR_TYPE, OUTCOME
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.policy import Policy

_FOUND = "__arrester_found"
#: At most this many are named in an expression.
_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Steps that run as one. Only running them separately shows which one a record failed in."""

    stage: str
    #: Python steps catch exceptions. If they fail as a job, their worker has crashed, or no record
    #: is the cause.
    crashes_only: bool
    #: Rows depend on each other, so a record that fails alone need not be the cause.
    stateful: bool = False
    #: By the number of the last step: an operation that runs the steps up to it.
    prefixes: Sequence[tuple[int, Operation]]

    @property
    def all_steps(self) -> Operation:
        """The operation that runs all of them."""
        return self.prefixes[-1][1]


class SurvivingRows(NamedTuple):
    """Rows with the failing records marked, and the step's result for the others."""

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
    """Isolates the failing records of a step, one after the other, in one micro-batch."""

    def __init__(self, base: DataFrame, suspect: Suspect, policy: Policy) -> None:
        self._base = base
        self._suspect = suspect
        self._policy = policy
        self._bisection = Bisection(evaluating(suspect.all_steps))
        self._isolated: list[_IsolatedRecord] = []

    def run(self, operation: Operation, checkpoints: Checkpoints) -> SurvivingRows:
        """Return the rows with the failing records marked, and the operation's result for others.

        Raises StepFailed if no record is the cause.
        """
        while True:
            marked = self._marked()
            evaluate = partial(_evaluate, operation, marked, checkpoints)
            try:
                return SurvivingRows(
                    marked, run_job(marked.sparkSession, evaluate), len(self._isolated)
                )
            except AttemptFailed as exc:
                self._isolate(exc.failed)

    def _isolate(self, failed: FailedJob) -> None:
        """Isolate one failing record; raises StepFailed if there is none."""
        spark, raised = self._base.sparkSession, failed.raised
        problem = problem_of_job(spark, raised)
        if self._is_self_healing(problem):
            raise raised
        if self._policy.table.classify(problem.cause).kind is Kind.FATAL:
            raise self._step_failed(problem, raised, "a class that hits every record")
        if self._suspect.crashes_only and not problem.is_crash:
            raise raised
        if self._suspect.stateful:
            raise self._step_failed(
                problem, raised, "it is stateful: no single record is the cause"
            )
        known = [each.id for each in self._isolated]
        rows = numbered(self._base).where(F.col(OUTCOME).isNull() & ~F.col(ID).isin(known))
        # Rows of a union have the partitions after those of its first part.
        partition = None if failed.partition is None else failed.partition % partition_count(rows)
        try:
            # After a worker crash only Python's fault handler reports the position.
            with conf(spark, FAULT_HANDLER if problem.is_crash else {}):
                found = self._bisection.one(rows, replace(failed, partition=partition))
                record = rows.where(F.col(ID) == found.id)
                number, problem = _explained(record, self._suspect, found.raised)
        except NoSingleRecord as exc:
            problem = problem_of_job(spark, exc.raised)
            if self._is_self_healing(problem):
                raise exc.raised from None
            raise self._step_failed(
                problem, exc.raised, str(exc), recordless=exc.recordless
            ) from exc.raised
        if self._is_self_healing(problem):
            # The input was lost in the meantime, so every record fails alone.
            raise found.raised
        self._isolated.append(_IsolatedRecord(id=found.id, number=number, problem=problem))

    def _is_self_healing(self, problem: Problem) -> bool:
        return self._policy.table.classify(problem.cause).kind is Kind.SELF_HEALING

    def _step_failed(
        self, problem: Problem, raised: Exception, why: str, *, recordless: bool = False
    ) -> StepFailed:
        return StepFailed(self._suspect.stage, problem, raised, why=why, recordless=recordless)

    def _marked(self) -> DataFrame:
        """Return the rows, with the isolated records marked as failed."""
        if not self._isolated:
            return self._base
        if len(self._isolated) <= _NAMED:
            return self._marked_by_expressions()
        failure = T.StructType().add("outcome", T.IntegerType()).add("error", ERROR_TYPE)
        schema = T.StructType().add(ID, T.LongType()).add(_FOUND, failure)
        rows = [
            (each.id, {"outcome": each.number, "error": error_row(each.problem, self._policy)})
            for each in self._isolated
        ]
        found, known = self._base.sparkSession.createDataFrame(rows, schema), F.col(_FOUND)
        columns = {
            OUTCOME: F.coalesce(known["outcome"], F.col(OUTCOME)),
            ERROR: F.coalesce(known["error"], F.col(ERROR)),
        }
        joined = numbered(self._base).join(F.broadcast(found), ID, "left")
        return with_columns_named(joined.withColumns(columns), self._base.columns)

    def _marked_by_expressions(self) -> DataFrame:
        """Return the rows with a few isolated records marked without a join."""
        outcome, error, here = F.col(OUTCOME), F.col(ERROR), F.col(ID)
        for each in self._isolated:
            known = error_column(error_row(each.problem, self._policy))
            outcome = F.when(here == each.id, F.lit(each.number)).otherwise(outcome)
            error = F.when(here == each.id, known).otherwise(error)
        marked = numbered(self._base).withColumns({OUTCOME: outcome, ERROR: error})
        return with_columns_named(marked, self._base.columns)


def _evaluate(operation: Operation, frame: DataFrame, checkpoints: Checkpoints) -> DataFrame:
    return checkpoints.add(with_row_counter(operation(frame)), level=AS_BYTES)


def _explained(record: DataFrame, suspect: Suspect, raised: Exception) -> tuple[int, Problem]:
    """Return the step in which an isolated record fails, and its problem."""
    spark, (*before, last) = record.sparkSession, suspect.prefixes
    with releasing() as checkpoints:
        if before:
            record = checkpoints.add(record)
        for number, operation in before:
            try:
                operation(record).write.format("noop").mode("overwrite").save()
            except Exception as exc:  # the failure of the record
                return number, problem_of_job(spark, exc)
    return last[0], problem_of_job(spark, raised)
