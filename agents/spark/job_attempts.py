"""Run a job over the author's code; after a failure, find the failed task in Spark's status store.

A failed task reports its partition, the number of rows that it had read, and how many rows had left
Python (see `with_row_counter`). Spark's exceptions do not contain them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.catalyst import analysed, has_classic
from arrester.agents.spark.errors import StepFailed, java_exception_of
from arrester.agents.spark.local_checkpoint import ROW_INDEX_BITS
from arrester.agents.spark.monitoring.log_filter import LogFilter, abort_mark
from arrester.agents.spark.rows_read import row_counter, with_counter
from arrester.agents.spark.try_eval import contains
from arrester.controlplane.domain.errors import ArresterError

#: How long to wait for the state of a failed job.
_STATUS_SECONDS = 5.0
#: The name of the accumulators in Spark's task status.
_ROW_COUNTER = "arrester.returned_rows"

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[[DataFrame], DataFrame]
#: Does something with a DataFrame and may fail.
Action = Callable[[DataFrame], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A failed job; `partition` is that of its first failed task, if known."""

    raised: Exception
    partition: int | None
    #: Rows of the local checkpoint that the task had read; 0: unknown.
    read: int = 0
    #: Rows that had left Python, if they are counted.
    returned: int = 0
    #: Tasks of the stage that succeeded.
    succeeded: int = 0

    @property
    def last_read(self) -> int | None:
        """The ID of the last row that the task had read."""
        if self.partition is None or not self.read:
            return None
        return (self.partition << ROW_INDEX_BITS) + self.read - 1


class AttemptFailed(ArresterError):
    """A job over the author's code failed. A record may be the cause."""

    def __init__(self, failed: FailedJob) -> None:
        super().__init__(str(failed.raised))
        self.failed = failed


def run_job(spark: SparkSession, action: Callable[[], T]) -> T:
    """Return what `action` returns; raises AttemptFailed for exceptions of the author's code."""
    context, tag = spark.sparkContext, f"arrester-search-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        return action()
    except Exception as exc:  # of the author's code, or of a crash of it
        if isinstance(exc, StepFailed) or is_cancelled(exc):
            raise
        raise AttemptFailed(_failed(context, tag, exc)) from exc
    finally:
        context.removeJobTag(tag)


def for_thread(spark: SparkSession, function: Callable[P, T]) -> Callable[P, T]:
    """Return `function` for another thread, whose jobs have the tags of this one."""
    # Before 4.0, tags are local properties, which each thread of this kind has.
    has_tags = has_classic(spark._jvm)
    target: Any = inheritable_thread_target(spark if has_tags else function)
    made: Callable[P, T] = target(function) if has_tags else target
    return made


class JobTag:
    """Marks Spark jobs that can be cancelled together, which Spark then does not log as errors."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = abort_mark()
        self._log_filter = LogFilter(spark)

    @contextmanager
    def set(self) -> Iterator[None]:
        """Mark the jobs of this Python thread inside the block."""
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel the marked jobs that are running."""
        tracker: Any = self._context._jsc.sc().statusTracker()
        own_jobs = set(tracker.getJobIdsForTag(self._tag))
        for job in own_jobs.intersection(tracker.getActiveJobIds()):
            known = tracker.getJobInfo(job)
            if known.isDefined():
                self._log_filter.expect(known.get().stageIds())
        self._context.cancelJobsWithTag(self._tag)


def is_cancelled(exc: Exception) -> bool:
    """Whether a job ended because the run is to stop. That is no failure."""
    text = str(exc)
    return "SPARK_JOB_CANCELLED" in text or "java.lang.InterruptedException" in text


def _failed(context: Any, tag: str, raised: Exception) -> FailedJob:
    """Return what Spark reports about a job's first failed task."""
    if not _is_of_a_job(raised):
        return FailedJob(raised=raised, partition=None)
    core = context._jsc.sc()
    deadline = time.monotonic() + _STATUS_SECONDS
    while time.monotonic() < deadline:
        for job in core.statusTracker().getJobIdsForTag(tag):
            known = core.statusTracker().getJobInfo(job)
            if known.isDefined() and str(known.get().status()) == "FAILED":
                return _first_failed(core.statusStore(), known.get().stageIds(), raised)
        time.sleep(0.01)
    return FailedJob(raised=raised, partition=None)


def _is_of_a_job(raised: Exception) -> bool:
    """Whether a job may have failed. A Python exception on the driver needs none."""
    seen: BaseException | None = raised
    while seen is not None:
        if java_exception_of(seen) is not None:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _first_failed(store: Any, stages: Sequence[int], raised: Exception) -> FailedJob:
    for stage in stages:
        tasks = store.taskList(stage, 0, 100_000)
        for index in range(tasks.size()):
            task = tasks.apply(index)
            if task.status() == "FAILED":
                metrics = task.taskMetrics()
                known = metrics.isDefined()
                return FailedJob(
                    raised=raised,
                    partition=int(task.index()),
                    read=int(metrics.get().inputMetrics().recordsRead()) if known else 0,
                    returned=_returned(task),
                    succeeded=int(store.lastStageAttempt(stage).numCompleteTasks()),
                )
    return FailedJob(raised=raised, partition=None)


def _returned(task: Any) -> int:
    updates = task.accumulatorUpdates()
    for index in range(updates.size()):
        each = updates.apply(index)
        if each.name() == _ROW_COUNTER and each.update().isDefined():
            return int(each.update().get())
    return 0


def with_row_counter(frame: DataFrame) -> DataFrame:
    """Return the same rows, counted where they leave Python.

    A native task reports the row at which it failed. Python receives rows far ahead, as many as
    sockets buffer; only the returned rows show its progress.
    """
    spark = frame.sparkSession
    if not contains(spark, analysed(frame), "PYTHON_UDF"):
        return frame
    counter = row_counter(spark.sparkContext, name=_ROW_COUNTER, counts_failed_tasks=True)
    return with_counter(frame, counter)
