"""Bisection: run an action with ever fewer records until one failing record is left.

A failed Spark task names its partition. In the JVM, the row that it had read last is the failing
one. Python receives rows far ahead: the failing row is in the first batch that did not return. That
batch runs again in small batches, and the first one that does not return runs row by row. The
candidate runs alone, since rows may have been left out or added on the way. Then the partition is
spread and run again. Without a hint, eighths run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.spark.arrow import SMALL, batch_rows, small_batches
from arrester.agents.spark.errors import is_of_python
from arrester.agents.spark.job_attempts import (
    Action,
    AttemptFailed,
    FailedJob,
    Operation,
    attempted,
)
from arrester.agents.spark.local_checkpoint import ID, checkpointed, release
from arrester.agents.spark.local_relation import gathered
from arrester.agents.spark.row_counters import metered
from arrester.agents.spark.session_conf import conf
from arrester.controlplane.domain.errors import ArresterError

#: The most jobs for one micro-batch and step.
JOBS: Final = 400
_RANK = "__arrester_rank"
_SPREAD = 128
_EIGHTHS = 8
_AT_ONCE = 4
#: Returned rows that run together with the candidates. They are known to succeed.
_SPARED = 2
#: The number of partitions for rows on the driver.
_PARTS = "spark.sql.leafNodeDefaultParallelism"


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

    Parts run `at_once` in parallel; with 1, in the calling Python thread. `trying`: it is unknown
    what the action does with its rows, so each candidate runs alone.
    """

    def __init__(
        self,
        action: Action,
        *,
        at_once: int = _AT_ONCE,
        trying: bool = False,
    ) -> None:
        self._action = action
        self._most = self._jobs = JOBS
        self._at_once = at_once
        self._trying = trying
        self._kept: list[DataFrame] = []
        #: Whether the action is known to succeed without the failing rows.
        self._passes = False

    def one(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        """Return one failing row of a local checkpoint, which has a column ID.

        Raises NoSingleRecord if no record is the cause, or if there are too many.
        """
        if self._trying:
            self._without(rows)
        try:
            guilty = self._one(rows, failed)
        except NoSingleRecord:
            self._without(rows)
            raise
        finally:
            release(self._kept)
            self._kept = []
        self._without(rows)
        return guilty

    def _one(self, rows: DataFrame, failed: FailedJob) -> FailingRecord:
        if failed.partition is None:
            return self._within(_Rows(frame=rows, count=rows.count()), failed)
        inside = rows.where(F.spark_partition_id() == failed.partition)
        pointed = self._pointed_at(inside, failed)
        if pointed is not None:
            return pointed
        found = self._spread_and_run(_up_to(inside, failed.last_read))
        if found is not None:
            return self._within(*found)
        return self._within(_Rows(frame=rows, count=rows.count()), failed)

    def _without(self, rows: DataFrame) -> None:
        """Check that the action succeeds without records.

        If workers do not start or a static table is unreadable, any single record would fail too.
        The check is skipped if another record has succeeded alone.
        """
        if self._passes:
            return
        self._passes = True
        without = self._run(rows.where(F.col(ID) < 0).coalesce(1))
        if without is not None:
            why = "it fails without any record, too"
            raise NoSingleRecord(why, without.raised, recordless=True)

    def _pointed_at(self, inside: DataFrame, failed: FailedJob) -> FailingRecord | None:
        """Return the row that the failed task points at, if it fails alone."""
        if is_of_python(failed.raised):
            return self._behind_what_came_out(inside, failed)
        last = failed.last_read
        alone = None if last is None else self._run(inside.where(F.col(ID) == last))
        return (
            None if last is None or alone is None else FailingRecord(id=last, raised=alone.raised)
        )

    def _behind_what_came_out(self, inside: DataFrame, failed: FailedJob) -> FailingRecord | None:
        # The rows in their order, whatever was left out.
        ranked = inside.coalesce(1).withColumn(_RANK, F.monotonically_increasing_id())
        first = failed.made
        if not 0 < failed.read - first <= SMALL:
            spark = inside.sparkSession
            # A crashed worker may have lost what it had sent: take one batch more.
            batch = ranked.where(_from(first, 2 * batch_rows(spark))).drop(_RANK)
            with small_batches(spark):
                again = self._run(batch)
            if again is None:
                return None
            first += again.made
        return self._each_alone(ranked.where(_from(first - _SPARED, SMALL + _SPARED)).drop(_RANK))

    def _each_alone(self, few: DataFrame) -> FailingRecord | None:
        """Return the row among a few that fails in a task of its own."""
        here = gathered(few.limit(SMALL + _SPARED))
        ids = [int(row[ID]) for row in here.select(ID).collect()]
        with conf(here.sparkSession, {_PARTS: str(max(1, len(ids)))}):
            each = checkpointed(here)
        self._kept.append(each)
        alone = self._run(each)
        if alone is None:
            return None
        # After a shuffle the task number does not identify rows.
        is_alone = alone.read == 1 and not self._trying
        if alone.partition is None or not is_alone or alone.partition >= len(ids):
            return self._within(_Rows(frame=each, count=len(ids)), alone)
        self._passes |= alone.passed > 0
        return FailingRecord(id=ids[alone.partition], raised=alone.raised)

    def _within(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        """Return one failing row of some that fail together."""
        if failed.partition is not None:
            hinted = rows.frame.where(F.spark_partition_id() == failed.partition)
            two = hinted.select(ID).coalesce(1).head(2)
            if len(two) == 1:
                # After a shuffle the task number does not identify rows.
                alone = failed if failed.read == 1 and not self._trying else self._run(hinted)
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
        again = self._run(spread.frame) if spread.count else None
        return None if again is None else (spread, again)

    def _eighths(self, rows: _Rows, failed: FailedJob) -> FailingRecord:
        spread = self._spread(rows.frame, into=_EIGHTHS, count=rows.frame.count())
        parts = range(min(_EIGHTHS, spread.count))
        slices = [spread.frame.where(F.spark_partition_id() == n) for n in parts]
        for each, again in zip(slices, self._each_of(slices), strict=True):
            if again is not None:
                return self._within(_Rows(frame=each, count=each.count()), again)
        raise NoSingleRecord("no single record makes it fail alone", failed.raised)

    def _each_of(self, slices: Sequence[DataFrame]) -> Iterator[FailedJob | None]:
        if self._at_once == 1:
            yield from map(self._run, slices)
            return
        # Each thread has its own local properties, such as job tags.
        runs = [inheritable_thread_target(each.sparkSession)(self._run) for each in slices]
        with ThreadPoolExecutor(self._at_once) as pool:
            yield from list(pool.map(lambda run, each: run(each), runs, slices))

    def _run(self, rows: DataFrame) -> FailedJob | None:
        """Run the action with `rows`, only to see whether it fails."""
        self._jobs -= 1
        try:
            attempted(rows.sparkSession, lambda: self._action(rows))
        except AttemptFailed as exc:
            if self._jobs < 0:
                why = f"more of its records fail than {self._most} jobs could find"
                raise NoSingleRecord(why, exc.failed.raised) from exc
            return exc.failed
        return None

    def _spread(self, rows: DataFrame, *, into: int, count: int) -> _Rows:
        frame = checkpointed(rows.repartition(max(1, min(into, count))))
        self._kept.append(frame)
        return _Rows(frame=frame, count=count, spread=into == _SPREAD)


def evaluating(operation: Operation) -> Action:
    """Return an action that evaluates the complete result of an operation."""
    return lambda rows: metered(operation(rows)).write.format("noop").mode("overwrite").save()


def _from(rank: int, rows: int) -> Column:
    """Return whether a row is one of this many from this rank on."""
    return F.col(_RANK).between(rank, rank + rows - 1)


def _up_to(rows: DataFrame, last: int | None) -> DataFrame:
    return rows if last is None else rows.where(F.col(ID) <= last)
