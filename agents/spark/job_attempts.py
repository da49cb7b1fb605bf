"""Run jobs over the author's code, and find their failed tasks.

Spark's status has the partition of a failed task, and the number of rows that it had read and
returned from Python (see `with_row_counter`). Spark's exceptions do not contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.jvm.active_session import activate
from arrester.agents.spark.jvm.job_status import FailedJob, failed_job, running_stages
from arrester.agents.spark.jvm.log_filter import LogFilter, abort_mark
from arrester.agents.spark.jvm.plans.catalyst import analysed_plan, has_classic, has_python_function
from arrester.agents.spark.jvm.plans.row_counter import RowCounter
from arrester.domain.errors import ArresterError

#: The name of the accumulator of returned rows in Spark's task status.
_ROW_COUNTER = "arrester.returned_rows"

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[[DataFrame], DataFrame]
#: A call for a DataFrame that may fail.
Action = Callable[[DataFrame], object]


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
    except Exception as exc:  # the author's code may raise anything, or crash
        if isinstance(exc, StepFailed) or is_cancelled(exc):
            raise
        raise AttemptFailed(failed_job(context, tag, exc, counter=_ROW_COUNTER)) from exc
    finally:
        context.removeJobTag(tag)


def for_thread(spark: SparkSession, function: Callable[P, T]) -> Callable[P, T]:
    """Return `function` for another thread, which has the session and whose jobs have the tags."""

    def with_session(*args: P.args, **kwargs: P.kwargs) -> T:
        activate(spark)
        return function(*args, **kwargs)

    # Before 4.0, tags are local properties, which each thread of this kind has.
    takes_session = has_classic(spark)
    target: Any = inheritable_thread_target(spark if takes_session else with_session)
    inheriting: Callable[P, T] = target(with_session) if takes_session else target
    return inheriting


class JobTag:
    """A tag of Spark jobs that can be cancelled together. Spark does not log that as errors."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = abort_mark()
        self._log_filter = LogFilter(spark)

    @contextmanager
    def set(self) -> Iterator[None]:
        """Tag the jobs of this Python thread inside the block."""
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)

    def cancel(self) -> None:
        """Cancel the tagged jobs that are running."""
        self._log_filter.expect(running_stages(self._context, self._tag))
        self._context.cancelJobsWithTag(self._tag)


def is_cancelled(exc: Exception) -> bool:
    """Whether a job ended because the run is to stop, which is no failure."""
    text = str(exc)
    return "SPARK_JOB_CANCELLED" in text or "java.lang.InterruptedException" in text


def with_row_counter(frame: DataFrame) -> DataFrame:
    """Return the same rows, counted where they leave Python.

    The rows that a native task had read show where it failed. Python receives rows far ahead, as
    many as sockets buffer: only the returned rows show its progress.
    """
    spark = frame.sparkSession
    if not has_python_function(spark, analysed_plan(frame)):
        return frame
    counter = RowCounter(spark, name=_ROW_COUNTER, counts_failed_tasks=True)
    return counter.counted(frame)
