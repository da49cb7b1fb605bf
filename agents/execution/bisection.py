"""Bisection: run an action with ever fewer records until one failing record is left.

A failed Spark task names its partition. In the JVM, the row that it had read last is the failing
one. Python receives rows far ahead: the failing row is in the first batch that did not return. That
batch runs again in small batches, and the first one that does not return runs row by row. The
candidate runs alone, since rows may have been left out or added on the way. Then the partition is
spread and run again. Without a hint, its eighths run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.job_attempts import (
    Action,
    AttemptFailed,
    Operation,
    run_job,
    with_row_counter,
)
from arrester.agents.spark.jvm.job_status import FailedJob
from arrester.agents.spark.jvm.stored_rows import to_driver
from arrester.agents.spark.local_checkpoint import ID, Checkpoints, release
from arrester.agents.spark.session_conf import SMALL, batch_rows, conf, small_batches
from arrester.agents.spark.worker_tracebacks import failed_in_python
from arrester.controlplane.domain.errors import ArresterError

#: The most jobs for one micro-batch and step.
JOBS: Final = 400
_RANK = "__arrester_rank"
_SPREAD = 128
_EIGHTHS = 8
#: Returned rows, which are known to succeed, that run together with the candidates.
_EXTRA_ROWS = 2
#: The number of partitions for rows on the driver.
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


class NoSingleRecord(ArresterError):
    """The action fails, but no single record makes it fail."""

    def __init__(self, why: str, raised: Exception, *, recordless: bool = False) -> None:
        super().__init__(why)
        self.raised = raised
        #: It ran without records.
        self.recordless = recordless


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRecord:
    """A row that makes the action fail alone."""

    id: int
    raised: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    frame: DataFrame
    count: int
    #: Whether they are in the largest possible number of partitions.
    spread: bool = False


class Bisection:
    """Finds failing rows of one micro-batch and step, one at a time, with a limited number of jobs.

    `is_probe`: it is unknown what the action does with its rows, so each candidate runs alone.
    """

    def __init__(self, action: Action, *, is_probe: bool = False) -> None:
        self._action = action
        self._limit = self._jobs_left = JOBS
        self._is_probe = is_probe
        self._checkpoints = Checkpoints()
        #: Whether the action is known to succeed without the failing rows.
        self._succeeds_without = False

    def one(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        """Return one failing row of a local checkpoint, which has a column ID.

        Raises NoSingleRecord if no record is the cause, or if there are too many.
        """
        if self._is_probe:
            self._check_without_records(rows)
        try:
            found = self._one(rows, failed)
        except NoSingleRecord:
            self._check_without_records(rows)
            raise
        finally:
            release(self._checkpoints)
            self._checkpoints.clear()
        self._check_without_records(rows)
        return found

    def _one(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        if failed.partition is None:
            return self._within(_Rows(frame=rows, count=rows.count()), failed)
        inside = rows.where(F.spark_partition_id() == failed.partition)
        hinted = self._hinted(inside, failed)
        if hinted is not None:
            return hinted
        found = self._spread_and_run(_up_to(inside, failed.last_read))
        if found is not None:
            return self._within(*found)
        return self._within(_Rows(frame=rows, count=rows.count()), failed)

    def _check_without_records(self, rows: DataFrame) -> None:
        """Check that the action succeeds without records.

        If workers do not start or a static table is unreadable, any single record would fail too.
        The check is skipped if another record has succeeded alone.
        """
        if self._succeeds_without:
            return
        self._succeeds_without = True
        without = self._run(rows.where(F.col(ID) < 0).coalesce(1))
        if without is not None:
            why = "it fails without any record, too"
            raise NoSingleRecord(why, without.raised, recordless=True)

    def _hinted(self, inside: DataFrame, failed: FailedJob) -> FailingRecord | None:
        """Return the row that the failed task points at, if it fails alone."""
        if failed_in_python(failed.raised):
            return self._after_returned_rows(inside, failed)
        last = failed.last_read
        alone = None if last is None else self._run(inside.where(F.col(ID) == last))
        return (
            None if last is None or alone is None else FailingRecord(id=last, raised=alone.raised)
        )

    def _after_returned_rows(self, inside: DataFrame, failed: FailedJob) -> FailingRecord | None:
        # The rows in their order, with gaps where some were left out.
        ranked = inside.coalesce(1).withColumn(_RANK, F.monotonically_increasing_id())
        first = failed.returned
        if not 0 < failed.read - first <= SMALL:
            spark = inside.sparkSession
            # A crashed worker may have lost what it had sent: take one batch more.
            batch = ranked.where(_from(first, 2 * batch_rows(spark))).drop(_RANK)
            with small_batches(spark):
                repeated = self._run(batch)
            if repeated is None:
                return None
            first += repeated.returned
        return self._each_alone(
            ranked.where(_from(first - _EXTRA_ROWS, SMALL + _EXTRA_ROWS)).drop(_RANK)
        )

    def _each_alone(self, few: DataFrame) -> FailingRecord | None:
        """Return the row among a few that fails in a task of its own."""
        here = to_driver(few.limit(SMALL + _EXTRA_ROWS))
        ids = [int(row[ID]) for row in here.select(ID).collect()]
        with conf(here.sparkSession, {_PARALLELISM: str(max(1, len(ids)))}):
            each = self._checkpoints.add(here)
        alone = self._run(each)
        if alone is None:
            return None
        # After a shuffle the task number does not identify rows.
        is_alone = alone.read == 1 and not self._is_probe
        if alone.partition is None or not is_alone or alone.partition >= len(ids):
            return self._within(_Rows(frame=each, count=len(ids)), alone)
        self._succeeds_without |= alone.succeeded > 0
        return FailingRecord(id=ids[alone.partition], raised=alone.raised)

    def _within(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        """Return one failing row of some that fail together."""
        if failed.partition is not None:
            hinted = rows.frame.where(F.spark_partition_id() == failed.partition)
            two = hinted.select(ID).coalesce(1).head(2)
            if len(two) == 1:
                # After a shuffle the task number does not identify rows.
                alone = failed if failed.read == 1 and not self._is_probe else self._run(hinted)
                if alone is None:
                    return self._eighths(rows, failed)
                return FailingRecord(id=int(two[0][0]), raised=alone.raised)
            found = self._spread_and_run(hinted)
            # Once the rows are spread, each hint leaves fewer of them.
            if found is not None and (found[0].count < rows.count or not rows.spread):
                return self._within(*found)
        if rows.count == 1:
            return FailingRecord(
                id=int(rows.frame.select(ID).collect()[0][0]), raised=failed.raised
            )
        return self._eighths(rows, failed)

    def _spread_and_run(self, rows: DataFrame) -> tuple[_Rows, FailedJob] | None:
        """Return the rows in many partitions and their failure, None if they succeed."""
        spread = self._spread(rows, into=_SPREAD, count=rows.count())
        repeated = self._run(spread.frame) if spread.count else None
        return None if repeated is None else (spread, repeated)

    def _eighths(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        spread = self._spread(rows.frame, into=_EIGHTHS, count=rows.frame.count())
        for number in range(min(_EIGHTHS, spread.count)):
            part = spread.frame.where(F.spark_partition_id() == number)
            repeated = self._run(part)
            if repeated is not None:
                return self._within(_Rows(frame=part, count=part.count()), repeated)
        raise NoSingleRecord("no single record makes it fail alone", failed.raised)

    def _run(self, rows: DataFrame) -> FailedJob | None:
        """Run the action with `rows`, only to see whether it fails."""
        self._jobs_left -= 1
        try:
            run_job(rows.sparkSession, lambda: self._action(rows))
        except AttemptFailed as exc:
            if self._jobs_left < 0:
                why = f"more of its records fail than {self._limit} jobs could find"
                raise NoSingleRecord(why, exc.failed.raised) from exc
            return exc.failed
        return None

    def _spread(self, rows: DataFrame, *, into: int, count: int) -> _Rows:
        frame = self._checkpoints.add(rows.repartition(max(1, min(into, count))))
        return _Rows(frame=frame, count=count, spread=into == _SPREAD)


def evaluating(operation: Operation) -> Action:
    """Return an action that evaluates the complete result of an operation."""
    return lambda rows: (
        with_row_counter(operation(rows)).write.format("noop").mode("overwrite").save()
    )


def _from(rank: int, rows: int) -> Column:
    """Return whether a row is one of this many from this rank on."""
    return F.col(_RANK).between(rank, rank + rows - 1)


def _up_to(rows: DataFrame, last: int | None) -> DataFrame:
    return rows if last is None else rows.where(F.col(ID) <= last)
