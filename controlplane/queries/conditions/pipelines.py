"""Dead runs, paused pipelines, used tolerance, replaced threads, and two checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from arrester.controlplane import store
from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    Key,
    application_path,
    error_path,
    pipeline_path,
    shortened,
)
from arrester.controlplane.queries.conditions.stops import Stop
from arrester.controlplane.queries.current_state import policies
from arrester.controlplane.queries.failure_history.error_groups import groups_by_key
from arrester.controlplane.queries.flow.measured import measures_flow, newest
from arrester.controlplane.store.column_values import hash_text
from arrester.controlplane.views import live_checkpoints
from arrester.domain.failure_text import cause
from arrester.domain.plural import plural
from arrester.domain.state.live_runs import RunStatus, live, run_status
from arrester.domain.state.states import (
    GroupState,
    GroupStatus,
    InstanceState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)

_HOUR = timedelta(hours=1)
CAUSES = frozenset(
    {
        AlertCause.PIPELINE_DEAD,
        AlertCause.PIPELINE_PAUSED,
        AlertCause.TOLERANCE_USED,
        AlertCause.THREAD_REPLACED,
        AlertCause.TWO_CHECKPOINTS,
    }
)
RESTARTED = frozenset({AlertCause.PIPELINE_DEAD})


def find(
    threads: Sequence[ThreadState], stops: Sequence[Stop], limits: AllLimits, *, now: datetime
) -> Iterator[Condition]:
    """Yield the conditions of the live runs of all pipelines."""
    runs = live(threads)
    yield from _dead(runs, stops, now)
    yield from _paused(runs)
    yield from _used_tolerance(runs, limits, now)
    yield from _replaced(runs, limits, now)
    yield from _on_two_checkpoints(threads, now)


def restarted(
    threads: Sequence[ThreadState], instances: Mapping[UUID, InstanceState]
) -> Iterator[Key]:
    """Yield the runs that follow an earlier one and have completed no micro-batch yet: the record
    that ended the earlier one may end this one. Of an older agent nothing is known."""
    runs = [each for each in live(threads) if each.epoch > 1]
    runs = [
        each
        for each in runs
        if run_status(each, instances) is RunStatus.RUNNING and measures_flow(each, instances)
    ]
    known = newest(live_checkpoints.columns_of(runs), instances.values())
    for run in runs:
        flow = known.get(live_checkpoints.pipeline_key(run))
        last = None if flow is None else flow.last_batch_at
        if last is not None and run.since is not None and last < run.since:
            yield AlertCause.PIPELINE_DEAD.value, run.application, run.pipeline


def _dead(runs: Sequence[ThreadState], stops: Sequence[Stop], now: datetime) -> Iterator[Condition]:
    """Yield the runs that ended with a failure, of a record or without one."""
    by_task = {
        (each.application, each.pipeline, each.fingerprint): each
        for each in stops
        if each.status is TaskStatus.DEAD
    }
    dead = [
        (run, run.failure)
        for run in runs
        if run.status is ThreadStatus.DEAD and run.failure is not None
    ]
    groups = groups_by_key([(run.application, failure.fingerprint) for run, failure in dead])
    for run, failure in dead:
        fingerprint = failure.fingerprint
        group = groups.get((run.application, fingerprint))
        if group is not None and _is_settled(group, run):
            continue
        stop = by_task.get((run.application, run.pipeline, fingerprint))
        path = application_path(run.application, "timeline")
        if stop is not None:
            path = stop.path
        elif group is not None:
            path = error_path(run.application, fingerprint)
        yield Condition(
            cause=AlertCause.PIPELINE_DEAD,
            application=run.application,
            subject=run.pipeline,
            name=run.pipeline,
            title=f"{run.application}/{run.pipeline}: DEAD: {failure.exception_class}",
            detail=shortened(f"{failure.stage}: {failure.message}"),
            summary=shortened(cause(failure) if stop is None else stop.summary(cause(failure))),
            path=path,
            since=run.since or now,
            pipeline=run.pipeline,
            fingerprint=fingerprint,
        )


def _is_settled(group: GroupState, run: ThreadState) -> bool:
    """Whether a person muted or resolved the error since it ended the run, which may be the last
    one of its pipeline. An earlier mute was about records only."""
    if group.status not in (GroupStatus.MUTED, GroupStatus.RESOLVED):
        return False
    return group.since is not None and run.since is not None and group.since >= run.since


def _paused(runs: Sequence[ThreadState]) -> Iterator[Condition]:
    """Yield the pipelines that a person paused, also those whose next run starts PAUSED."""
    for run in runs:
        pause = run.paused
        if pause is None:
            continue
        by = f" by {pause.actor}" if pause.actor else ""
        until = f" until {pause.until:%Y-%m-%d %H:%M:%S} UTC" if pause.until else ""
        why = f": {pause.reason}" if pause.reason else ""
        yield Condition(
            cause=AlertCause.PIPELINE_PAUSED,
            application=run.application,
            subject=run.pipeline,
            name=run.pipeline,
            title=f"{run.application}/{run.pipeline}: PAUSED{by}{until}",
            detail=shortened(pause.reason or ""),
            summary=shortened(f"paused{by}{until}{why}"),
            path=pipeline_path(run.application, run.pipeline),
            since=pause.since,
            pipeline=run.pipeline,
        )


def _on_two_checkpoints(threads: Sequence[ThreadState], now: datetime) -> Iterator[Condition]:
    for run in live_checkpoints.running_on_others(threads):
        yield Condition(
            cause=AlertCause.TWO_CHECKPOINTS,
            application=run.application,
            subject=run.pipeline,
            name=run.pipeline,
            title=f"{run.application}/{run.pipeline}: runs on two checkpoints",
            detail="It also runs on an older checkpoint, whose tasks are not counted. Stop one of"
            " the runs.",
            path=application_path(run.application),
            since=run.since or now,
            pipeline=run.pipeline,
        )


def _used_tolerance(
    runs: Sequence[ThreadState], limits: AllLimits, now: datetime
) -> Iterator[Condition]:
    for run in runs:
        percent = limits.of(run.application).tolerance_percent
        if percent is None or run.status is not ThreadStatus.RUNNING:
            continue
        for gauge in policies.run_gauges(run, now=now):
            # A limit of 0 has no share.
            if not gauge.limit or gauge.share * 100 < percent:
                continue
            period = "in this run" if gauge.window is None else "in the window"
            yield Condition(
                cause=AlertCause.TOLERANCE_USED,
                application=run.application,
                subject=f"{run.pipeline} {period}",
                name=run.pipeline,
                title=f"{run.application}/{run.pipeline}: {gauge.used:,} of {gauge.limit:,}"
                f" tolerated failures used {period}",
                detail="At the limit the next failed record is answered by FAIL.",
                summary=f"{gauge.used:,} of {gauge.limit:,} tolerated failures used {period}",
                path=application_path(run.application, "policy"),
                count=gauge.used,
                since=now,
                pipeline=run.pipeline,
            )


def _replaced(runs: Sequence[ThreadState], limits: AllLimits, now: datetime) -> Iterator[Condition]:
    # A replaced run is young and not the first one; others need no look into the log.
    young = [each for each in runs if each.epoch > 1 and each.since and now - each.since < _HOUR]
    by_application = attrgetter("application")
    for application, group in groupby(sorted(young, key=by_application), key=by_application):
        limit = limits.of(application).replaced_per_hour
        if limit is None:
            continue
        counts = store.count_replaced_threads(application, since=now - _HOUR)
        for run in group:
            count = counts.get(hash_text(run.pipeline), 0)
            if count >= limit:
                yield Condition(
                    cause=AlertCause.THREAD_REPLACED,
                    application=application,
                    subject=run.pipeline,
                    name=run.pipeline,
                    title=f"{application}/{run.pipeline}: thread replaced"
                    f" {plural(count, 'time')} in the last hour",
                    detail=shortened(run.reason or ""),
                    summary=f"replaced {plural(count, 'time')} in the last hour",
                    path=application_path(application),
                    count=count,
                    since=now,
                    pipeline=run.pipeline,
                )
