"""Tasks that a failure or a person stopped, and the records that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.conditions import condition
from arrester.controlplane.queries.conditions.causes import AlertCause, AllLimits
from arrester.controlplane.queries.conditions.condition import (
    Condition,
    Key,
    application_path,
    duration,
    error_path,
    shortened,
    task_path,
)
from arrester.controlplane.queries.failure_history.error_groups import groups_by_key
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.failure_text import cause
from arrester.domain.plural import plural
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    GroupState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)

# Tasks stopped by a muted error are left out.
_STOPPED = f"""
WITH task AS MATERIALIZED (
    SELECT application, pipeline, checkpoint, digest, status, since, held, fingerprint
    FROM task WHERE {sql.STOPPED}
)
SELECT many, application, pipeline, status, fingerprint, tasks, held, since, held_since, first
FROM (
    SELECT application, pipeline, status, fingerprint, count(*) AS tasks, sum(held) AS held,
        min(since) AS since, min(since) FILTER (WHERE held > 0) AS held_since,
        (array_agg(digest ORDER BY since, digest))[1] AS first,
        count(*) OVER of_application AS many, row_number() OVER (
            of_application ORDER BY min(since), pipeline, status, fingerprint
        ) AS place
    FROM task WHERE {live_checkpoints.OF_THREADS} AND NOT EXISTS (
        SELECT FROM error_group WHERE error_group.application = task.application
        AND error_group.fingerprint = task.fingerprint AND error_group.status = 'MUTED')
    GROUP BY 1, 2, 3, 4 WINDOW of_application AS (PARTITION BY application)
) AS stop WHERE place <= %s ORDER BY since, application, pipeline, status, fingerprint
"""
# A task that retries its record keeps its first stop until it holds nothing.
_RETRIED = f"""
SELECT DISTINCT application, pipeline, fingerprint FROM task
WHERE status = 'RUNNING' AND held > 0 AND fingerprint IS NOT NULL
    AND state LIKE '%%"first_stop"%%' AND {live_checkpoints.OF_THREADS}
"""
RETRIED = frozenset({AlertCause.TASKS_PAUSED, AlertCause.TASKS_DEAD})
CAUSES = RETRIED | {AlertCause.TASKS_PAUSED_BY_HAND, AlertCause.RECORDS_HELD}


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a pipeline that one cause has stopped."""

    application: str
    pipeline: str
    status: TaskStatus
    #: The error group of the cause; None: a person paused them, or no record caused it.
    fingerprint: str | None
    tasks: int
    held: int
    since: datetime
    held_since: datetime | None
    #: The one that stopped first.
    first: TaskState
    #: Since when no run uses their checkpoint; None while one does.
    no_run_since: datetime | None = None
    #: How many stops of the application are not read.
    unread: int = 0

    @property
    def path(self) -> str:
        """The path of the task's page, or of the error that stopped several tasks."""
        if self.tasks == 1:
            return task_path(self.first.id)
        if self.fingerprint is not None:
            return error_path(self.application, self.fingerprint)
        query = {"state": self.status.value, "application": self.application}
        return f"/tasks?{urlencode(query)}"

    @property
    def name(self) -> str:
        """The task, or the number of tasks and their pipeline."""
        return (
            self.first.id.printed if self.tasks == 1 else f"{self.tasks:,} tasks of {self.pipeline}"
        )

    def summary(self, why: str) -> str:
        """Return the held records and why the tasks are stopped, in one line."""
        held = f"{self.held:,} held" if self.held else ""
        ended = self.no_run_since and f"no run since {self.no_run_since:%Y-%m-%d %H:%M} UTC"
        return " · ".join(each for each in (held, why, ended) if each)


def read(
    threads: Sequence[ThreadState], instances: Mapping[UUID, InstanceState], *, now: datetime
) -> list[Stop]:
    """Return the stopped tasks of live runs, those of muted errors excepted."""
    rows = sql.rows(_STOPPED, [*live_checkpoints.columns(threads), condition.MOST])
    if not rows:
        return []
    firsts = [first for *_, first in rows]
    tasks = {
        UUID(task.id.digest): task
        for task in row_mapping.TASKS.load_readable("digest = ANY(%s::uuid[])", [firsts])
    }
    checkpoints = live_checkpoints.Checkpoints.of(threads, instances.values())
    return [_stop(row, tasks[row[-1]], checkpoints, now) for row in rows if row[-1] in tasks]


