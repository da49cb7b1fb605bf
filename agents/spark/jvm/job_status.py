"""Jobs with a tag, as Spark's status store shows them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark import SparkContext
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.causes import java_exception_of
from arrester.agents.spark.jvm.plans.catalyst import to_list
from arrester.agents.spark.jvm.stored_rows import ROW_INDEX_BITS
from arrester.domain.error_policy.exception_identity import linked

#: How long to wait for the state of a failed job.
_FAILED_SECONDS = 5.0
_FAILED_TICK_SECONDS = 0.01
#: How long to wait until the status store has the end of finished jobs.
_ENDED_SECONDS = 0.1
_ENDED_TICK_SECONDS = 0.002
_ENDED = frozenset({"SUCCEEDED", "FAILED"})
#: The largest number of failed tasks of a stage that are read.
_FAILED_TASKS = 10_000
#: The largest number of tasks of a stage whose accumulators are read.
_TASKS = 100_000
_STATUS_API = "org.apache.spark.status.api.v1"
#: Operators and actions that may end before the last row of their input.
_STOPS_EARLY = re.compile(
    r"\b(?:(?:Local|Global|Collect)Limit|CollectTail|isEmpty|to(?:Local|Python)Iterator)\b"
)


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


def failed_job(context: Any, tag: str, raised: Exception, *, counter: str) -> FailedJob:
    """Return what Spark's status has about the job of a tag that failed.

    `counter` is the name of the accumulator that counts returned rows.
    """
    if not _is_of_spark(raised):
        return FailedJob(raised=raised, partition=None)
    core = context._jsc.sc()
    deadline = time.monotonic() + _FAILED_SECONDS
    while time.monotonic() < deadline:
        for job in core.statusTracker().getJobIdsForTag(tag):
            status = core.statusTracker().getJobInfo(job)
            if status.isDefined() and str(status.get().status()) == "FAILED":
                stages = status.get().stageIds()
                stage, tasks = _failed_tasks(context._jvm, core.statusStore(), stages)
                return _first_failed(stage, tasks, raised, counter)
        time.sleep(_FAILED_TICK_SECONDS)
    return FailedJob(raised=raised, partition=None)


def _is_of_spark(raised: Exception) -> bool:
    """Whether an exception may be that of a job: it, or one in its chain, is Java's."""
    return any(java_exception_of(link) is not None for link in linked(raised))


def _failed_tasks(jvm: Any, store: Any, stages: Sequence[int]) -> tuple[Any, Sequence[Any]]:
    """Return the first stage with failed tasks, and those tasks."""
    by_id = jvm_class(jvm, f"{_STATUS_API}.TaskSorting").ID
    failed = jvm_class(jvm, "java.util.List").of(jvm_class(jvm, f"{_STATUS_API}.TaskStatus").FAILED)
    for stage in _retained(store, stages):
        tasks = to_list(
            store.taskList(stage.stageId(), stage.attemptId(), 0, _FAILED_TASKS, by_id, failed)
        )
        if tasks:
            return stage, tasks
    return None, ()


def _retained(store: Any, stages: Iterable[int]) -> Iterator[Any]:
    """Generate the last attempts of those stages that the store retains.

    From 1,000 stages on (`spark.ui.retainedStages`), it drops skipped ones at once.
    """
    for number in stages:
        try:
            yield store.lastStageAttempt(number)
        except Py4JJavaError as exc:
            if exc.java_exception.getClass().getSimpleName() != "NoSuchElementException":
                raise


def _first_failed(stage: Any, tasks: Sequence[Any], raised: Exception, counter: str) -> FailedJob:
    if not tasks:
        return FailedJob(raised=raised, partition=None)
    task = ending_task(tasks)
    metrics = task.taskMetrics()
    return FailedJob(
        raised=raised,
        partition=int(task.index()),
        read=int(metrics.get().inputMetrics().recordsRead()) if metrics.isDefined() else 0,
        returned=_accumulated(task, counter),
        succeeded=int(stage.numCompleteTasks()),
    )


def ending_task(failed: Sequence[Any]) -> Any:
    """Return the failed task whose exception ended the stage: another may fail just after it.

    A stage ends with the first task that has used all its attempts.
    """
    return min(failed, key=lambda task: (-int(task.attempt()), _end_ms(task)))


