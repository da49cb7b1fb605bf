"""Run a job over the author's code; after a failure, find the failed task in Spark's status store.

A failed task reports its partition, the number of rows that it had read, and how many rows had left
Python (see `metered`). Spark's exceptions do not contain them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.errors import StepFailed, thrown_of
from arrester.agents.spark.local_checkpoint import PLACE_BITS
from arrester.agents.spark.row_counters import METER
from arrester.controlplane.domain.errors import ArresterError

#: How long to wait for the state of a failed job.
_KNOWN_SECONDS = 5.0

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
    #: Rows that had left Python, if metered.
    made: int = 0
    #: Tasks of the stage that succeeded.
    passed: int = 0

    @property
    def last_read(self) -> int | None:
        """The ID of the last row that the task had read."""
        if self.partition is None or not self.read:
            return None
        return (self.partition << PLACE_BITS) + self.read - 1


class AttemptFailed(ArresterError):
    """A job over the author's code failed. A record may be the cause."""

    def __init__(self, failed: FailedJob) -> None:
        super().__init__(str(failed.raised))
        self.failed = failed


def attempted(spark: SparkSession, action: Callable[[], T]) -> T:
    """Return what `action` returns; raises AttemptFailed for exceptions of the author's code."""
    context, tag = spark.sparkContext, f"arrester-search-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        return action()
    except Exception as exc:  # whatever the author's code, or a crash of it, came to
        if isinstance(exc, StepFailed) or is_cancelled(exc):
            raise
        raise AttemptFailed(_failed(context, tag, exc)) from exc
    finally:
        context.removeJobTag(tag)


def is_cancelled(exc: Exception) -> bool:
    """Whether a job ended because the run is to stop. That is no failure."""
    text = str(exc)
    return "SPARK_JOB_CANCELLED" in text or "java.lang.InterruptedException" in text


def _failed(context: Any, tag: str, raised: Exception) -> FailedJob:
    """Return what Spark reports about a job's first failed task."""
    if not _is_of_a_job(raised):
        return FailedJob(raised=raised, partition=None)
    core = context._jsc.sc()
    deadline = time.monotonic() + _KNOWN_SECONDS
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
        if thrown_of(seen) is not None:
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
                    made=_made(task),
                    passed=int(store.lastStageAttempt(stage).numCompleteTasks()),
                )
    return FailedJob(raised=raised, partition=None)


def _made(task: Any) -> int:
    updates = task.accumulatorUpdates()
    for index in range(updates.size()):
        each = updates.apply(index)
        if each.name() == METER and each.update().isDefined():
            return int(each.update().get())
    return 0