def _stop(
    row: tuple[Any, ...], first: TaskState, checkpoints: live_checkpoints.Checkpoints, now: datetime
) -> Stop:
    many, application, pipeline, status, fingerprint, tasks, held, since, held_since, _ = row
    return Stop(
        application=application,
        pipeline=pipeline,
        status=TaskStatus(status),
        fingerprint=fingerprint,
        tasks=tasks,
        held=int(held),
        since=since or now,
        held_since=held_since,
        first=first,
        no_run_since=checkpoints.no_run_since.get(live_checkpoints.pipeline_key(first.id)),
        unread=max(0, many - condition.MOST),
    )


def find(
    stops: Sequence[Stop], threads: Sequence[ThreadState], limits: AllLimits, *, now: datetime
) -> Iterator[Condition]:
    """Yield the conditions of stopped tasks; those that ended their run are conditions of it."""
    dead = {
        (run.application, run.pipeline, run.failure.fingerprint)
        for run in live(threads)
        if run.status is ThreadStatus.DEAD and run.failure is not None
    }
    stopped = [
        each
        for each in stops
        if each.status is not TaskStatus.DEAD
        or (each.application, each.pipeline, each.fingerprint) not in dead
    ]
    # What is about one task has the failure of the task.
    keys = [
        (each.application, each.fingerprint)
        for each in stopped
        if each.fingerprint and (each.tasks > 1 or each.first.failure is None)
    ]
    groups = groups_by_key(keys)
    for each in stopped:
        yield _by_hand(each) if each.fingerprint is None else _by_failure(each, groups)
    unread = {each.application: each.unread for each in stops if each.unread}
    for application, number in unread.items():
        yield condition.rest(application, "causes that stop tasks", number, now=now)
    yield from _held(stops, limits, now)


def retried(threads: Sequence[ThreadState]) -> Iterator[Key]:
    """Yield the stops that a resume or a new run has ended, while it is unknown whether their
    record passes this time."""
    for application, pipeline, fingerprint in sql.rows(_RETRIED, live_checkpoints.columns(threads)):
        for of in sorted(RETRIED):
            yield of.value, application, f"{pipeline} {fingerprint}"


def _by_failure(stop: Stop, groups: Mapping[tuple[str, str], GroupState]) -> Condition:
    fingerprint, task = stop.fingerprint or "", stop.first
    group = groups.get((stop.application, fingerprint))
    alone = stop.tasks == 1
    name = f"task {task.id.printed}" if alone else plural(stop.tasks, "task")
    where = "" if not alone or task.position is None else f" at position {task.position:,}"
    own = task.failure if alone else None
    shown, why = own or group, task.failure or group
    example = "" if own else ", for example"
    error = f": {shown.exception_class}" if shown else ""
    message = f" {shown.stage}{example}: {shown.message}" if shown else ""
    return Condition(
        cause=AlertCause.TASKS_DEAD if stop.status is TaskStatus.DEAD else AlertCause.TASKS_PAUSED,
        application=stop.application,
        subject=f"{stop.pipeline} {fingerprint}",
        name=stop.name,
        title=f"{stop.application}/{stop.pipeline}: {name} {stop.status}{error}{where}",
        detail=shortened(f"{plural(stop.held, 'record')} held.{message}"),
        summary=shortened(stop.summary("" if why is None else cause(why))),
        path=stop.path,
        count=stop.tasks,
        since=(alone and task.first_stopped) or stop.since,
        pipeline=stop.pipeline,
        fingerprint=fingerprint,
    )


def _by_hand(stop: Stop) -> Condition:
    name = f"task {stop.first.id.printed}" if stop.tasks == 1 else plural(stop.tasks, "task")
    return Condition(
        cause=AlertCause.TASKS_PAUSED_BY_HAND,
        application=stop.application,
        subject=f"{stop.pipeline} {stop.status}",
        name=stop.name,
        title=f"{stop.application}/{stop.pipeline}: {name} {stop.status} by an operator",
        detail=f"{plural(stop.held, 'record')} held.",
        summary=stop.summary("paused by an operator"),
        path=stop.path,
        count=stop.tasks,
        since=stop.since,
        pipeline=stop.pipeline,
    )


def _held(stops: Sequence[Stop], limits: AllLimits, now: datetime) -> Iterator[Condition]:
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
            name=name,
            title=f"{application}/{name}: {records} held for {duration(minutes * 60)} or longer",
            detail=f"The limit is {minutes} min.",
            path=application_path(application),
            count=held,
            since=since,
            pipeline=name,
        )