def _end_ms(task: Any) -> int:
    duration = task.duration()
    return int(task.launchTime().getTime()) + int(duration.get() if duration.isDefined() else 0)


def _accumulated(task: Any, name: str) -> int:
    """Return a task's update of the accumulator of a name."""
    updates = task.accumulatorUpdates()
    for index in range(updates.size()):
        accumulator = updates.apply(index)
        if accumulator.name() == name and accumulator.update().isDefined():
            return int(accumulator.update().get())
    return 0


def running_stages(context: SparkContext, tag: str) -> list[int]:
    """Return the stages of running jobs with a tag."""
    java_context: Any = context._jsc
    tracker = java_context.sc().statusTracker()
    jobs = set(tracker.getJobIdsForTag(tag)).intersection(tracker.getActiveJobIds())
    statuses = [tracker.getJobInfo(job) for job in jobs]
    return [stage for status in statuses if status.isDefined() for stage in status.get().stageIds()]


def read_to_the_end(spark: SparkSession, tag: str) -> bool:
    """Whether the status shows that each job of a tag succeeded and read its input to the end."""
    context: Any = spark.sparkContext
    session: Any = spark._jsparkSession
    executions = _sql_executions(context._jsc.sc(), tag)
    store = session.sharedState().statusStore()
    return bool(executions) and all(
        number is not None and _reads_to_the_end(store.execution(number)) for number in executions
    )


def _sql_executions(core: Any, tag: str) -> set[int | None]:
    """Return the SQL executions of the jobs of a tag.

    None represents a job without an SQL execution, and one that did not succeed.
    """
    jobs = _ended_jobs(core, tag)
    if {str(job._1().status()) for job in jobs} != {"SUCCEEDED"}:
        return {None}
    return {job._2().get() if job._2().isDefined() else None for job in jobs}


def _ended_jobs(core: Any, tag: str) -> list[Any]:
    """Return the jobs of a tag with their SQL executions, if possible when all have ended."""
    deadline = time.monotonic() + _ENDED_SECONDS
    while True:
        numbers = core.statusTracker().getJobIdsForTag(tag)
        jobs = [core.statusStore().jobWithAssociatedSql(number) for number in numbers]
        states = {str(job._1().status()) for job in jobs}
        # The store gets the end of a job after its caller.
        if (jobs and states <= _ENDED) or time.monotonic() > deadline:
            return jobs
        time.sleep(_ENDED_TICK_SECONDS)


def accumulated_by_stage(spark: SparkSession, tag: str, counter: str) -> list[int]:
    """Return what each stage of the jobs of a tag added to the accumulator of a name.

    Stages that added nothing are left out.
    """
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    jobs = [job._1() for job in _ended_jobs(context._jsc.sc(), tag)]
    numbers = {int(number) for job in jobs for number in to_list(job.stageIds())}
    stages = _retained(store, sorted(numbers))
    counting = [(stage, _total(stage, counter)) for stage in stages]
    counting = [(stage, total) for stage, total in counting if total]
    if len(counting) == 1:
        return [counting[0][1]]
    # The status of a stage has the sum over all stages until then.
    return [_accumulated_in(context._jvm, store, stage, counter) for stage, _ in counting]


def _total(stage: Any, name: str) -> int:
    """Return the value of the accumulator of a name at the end of a stage; 0: it has none."""
    for update in to_list(stage.accumulatorUpdates()):
        if update.name() == name:
            return int(update.value())
    return 0


def _accumulated_in(jvm: Any, store: Any, stage: Any, name: str) -> int:
    """Return what the successful tasks of a stage added to the accumulator of a name."""
    by_id = jvm_class(jvm, f"{_STATUS_API}.TaskSorting").ID
    success = jvm_class(jvm, f"{_STATUS_API}.TaskStatus").SUCCESS
    ended = jvm_class(jvm, "java.util.List").of(success)
    tasks = store.taskList(stage.stageId(), stage.attemptId(), 0, _TASKS, by_id, ended)
    return sum(_accumulated(task, name) for task in to_list(tasks))


def _reads_to_the_end(execution: Any) -> bool:
    """Whether no operator of an SQL execution, nor its action, may end before the last row."""
    if not execution.isDefined():
        return False
    data = execution.get()
    text = f"{data.details()} {data.physicalPlanDescription()}"
    return _STOPS_EARLY.search(text) is None
