"""What pipelines do about failures, and how much of their tolerance is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from controlplane.domain import decide, spending
from controlplane.domain.names import TaskId
from controlplane.domain.states import ApplicationState, InstanceState, ThreadState, ThreadStatus
from controlplane.domain.stream import StreamState
from controlplane.queries import lines, standing
from controlplane.queries.answers import Gauge, PipelinePolicy


def policies(application: str, *, now: datetime) -> tuple[PipelinePolicy, ...]:
    """Return the policy of each pipeline at each checkpoint that the task grid shows, by name."""
    known = standing.threads(application)
    alive = Counter(each.pipeline for each in known if each.status is ThreadStatus.RUNNING)
    return tuple(
        PipelinePolicy(thread=each, gauges=tuple(_gauges(each, now)), twin=alive[each.pipeline] > 1)
        for each in sorted(lines.shown(known), key=lambda each: (each.pipeline, each.checkpoint))
    )


def runs(
    application: str, pipeline: str, instances: Iterable[InstanceState]
) -> tuple[ThreadState, ...]:
    """Return the runs of a pipeline that hear commands: those that a policy is set in."""
    state = StreamState(application=ApplicationState(name=application))
    state.instances.update({each.id: each for each in instances})
    known = standing.threads(application)
    state.threads.update({(each.pipeline, each.checkpoint): each for each in known})
    return tuple(decide.runs(state, pipeline))


def _gauges(thread: ThreadState, now: datetime) -> Iterator[Gauge]:
    policy, spent = thread.policy, thread.spent
    if policy is None:
        return
    tolerance = spending.tolerance_of(policy)
    if tolerance.limit is not None and tolerance.limit >= 0:
        task = _task(thread, spent.task) if spent.total else None
        yield Gauge(limit=tolerance.limit, used=spent.total, task=task)
    if tolerance.rate_limit is not None and tolerance.rate_limit >= 0:
        used = spending.in_window(thread, now=now)
        yield Gauge(
            limit=tolerance.rate_limit,
            used=used,
            window=tolerance.window,
            ends=spending.window_end(policy, now=now),
            task=_task(thread, spent.window_task) if used else None,
        )


def _task(thread: ThreadState, key: str | None) -> TaskId:
    return TaskId(
        application=thread.application,
        pipeline=thread.pipeline,
        checkpoint=thread.checkpoint,
        key=key,
    )
