"""Bisection: run an action with ever fewer records until one failing record is left.

A failed Spark task reports its partition. In the JVM, the last row that it read is the candidate.
Spark sends rows to Python in batches, so there the candidate is in the first batch that did not
return. That batch runs again in small batches; the first small one that does not return runs row by
row. The candidate then runs alone, because the action may have dropped or added rows before it. If
it does not fail alone, the rows of its partition are spread over many partitions and run again.
Without a reported partition, the rows run in eighths, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.frames.local_checkpoint import ID, Checkpoints, release
from arrester.agents.spark.job_attempts import (
    Action,
    AttemptFailed,
    Operation,
    run_job,
    with_row_counter,
)
from arrester.agents.spark.jvm.job_status import FailedJob
from arrester.agents.spark.jvm.stored_rows import to_driver
from arrester.agents.spark.session_conf import SMALL, batch_rows, conf, small_batches
from arrester.agents.spark.worker_tracebacks import failed_in_python
from arrester.domain.errors import ArresterError

#: The most jobs for one micro-batch and step.
JOBS: Final = 400
_RANK = "__arrester_rank"
_SPREAD = 128
_EIGHTHS = 8
#: Returned rows that run together with the candidates: one that succeeds replaces the check without
#: records.
_EXTRA_ROWS = 2
#: Spark's setting for the number of partitions of rows on the driver.
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


class NoSingleRecord(ArresterError):
    """The action fails, but no single record makes it fail."""

    def __init__(self, why: str, raised: Exception, *, recordless: bool = False) -> None:
        super().__init__(why)
        self.raised = raised
        #: Whether the action fails without any record.
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
    is_spread: bool = False


class Bisection:
    """Finds failing rows of one micro-batch and step, one at a time, with a limited number of jobs.

    `is_probe`: the action may read its rows in any way, so each candidate runs alone.
    """

    def __init__(self, action: Action, *, is_probe: bool = False) -> None:
        self._action = action
        self._limit = self._jobs_left = JOBS
        self._is_probe = is_probe
        self._checkpoints = Checkpoints()
        #: Whether the check without records is done, or not needed: a record succeeded alone.
        self._checked_without_records = False

    def find(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        """Return one failing row of a local checkpoint, which has a column ID.

        Raises NoSingleRecord if no record is the cause, or if there are too many.
        """
        if self._is_probe:
            self._check_without_records(rows)
        try:
            failing = self._find(rows, failed)
        except NoSingleRecord:
            self._check_without_records(rows)
            raise
        finally:
            release(self._checkpoints)
            self._checkpoints.clear()
        self._check_without_records(rows)
        return failing

    def _find(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        if failed.partition is None:
            return self._find_within(_Rows(frame=rows, count=rows.count()), failed)
        of_partition = rows.where(F.spark_partition_id() == failed.partition)
        candidate = self._candidate(of_partition, failed)
        if candidate is not None:
            return candidate
        narrowed = self._spread_and_run(_up_to(of_partition, failed.last_read))
        if narrowed is not None:
            return self._find_within(*narrowed)
        return self._find_within(_Rows(frame=rows, count=rows.count()), failed)

    def _check_without_records(self, rows: DataFrame) -> None:
        """Check that the action succeeds without records.

        If workers do not start or a static table is unreadable, each single record fails too. The
        check is skipped if another record has succeeded alone.
        """
        if self._checked_without_records:
            return
        self._checked_without_records = True
        failed = self._run(rows.where(F.col(ID) < 0).coalesce(1))
        if failed is not None:
            why = "it fails without any record, too"
            raise NoSingleRecord(why, failed.raised, recordless=True)

    def _candidate(self, of_partition: DataFrame, failed: FailedJob) -> FailingRecord | None:
        """Return the row that the progress of the failed task points to, if it fails alone."""
        if failed_in_python(failed.raised):
            return self._candidate_after_returned_rows(of_partition, failed)
        last = failed.last_read
        if last is None:
            return None
        failed_alone = self._run(of_partition.where(F.col(ID) == last))
        return None if failed_alone is None else FailingRecord(id=last, raised=failed_alone.raised)

    def _candidate_after_returned_rows(
        self, of_partition: DataFrame, failed: FailedJob
    ) -> FailingRecord | None:
        # IDs have gaps where records were excluded; ranks have none.
        ranked = of_partition.coalesce(1).withColumn(_RANK, F.monotonically_increasing_id())
        first = failed.returned
        if not 0 < failed.read - first <= SMALL:
            spark = of_partition.sparkSession
            # A crashed worker may have lost rows that it had sent: add one batch.
            batch = ranked.where(_from(first, 2 * batch_rows(spark))).drop(_RANK)
            with small_batches(spark):
                repeated = self._run(batch)
            if repeated is None:
                return None
            first += repeated.returned
        return self._find_in_own_tasks(
            ranked.where(_from(first - _EXTRA_ROWS, SMALL + _EXTRA_ROWS)).drop(_RANK)
        )

    def _find_in_own_tasks(self, candidates: DataFrame) -> FailingRecord | None:
        """Run each of a few candidates in a task of its own; return one that fails."""
        on_driver = to_driver(candidates.limit(SMALL + _EXTRA_ROWS))
        ids = [int(row[ID]) for row in on_driver.select(ID).collect()]
        with conf(on_driver.sparkSession, {_PARALLELISM: str(max(1, len(ids)))}):
            one_per_task = self._checkpoints.add(on_driver)
        failed = self._run(one_per_task)
        if failed is None:
            return None
        # After a shuffle the task number does not identify rows.
        read_one = failed.read == 1 and not self._is_probe
        if failed.partition is None or not read_one or failed.partition >= len(ids):
            return self._find_within(_Rows(frame=one_per_task, count=len(ids)), failed)
        self._checked_without_records |= failed.succeeded > 0
        return FailingRecord(id=ids[failed.partition], raised=failed.raised)

    def _find_within(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        """Return one failing row of some that fail together."""
        if failed.partition is not None:
            of_partition = rows.frame.where(F.spark_partition_id() == failed.partition)
            first_two = of_partition.select(ID).coalesce(1).head(2)
            if len(first_two) == 1:
                # After a shuffle the task number does not identify rows.
                read_one = failed.read == 1 and not self._is_probe
                failed_alone = failed if read_one else self._run(of_partition)
                if failed_alone is None:
                    return self._find_in_eighths(rows, failed)
                return FailingRecord(id=int(first_two[0][0]), raised=failed_alone.raised)
            narrowed = self._spread_and_run(of_partition)
            # Once the rows are spread, each reported partition has fewer of them.
            if narrowed is not None and (narrowed[0].count < rows.count or not rows.is_spread):
                return self._find_within(*narrowed)
        if rows.count == 1:
            return FailingRecord(
                id=int(rows.frame.select(ID).collect()[0][0]), raised=failed.raised
            )
        return self._find_in_eighths(rows, failed)

    def _spread_and_run(self, rows: DataFrame) -> tuple[_Rows, FailedJob] | None:
        """Return the rows in many partitions and their failure, None if they succeed."""
        spread = self._spread(rows, into=_SPREAD, count=rows.count())
        repeated = self._run(spread.frame) if spread.count else None
        return None if repeated is None else (spread, repeated)

    def _find_in_eighths(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        spread = self._spread(rows.frame, into=_EIGHTHS, count=rows.frame.count())
        for number in range(min(_EIGHTHS, spread.count)):
            eighth = spread.frame.where(F.spark_partition_id() == number)
            repeated = self._run(eighth)
            if repeated is not None:
                return self._find_within(_Rows(frame=eighth, count=eighth.count()), repeated)
        raise NoSingleRecord("no single record makes it fail alone", failed.raised)

    def _run(self, rows: DataFrame) -> FailedJob | None:
        """Run the action with `rows`; return the failed job, None if it succeeds."""
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
        return _Rows(frame=frame, count=count, is_spread=into == _SPREAD)


def evaluating(operation: Operation) -> Action:
    """Return an action that evaluates the complete result of an operation."""
    return lambda rows: (
        with_row_counter(operation(rows)).write.format("noop").mode("overwrite").save()
    )


def _from(rank: int, rows: int) -> Column:
    """Return whether a row is one of `rows` rows from `rank` on."""
    return F.col(_RANK).between(rank, rank + rows - 1)


def _up_to(rows: DataFrame, last: int | None) -> DataFrame:
    return rows if last is None else rows.where(F.col(ID) <= last)
