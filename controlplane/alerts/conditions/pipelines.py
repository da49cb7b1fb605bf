"""Stopped tasks and pipelines, held records, used tolerance, replaced threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from uuid import UUID

import msgspec

from arrester.controlplane import queries, store
from arrester.controlplane.alerts.causes import AlertCause, AllLimits
from arrester.controlplane.alerts.conditions.condition import (
    MOST,
    Condition,
    application_path,
    duration,
    error_path,
    plural,
    shortened,
    task_path,
)
from arrester.controlplane.domain.state.live_runs import live
from arrester.controlplane.domain.state.states import (
    GroupState,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)
from arrester.controlplane.queries import sql
from arrester.controlplane.store.column_values import hash_text
from arrester.controlplane.views import live_checkpoints, row_mapping

_HOUR = timedelta(hours=1)
# Tasks stopped by a muted error are left out, as on the Overview.
_STOPPED = f"""
WITH task AS MATERIALIZED (
    SELECT application, pipeline, checkpoint, digest, status, since, held, fingerprint
    FROM task WHERE {sql.STOPPED}
)
SELECT application, pipeline, status, fingerprint, count(*), sum(held), min(since),
    min(since) FILTER (WHERE held > 0), (array_agg(digest ORDER BY since, digest))[1]
FROM task WHERE {live_checkpoints.OF_THREADS} AND NOT EXISTS (
    SELECT FROM error_group WHERE error_group.application = task.application
    AND error_group.fingerprint = task.fingerprint AND error_group.status = 'MUTED')
GROUP BY 1, 2, 3, 4 ORDER BY min(since), 1, 2, 3, 4 LIMIT {MOST}
"""


class _Stop(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a pipeline that one cause has stopped."""

    application: str
    pipeline: str
    status: TaskStatus
    #: None: a person paused them, or no record caused it.
    fingerprint: str | None
    tasks: int
    held: int
    since: datetime
    held_since: datetime | None
    #: The digest of the one that stopped first.
    first: UUID


def find(
    threads: Sequence[ThreadState], limits: AllLimits, *, now: datetime
) -> Iterator[Condition]:
    """Yield the conditions of the live runs of all pipelines."""
    rows = sql.rows(_STOPPED, live_checkpoints.columns(threads))
    stops = [_stop(*row, now=now) for row in rows]
    yield from _stopped_tasks(stops)
    yield from _held(stops, limits, now)
    runs = live(threads)
    yield from _dead_pipelines(runs, stops, now)
    yield from _used_tolerance(runs, limits, now)
    yield from _replaced(runs, limits, now)


def _stop(
    application: str,
    pipeline: str,
    status: str,
    fingerprint: str | None,
    tasks: int,
    held: int,
    since: datetime | None,
    held_since: datetime | None,
    first: UUID,
    *,
    now: datetime,
) -> _Stop:
    """Return a row of _STOPPED."""
    return _Stop(
        application=application,
        pipeline=pipeline,
        status=TaskStatus(status),
        fingerprint=fingerprint,
        tasks=tasks,
        held=int(held),
        since=since or now,
        held_since=held_since,
        first=first,
    )


def _stopped_tasks(stops: Sequence[_Stop]) -> Iterator[Condition]:
    by_failure = [each for each in stops if each.fingerprint is not None]
    keys = [(each.application, each.fingerprint or "") for each in by_failure]
    groups = queries.groups_by_key(keys)
    tasks = {
        task.id.digest: task
        for task in row_mapping.TASKS.load_readable(
            "digest = ANY(%s::uuid[])", [[each.first for each in by_failure]]
        )
    }
    for each in by_failure:
        task = tasks.get(each.first.hex)
        if task is not None:
            yield _stopped(each, task, groups)


def _stopped(
    stop: _Stop, task: TaskState, groups: Mapping[tuple[str, str], GroupState]
) -> Condition:
    fingerprint = stop.fingerprint or ""
    group = groups.get((stop.application, fingerprint))
    cause = AlertCause.TASKS_DEAD if stop.status is TaskStatus.DEAD else AlertCause.TASKS_PAUSED
    alone = stop.tasks == 1
    name = f"task {task.id.printed}" if alone else plural(stop.tasks, "task")
    error = "" if group is None else f": {group.exception_class}"
    where = "" if not alone or task.position is None else f" at position {task.position:,}"
    if alone and task.failure is not None:
        message = f" {task.failure.stage}: {task.failure.message}"
    else:
        message = "" if group is None else f" {group.stage}, for example: {group.message}"
    return Condition(
        cause=cause,
        application=stop.application,
        subject=f"{stop.pipeline} {fingerprint}",
        title=f"{stop.application}/{stop.pipeline}: {name} {stop.status}{error}{where}",
        detail=shortened(f"{plural(stop.held, 'record')} held.{message}"),
        path=task_path(task.id) if alone else error_path(stop.application, fingerprint),
        count=stop.tasks,
        since=stop.since,
        pipeline=stop.pipeline,
        fingerprint=fingerprint,
    )


def _held(stops: Sequence[_Stop], limits: AllLimits, now: datetime) -> Iterator[Condition]:
    pipeline = attrgetter("application", "pipeline")
    for (application, name), group in groupby(sorted(stops, key=pipeline), key=pipeline):
        each = [*group]
        minutes = limits.of(application).held_minutes
        since = min((stop.held_since for stop in each if stop.held_since), default=None)
        if minutes is None or since is None or now - since < timedelta(minutes=minutes):
            continue
        held = sum(stop.held for stop in each)
        records = plural(held, "record")
        yield Condition(
            cause=AlertCause.RECORDS_HELD,
            application=application,
            subject=name,
            title=f"{application}/{name}: {records} held for {duration(minutes * 60)} or longer",
            detail=f"The limit is {minutes} min.",
            path=application_path(application),
            count=held,
            since=since,
            pipeline=name,
        )


def _dead_pipelines(
    runs: Sequence[ThreadState], stops: Sequence[_Stop], now: datetime
) -> Iterator[Condition]:
    """Yield the runs that ended with a failure which no DEAD task has reported."""
    reported = {
        (each.application, each.pipeline, each.fingerprint)
        for each in stops
        if each.status is TaskStatus.DEAD
    }
    for run in runs:
        if run.status is not ThreadStatus.DEAD or run.failure is None:
            continue
        if (run.application, run.pipeline, run.failure.fingerprint) in reported:
            continue
        yield Condition(
            cause=AlertCause.PIPELINE_DEAD,
            application=run.application,
            subject=run.pipeline,
            title=f"{run.application}/{run.pipeline}: DEAD: {run.failure.exception_class}",
            detail=shortened(f"{run.failure.stage}: {run.failure.message}"),
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
        for gauge in queries.run_gauges(run, now=now):
            # A limit of 0 has no share.
            if not gauge.limit or gauge.share * 100 < percent:
                continue
            period = "in this run" if gauge.window is None else "in the window"
            yield Condition(
                cause=AlertCause.TOLERANCE_USED,
                application=run.application,
                subject=f"{run.pipeline} {period}",
                title=f"{run.application}/{run.pipeline}: {gauge.used:,} of {gauge.limit:,}"
                f" tolerated failures used {period}",
                detail="At the limit the next failed record is answered by FAIL.",
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
                    title=f"{application}/{run.pipeline}: thread replaced"
                    f" {plural(count, 'time')} in the last hour",
                    detail=shortened(run.reason or ""),
                    path=application_path(application),
                    count=count,
                    since=now,
                    pipeline=run.pipeline,
                )
