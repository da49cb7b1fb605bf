"""Which records make an operation fail: it is run over ever fewer of them, until one is left.

A failed Spark task names its partition and how many rows it had read: the last of these is tried
alone, and in the JVM it is the guilty one. To Python rows are fed ahead; there the partition is
spread out and run again. Where the partition says nothing, eighths are tried side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import uuid4

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from agents.problem import StepFailed
from controlplane.domain.errors import ArresterError

#: Numbers the rows that are searched.
ID: Final = "__arrester_id"
#: So many jobs may a search of one micro-batch and step take.
JOBS: Final = 400
#: What `monotonically_increasing_id` numbers the rows of a partition with.
_ROW_BITS = 33
_SPREAD = 128
_EIGHTHS = 8
_AT_ONCE = 4
#: How long the state of a failed job may take to be known.
_KNOWN_SECONDS = 5.0

T = TypeVar("T")
Operation = Callable[[DataFrame], DataFrame]


class NotAlone(ArresterError):
    """An operation fails, and no record makes it fail alone: blame the operation, no record."""

    def __init__(self, why: str, raised: Exception, *, recordless: bool = False) -> None:
        super().__init__(why)
        self.raised = raised
        #: It was given no records.
        self.recordless = recordless


@dataclass(frozen=True, slots=True, kw_only=True)
class Guilty:
    """A row that makes the operation fail alone."""

    id: int
    raised: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A job failed; `partition` is that of its first failed task, where that is known."""

    raised: Exception
    partition: int | None
    #: How many rows of the local checkpoint that task had read; 0: that is not known.
    read: int = 0

    @property
    def last_read(self) -> int | None:
        """The ID of the row that the task had read last."""
        if self.partition is None or not self.read:
            return None
        return (self.partition << _ROW_BITS) + self.read - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    frame: DataFrame
    count: int
    #: Whether they are in as many partitions as they may be.
    spread: bool = False


def attempted(spark: SparkSession, action: Callable[[], T]) -> T:
    """Return what `action` returns; raises AttemptFailed for what the author's code raised."""
    context, tag = spark.sparkContext, f"arrester-search-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        return action()
    except Exception as exc:  # whatever the author's code, or a crash of it, came to
        if isinstance(exc, StepFailed) or is_cancelled(exc):
            raise
        partition, read = _failed_task(context, tag)
        failed = Failed(raised=exc, partition=partition, read=read)
        raise AttemptFailed(failed) from exc
    finally:
        context.removeJobTag(tag)


