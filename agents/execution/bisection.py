"""Which records make an action fail: it is done with ever fewer of them, until one is left.

A failed Spark task names its partition. In the JVM the row that it had read last is the guilty one.
To Python rows are fed far ahead: the guilty one is in the first batch that did not come back, which
is run again in small batches, and the first of those that does not come back row by row. What this
points at is tried alone: it may be wrong where rows are left out or made on the way. Then the
partition is spread out and run again; where it says nothing, eighths are tried side by side.
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
from arrester.agents.spark.job_attempts import Action, AttemptFailed, Failed, Operation, attempted
from arrester.agents.spark.local_checkpoint import ID, checkpointed, release
from arrester.agents.spark.local_relation import gathered
from arrester.agents.spark.row_counters import metered
from arrester.agents.spark.session_conf import conf
from arrester.controlplane.domain.errors import ArresterError

#: So many jobs may a search of one micro-batch and step take.
JOBS: Final = 400
_RANK = "__arrester_rank"
_SPREAD = 128
_EIGHTHS = 8
_AT_ONCE = 4
#: So many rows that came out are tried beside those that may be guilty: they pass alone.
_SPARED = 2
#: In how many partitions rows are that the driver has.
_PARTS = "spark.sql.leafNodeDefaultParallelism"


class NotAlone(ArresterError):
    """An action fails, and no record makes it fail alone: blame the action, no record."""

    def __init__(self, why: str, raised: Exception, *, recordless: bool = False) -> None:
        super().__init__(why)
        self.raised = raised
        #: It was given no records.
        self.recordless = recordless


@dataclass(frozen=True, slots=True, kw_only=True)
class Guilty:
    """A row that makes the action fail alone."""

    id: int
    raised: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    frame: DataFrame
    count: int
    #: Whether they are in as many partitions as they may be.
    spread: bool = False


class Search:
    """Finds guilty rows of one micro-batch and step, each time one; the number of jobs is bound.

    So many parts are tried `at_once`; one at a time, in the Python thread that asks. `trying`: what
    the action does with its rows is unknown, so each is tried alone before it is blamed.
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
        #: Whether it is known to pass without the guilty.
        self._passes = False

    def one(self, rows: DataFrame, failed: Failed) -> Guilty:
        """Return one guilty row of a local checkpoint's rows, with a column ID, that failed.

        Raises NotAlone where no record is to blame, or there are too many of them.
        """
        if self._trying:
            self._without(rows)
        try:
            guilty = self._one(rows, failed)
        except NotAlone:
            self._without(rows)
            raise
        finally:
            release(self._kept)
            self._kept = []
        self._without(rows)
        return guilty

    def _one(self, rows: DataFrame, failed: Failed) -> Guilty:
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
        """Workers that do not start, a static table that cannot be read: no record is to blame.

        A single record would fail alone, too. It is not asked where another one has passed alone.
        """
        if self._passes:
            return
        self._passes = True
        without = self._run(rows.where(F.col(ID) < 0).coalesce(1))
        if without is not None:
            why = "it fails without any record, too"
            raise NotAlone(why, without.raised, recordless=True)

    def _pointed_at(self, inside: DataFrame, failed: Failed) -> Guilty | None:
        """Return the row of a partition that its failed task points at, where it fails alone."""
        if is_of_python(failed.raised):
            return self._behind_what_came_out(inside, failed)
        last = failed.last_read
        alone = None if last is None else self._run(inside.where(F.col(ID) == last))
        return None if last is None or alone is None else Guilty(id=last, raised=alone.raised)

    def _behind_what_came_out(self, inside: DataFrame, failed: Failed) -> Guilty | None:
        # Its rows in their order, whatever was left out of them.
        ranked = inside.coalesce(1).withColumn(_RANK, F.monotonically_increasing_id())
        first = failed.made
        if not 0 < failed.read - first <= SMALL:
            spark = inside.sparkSession
            # What a worker had sent when it crashed may be lost: a batch more.
            batch = ranked.where(_from(first, 2 * batch_rows(spark))).drop(_RANK)
            with small_batches(spark):
                again = self._run(batch)
            if again is None:
                return None
            first += again.made
        return self._each_alone(ranked.where(_from(first - _SPARED, SMALL + _SPARED)).drop(_RANK))

    def _each_alone(self, few: DataFrame) -> Guilty | None:
        """Return the one of a few rows that fails when each has a task of its own."""
        here = gathered(few.limit(SMALL + _SPARED))
        ids = [int(row[ID]) for row in here.select(ID).collect()]
        with conf(here.sparkSession, {_PARTS: str(max(1, len(ids)))}):
            each = checkpointed(here)
        self._kept.append(each)
        alone = self._run(each)
        if alone is None:
            return None
        # Behind a shuffle a task's number says nothing of the rows.
        is_alone = alone.read == 1 and not self._trying
        if alone.partition is None or not is_alone or alone.partition >= len(ids):
            return self._within(_Rows(frame=each, count=len(ids)), alone)
        self._passes |= alone.passed > 0
        return Guilty(id=ids[alone.partition], raised=alone.raised)

    def _within(self, rows: _Rows, failed: Failed) -> Guilty:
        """Return one guilty row of some that fail together."""
        if failed.partition is not None:
            hinted = rows.frame.where(F.spark_partition_id() == failed.partition)
            two = hinted.select(ID).coalesce(1).head(2)
            if len(two) == 1:
                # Behind a shuffle a task's number says nothing of the rows.
                alone = failed if failed.read == 1 and not self._trying else self._run(hinted)
                if alone is None:
                    return self._eighths(rows, failed)
                return Guilty(id=int(two[0][0]), raised=alone.raised)
            found = self._spread_and_run(hinted)
            # Once they are spread, each hint leaves less of them.
            if found is not None and (found[0].count < rows.count or not rows.spread):
                return self._within(*found)
        if rows.count == 1:
            return Guilty(id=int(rows.frame.select(ID).collect()[0][0]), raised=failed.raised)
        return self._eighths(rows, failed)

    def _spread_and_run(self, rows: DataFrame) -> tuple[_Rows, Failed] | None:
        """Return the rows in many partitions with how they fail, None when they pass."""
        spread = self._spread(rows, into=_SPREAD, count=rows.count())
        again = self._run(spread.frame) if spread.count else None
        return None if again is None else (spread, again)

    def _eighths(self, rows: _Rows, failed: Failed) -> Guilty:
        spread = self._spread(rows.frame, into=_EIGHTHS, count=rows.frame.count())
        parts = range(min(_EIGHTHS, spread.count))
        slices = [spread.frame.where(F.spark_partition_id() == n) for n in parts]
        for each, again in zip(slices, self._each_of(slices), strict=True):
            if again is not None:
                return self._within(_Rows(frame=each, count=each.count()), again)
        raise NotAlone("no single record makes it fail alone", failed.raised)

    def _each_of(self, slices: Sequence[DataFrame]) -> Iterator[Failed | None]:
        if self._at_once == 1:
            yield from map(self._run, slices)
            return
        # Each with properties of its own: tags are among them.
        runs = [inheritable_thread_target(each.sparkSession)(self._run) for each in slices]
        with ThreadPoolExecutor(self._at_once) as pool:
            yield from list(pool.map(lambda run, each: run(each), runs, slices))

    def _run(self, rows: DataFrame) -> Failed | None:
        """Do it with `rows`, for its failure only."""
        self._jobs -= 1
        try:
            attempted(rows.sparkSession, lambda: self._action(rows))
        except AttemptFailed as exc:
            if self._jobs < 0:
                why = f"more of its records fail than {self._most} jobs could find"
                raise NotAlone(why, exc.failed.raised) from exc
            return exc.failed
        return None

    def _spread(self, rows: DataFrame, *, into: int, count: int) -> _Rows:
        frame = checkpointed(rows.repartition(max(1, min(into, count))))
        self._kept.append(frame)
        return _Rows(frame=frame, count=count, spread=into == _SPREAD)


def evaluating(operation: Operation) -> Action:
    """Return what evaluates all that an operation makes of a frame."""
    return lambda rows: metered(operation(rows)).write.format("noop").mode("overwrite").save()


def _from(rank: int, rows: int) -> Column:
    """Return whether a row is one of so many from this rank on."""
    return F.col(_RANK).between(rank, rank + rows - 1)


def _up_to(rows: DataFrame, last: int | None) -> DataFrame:
    return rows if last is None else rows.where(F.col(ID) <= last)
