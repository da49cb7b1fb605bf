"""Isolate the failing records of a step that failed as a Spark job.

This happens after a failure only: a healthy micro-batch runs all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.execution.bisection import Bisection, NoSingleRecord, evaluating
from arrester.agents.executor.columns import ERROR, ERROR_TYPE, FATE
from arrester.agents.spark.catalyst import partition_count
from arrester.agents.spark.error_columns import error_column, error_row
from arrester.agents.spark.errors import Problem, StepFailed, problem_of_job
from arrester.agents.spark.job_attempts import FailedJob, Operation
from arrester.agents.spark.local_checkpoint import ID, checkpointed, numbered, releasing
from arrester.agents.spark.session_conf import FAULT_HANDLER, conf
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
    def whole(self) -> Operation:
        """The operation that runs all of them."""
        return self.prefixes[-1][1]


class Isolation:
    """Isolates the failing records of a step, one after the other, in one micro-batch."""

    def __init__(self, base: DataFrame, suspect: Suspect, policy: Policy) -> None:
        self._base = base
        self._suspect = suspect
        self._policy = policy
        self._search = Bisection(evaluating(suspect.whole))
        self._fates: list[IsolatedRecord] = []

    def isolate(self, failed: FailedJob) -> None:
        """Isolate one failing record; raises StepFailed if there is none."""
        spark, raised = self._base.sparkSession, failed.raised
        problem = problem_of_job(spark, raised)
        if self._heals(problem):
            raise raised
        if self._policy.table.classify(problem.cause).kind is Kind.FATAL:
            raise self._failed(problem, raised, "a class that hits every record")
        if self._suspect.crashes_only and not problem.is_crash:
            raise raised
        if self._suspect.stateful:
            raise self._failed(problem, raised, "it is stateful: no single record is the cause")
        known = [fate.id for fate in self._fates]
        rows = numbered(self._base).where(F.col(FATE).isNull() & ~F.col(ID).isin(known))
        # Rows of a union have the partitions after those of its first part.
        partition = None if failed.partition is None else failed.partition % partition_count(rows)
        try:
            # After a worker crash only Python's fault handler reports the position.
            with conf(spark, FAULT_HANDLER if problem.is_crash else {}):
                guilty = self._search.one(rows, replace(failed, partition=partition))
                alone = rows.where(F.col(ID) == guilty.id)
                number, why = _explained(alone, self._suspect, guilty.raised)
        except NoSingleRecord as exc:
            problem = problem_of_job(spark, exc.raised)
            if self._heals(problem):
                raise exc.raised from None
            raise self._failed(
                problem, exc.raised, str(exc), recordless=exc.recordless
            ) from exc.raised
        if self._heals(why):
            # The input was lost in the meantime, so every record fails alone.
            raise guilty.raised
        self._fates.append(IsolatedRecord(id=guilty.id, number=number, problem=why))

    def _heals(self, problem: Problem) -> bool:
        return self._policy.table.classify(problem.cause).kind is Kind.SELF_HEALING

    def marked(self) -> DataFrame:
        """Return the rows, with the isolated records marked as failed."""
        if not self._fates:
            return self._base
        if len(self._fates) <= _NAMED:
            return self._named()
        fate = T.StructType().add("fate", T.IntegerType()).add("error", ERROR_TYPE)
        schema = T.StructType().add(ID, T.LongType()).add(_FOUND, fate)
        rows = [
            (each.id, {"fate": each.number, "error": error_row(each.problem, self._policy)})
            for each in self._fates
        ]
        found, known = self._base.sparkSession.createDataFrame(rows, schema), F.col(_FOUND)
        responder = {
            FATE: F.coalesce(known["fate"], F.col(FATE)),
            ERROR: F.coalesce(known["error"], F.col(ERROR)),
        }
        joined = numbered(self._base).join(F.broadcast(found), ID, "left")
        return joined.withColumns(responder).select(*self._base.columns)

    def _named(self) -> DataFrame:
        """Return the rows with a few isolated records named in expressions, without a join."""
        fate, error, here = F.col(FATE), F.col(ERROR), F.col(ID)
        for each in self._fates:
            known = error_column(error_row(each.problem, self._policy))
            fate = F.when(here == each.id, F.lit(each.number)).otherwise(fate)
            error = F.when(here == each.id, known).otherwise(error)
        marked = numbered(self._base).withColumns({FATE: fate, ERROR: error})
        return marked.select(*self._base.columns)

    @property
    def isolated(self) -> int:
        """The number of isolated records."""
        return len(self._fates)

    def _failed(
        self, problem: Problem, raised: Exception, why: str, *, recordless: bool = False
    ) -> StepFailed:
        return StepFailed(self._suspect.stage, problem, raised, why=why, recordless=recordless)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedRecord:
    """An isolated record and its problem."""

    id: int
    number: int
    problem: Problem


def _explained(alone: DataFrame, suspect: Suspect, raised: Exception) -> tuple[int, Problem]:
    """Return the step in which an isolated record fails, and its problem."""
    spark, (*before, last) = alone.sparkSession, suspect.prefixes
    with releasing() as kept:
        if before:
            alone = checkpointed(alone)
            kept.append(alone)
        for number, operation in before:
            try:
                operation(alone).write.format("noop").mode("overwrite").save()
            except Exception as exc:  # what it is searched for
                return number, problem_of_job(spark, exc)
    return last[0], problem_of_job(spark, raised)