class AttemptFailed(ArresterError):
    """A job over the author's code failed; records may be to blame."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed.raised))
        self.failed = failed


class Search:
    """Finds guilty rows of one micro-batch and step, each time one; the number of jobs is bound."""

    def __init__(self, operation: Operation, *, jobs: int = JOBS) -> None:
        self._operation = operation
        self._jobs = jobs
        self._kept: list[DataFrame] = []
        self._tried_without = False

    def one(self, rows: DataFrame, failed: Failed) -> Guilty:
        """Return one guilty row of a local checkpoint's rows, with a column ID, that failed.

        Raises NotAlone where no record is to blame, or there are too many of them.
        """
        if not self._tried_without:
            self._tried_without = True
            # Workers that do not start, a static table that cannot be read: a single record would
            # fail alone, too.
            without = self._run(rows.where(F.col(ID) < 0).coalesce(1))
            if without is not None:
                why = "it fails without any record, too"
                raise NotAlone(why, without.raised, recordless=True)
        last = failed.last_read
        alone = None if last is None else self._run(rows.where(F.col(ID) == last))
        if last is not None and alone is not None:
            return Guilty(id=last, raised=alone.raised)
        try:
            if failed.partition is not None:
                hinted = rows.where(F.spark_partition_id() == failed.partition)
                hinted = hinted if last is None else hinted.where(F.col(ID) <= last)
                found = self._spread_and_run(hinted)
                if found is not None:
                    return self._within(*found)
            return self._within(_Rows(frame=rows, count=rows.count()), failed)
        finally:
            release(self._kept)
            self._kept = []

    def _within(self, rows: _Rows, failed: Failed) -> Guilty:
        """Return one guilty row of some that fail together."""
        if rows.count == 1:
            return Guilty(id=int(rows.frame.select(ID).collect()[0][0]), raised=failed.raised)
        if failed.partition is not None:
            hinted = rows.frame.where(F.spark_partition_id() == failed.partition)
            found = self._spread_and_run(hinted)
            # Once they are spread, each hint leaves less of them.
            if found is not None and (found[0].count < rows.count or not rows.spread):
                return self._within(*found)
        return self._eighths(rows, failed)

    def _spread_and_run(self, rows: DataFrame) -> tuple[_Rows, Failed] | None:
        """Return the rows in many partitions with how they fail, None when they pass."""
        spread = self._spread(rows, into=_SPREAD)
        again = self._run(spread.frame) if spread.count else None
        return None if again is None else (spread, again)

    def _eighths(self, rows: _Rows, failed: Failed) -> Guilty:
        spread = self._spread(rows.frame, into=_EIGHTHS)
        parts = range(min(_EIGHTHS, spread.count))
        slices = [spread.frame.where(F.spark_partition_id() == n) for n in parts]
        # Each with properties of its own: tags are among them.
        runs = [inheritable_thread_target(rows.frame.sparkSession)(self._run) for _ in slices]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tried = list(pool.map(lambda run, each: run(each), runs, slices))
        for each, again in zip(slices, tried, strict=True):
            if again is not None:
                return self._within(_Rows(frame=each, count=each.count()), again)
        raise NotAlone("no single record makes it fail alone", failed.raised)

    def _run(self, rows: DataFrame) -> Failed | None:
        """Run the operation over `rows`, for its failure only."""
        self._jobs -= 1
        try:
            attempted(rows.sparkSession, lambda: self._noop(rows))
        except AttemptFailed as exc:
            if self._jobs < 0:
                why = f"more of its records fail than {JOBS} jobs could find"
                raise NotAlone(why, exc.failed.raised) from exc
            return exc.failed
        return None

    def _noop(self, rows: DataFrame) -> None:
        self._operation(rows).write.format("noop").mode("overwrite").save()

    def _spread(self, rows: DataFrame, *, into: int) -> _Rows:
        count = rows.count()
        frame = rows.repartition(max(1, min(into, count))).localCheckpoint(eager=True)
        self._kept.append(frame)
        return _Rows(frame=frame, count=count, spread=into == _SPREAD)


def numbered(frame: DataFrame) -> DataFrame:
    """Return a local checkpoint's rows with their numbers, the same ones whenever it is asked."""
    return frame.withColumn(ID, F.monotonically_increasing_id())


def release(frames: Sequence[DataFrame]) -> None:
    """Give the blocks of local checkpoints back."""
    for frame in frames:
        plan: Any = frame._jdf.queryExecution().analyzed()
        plan.rdd().unpersist(False)


def is_cancelled(exc: Exception) -> bool:
    """Whether a job ended because the run is to stop, which is nobody's failure."""
    text = str(exc)
    return "SPARK_JOB_CANCELLED" in text or "java.lang.InterruptedException" in text


def _failed_task(context: Any, tag: str) -> tuple[int | None, int]:
    """Return the partition of a job's first failed task, and how many cached rows it had read.

    Spark keeps this for its own pages, and names it in no exception. (None, 0): it is not known.
    """
    core = context._jsc.sc()
    deadline = time.monotonic() + _KNOWN_SECONDS
    while time.monotonic() < deadline:
        for job in core.statusTracker().getJobIdsForTag(tag):
            known = core.statusTracker().getJobInfo(job)
            if known.isDefined() and str(known.get().status()) == "FAILED":
                return _first_failed(core.statusStore(), known.get().stageIds())
        time.sleep(0.01)
    return None, 0


def _first_failed(store: Any, stages: Sequence[int]) -> tuple[int | None, int]:
    for stage in stages:
        tasks = store.taskList(stage, 0, 100_000)
        for index in range(tasks.size()):
            task = tasks.apply(index)
            if task.status() == "FAILED":
                metrics = task.taskMetrics()
                known = metrics.isDefined()
                read = int(metrics.get().inputMetrics().recordsRead()) if known else 0
                return int(task.index()), read
    return None, 0
