"""The error policies of pipelines, and their tolerance usage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.views import live_checkpoints
from arrester.domain.error_policy.tolerance import Window
from arrester.domain.events import PipelineDescribed
from arrester.domain.identity.names import TaskId
from arrester.domain.state import tolerance_usage
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    TaskState,
    ThreadState,
    ThreadStatus,
)


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """The used share of a tolerance limit, for the task that has used most."""

    limit: int
    #: Records that the run has left out, in total or in the current window.
    used: int
    #: The window of the tolerance; None: the whole run.
    window: Window | None = None
    #: The end of the window.
    ends: datetime | None = None
    #: The task of these records; None while nothing is used.
    task: TaskId | None = None

    @property
    def share(self) -> float:
        """The used share of the limit, at most 1."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0


class PipelinePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The error policy of a pipeline on a checkpoint, if `thread.policy` is reported."""

    thread: ThreadState
    #: The use of each limit that can be reached, for the run and for the window.
    gauges: tuple[Gauge, ...] = ()
    #: An older checkpoint of the same pipeline is RUNNING too: probably a mistake.
    has_other_checkpoint: bool = False


def policies(
    application: str, *, now: datetime, pipeline: str | None = None
) -> tuple[PipelinePolicy, ...]:
    """Return the policy of each pipeline on its live checkpoint, by name, or that of one."""
    threads = task_grid.threads(application)
    doubled = {each.pipeline for each in live_checkpoints.running_on_others(threads)}
    return tuple(
        PipelinePolicy(
            thread=each,
            gauges=run_gauges(each, now=now),
            has_other_checkpoint=each.pipeline in doubled,
        )
        for each in sorted(live(threads), key=lambda each: (each.pipeline, each.checkpoint))
        if pipeline in (None, each.pipeline)
    )


def task_gauges(task: TaskState, thread: ThreadState | None, *, now: datetime) -> tuple[Gauge, ...]:
    """Return how much of each limit a task has used in the current run; empty without a run."""
    if thread is None or thread.status is not ThreadStatus.RUNNING or thread.policy is None:
        return ()
    used = tolerance_usage.of_task(task, thread, now=now)
    return tuple(_of_limits(thread.policy, used, (task.id, task.id), now))


def run_gauges(thread: ThreadState, *, now: datetime) -> tuple[Gauge, ...]:
    """Return how much of each limit the tasks of a run have used; empty without a policy."""
    if thread.policy is None:
        return ()
    most = thread.spent
    used = tolerance_usage.Used(most.total, tolerance_usage.in_window(thread, now=now))
    tasks = _task(thread, most.task), _task(thread, most.window_task)
    return tuple(_of_limits(thread.policy, used, tasks, now))


def _of_limits(
    policy: PipelineDescribed,
    used: tolerance_usage.Used,
    tasks: tuple[TaskId, TaskId],
    now: datetime,
) -> Iterator[Gauge]:
    """Yield a gauge for each limit that can be reached: of the run, then of the window."""
    tolerance = tolerance_usage.tolerance_of(policy)
    if tolerance.limit is not None and tolerance.limit >= 0:
        task = tasks[0] if used.total else None
        yield Gauge(limit=tolerance.limit, used=used.total, task=task)
    if tolerance.rate_limit is not None and tolerance.rate_limit >= 0:
        yield Gauge(
            limit=tolerance.rate_limit,
            used=used.in_window,
            window=tolerance.window,
            ends=tolerance_usage.window_end(policy, now=now),
            task=tasks[1] if used.in_window else None,
        )


def _task(thread: ThreadState, key: str | None) -> TaskId:
    return TaskId(
        application=thread.application,
        pipeline=thread.pipeline,
        checkpoint=thread.checkpoint,
        key=key,
    )
