"""Summaries of the current state: the overview, applications in a line, and the task grid.

Each needs a fixed number of statements for any number of applications, pipelines and tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, QuerySet, Sum

from arrester.controlplane import models
from arrester.controlplane.domain.errors import NotFound
from arrester.controlplane.domain.state.states import (
    ApplicationState,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.current_state import live_runs, states
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.results import (
    Brief,
    Lag,
    Overview,
    Page,
    Pipeline,
    Stop,
    Summary,
)
from arrester.controlplane.views import row_mapping

#: Rows of each list of the overview, and tasks of one cause that are listed separately.
GLANCE, FEW = 20, 3
#: Whether a task is stopped by a muted error.
_MUTED = """EXISTS (SELECT FROM error_group WHERE error_group.application = task.application
    AND error_group.fingerprint = task.fingerprint AND error_group.status = 'MUTED')"""
_MUTED_STOPS = f"""
SELECT count(*) FROM task WHERE {live_runs.OF_LINES} AND status <> 'RUNNING' AND {_MUTED}
"""
# DEAD ones first, then the longest stopped: what is left out can wait. Few tasks are stopped, and
# they have an index, which the planner does not choose beside a list of lines.
_STOPS = f"""
WITH task AS MATERIALIZED (
    SELECT application, pipeline, checkpoint, digest, status, since, held, fingerprint
    FROM task WHERE status <> 'RUNNING'
), stopped AS (
    SELECT digest, status, since, held, count(*) OVER alike AS alike,
        sum(held) OVER alike AS together,
        row_number() OVER (PARTITION BY application, pipeline, status,
            coalesce(fingerprint, digest::text) ORDER BY since, digest) AS place
    FROM task WHERE {live_runs.OF_LINES} AND NOT {_MUTED}
    WINDOW alike AS (PARTITION BY application, pipeline, status,
        coalesce(fingerprint, digest::text))
)
SELECT digest, alike, held, together, count(*) OVER () FROM stopped
WHERE place = 1 OR alike <= %s ORDER BY status, since, digest LIMIT %s
"""
_FIRST_OF_LINES = f"""digest IN (
    SELECT first.digest FROM {live_runs.TABLE} AS line (application, pipeline, checkpoint),
    LATERAL (
        SELECT digest FROM task WHERE task.application = line.application
            AND task.pipeline = line.pipeline AND task.checkpoint = line.checkpoint
            AND (%s = '' OR starts_with(task.key, %s))
        ORDER BY status, key NULLS FIRST, digest LIMIT %s OFFSET %s) AS first)
    ORDER BY status, key NULLS FIRST, digest"""
# Each from an index alone: a task's state takes a kilobyte, and there may be very many.
_COUNTS = """
SELECT application, pipeline, checkpoint, status, count(*) FROM task
WHERE application = ANY(%s::text[]) GROUP BY 1, 2, 3, 4
UNION ALL
SELECT application, pipeline, checkpoint, 'held', sum(held) FROM task
WHERE application = ANY(%s::text[]) AND held > 0 GROUP BY 1, 2, 3
"""
#: The newest command of each application.
_LAST = """(application, id) IN (
    SELECT newest.application, newest.id FROM unnest(%s::text[]) AS name, LATERAL (
        SELECT application, id FROM command WHERE command.application = name
        ORDER BY issued_at DESC, id DESC LIMIT 1) AS newest)"""


def overview() -> Overview:
    """Return the overview: all applications and what needs attention."""
    now = datetime.now(UTC)
    newest = models.MinuteTotal.objects.filter(minute__gte=now - timedelta(hours=1))
    last_hour = newest.filter(minute__lt=now + timedelta(minutes=1)).aggregate(all=Sum("count"))
    known = row_mapping.THREADS.readable("true", [])
    stops, more = _stops(known)
    # Applications first: each of them has a lag by then.
    names = [*_names()]
    lags = health.lags()
    tasks, instances = _shown_counts(names, known), instance_counts(names)
    return Overview(
        applications=tuple(
            Brief(
                name=name,
                paused=tasks[name][TaskStatus.PAUSED],
                dead=tasks[name][TaskStatus.DEAD],
                held=tasks[name]["held"],
                instances=instances[name]["alive"],
                lost=instances[name]["lost"],
            )
            for name in names
        ),
        lags=lags,
        stops=stops,
        more_stops=more,
        twins=live_runs.twins(known),
        muted_stops=_muted_stops(known),
        open_commands=tuple(row_mapping.COMMANDS.readable("open ORDER BY issued_at DESC", [])),
        failed_last_hour=int(last_hour["all"] or 0),
        health=health.health(),
    )


def _names() -> QuerySet[models.Application, str]:
    return models.Application.objects.order_by("name").values_list("name", flat=True)


def _stops(known: Sequence[ThreadState]) -> tuple[tuple[Stop, ...], int]:
    """Return the first stops, and the number of further ones."""
    with connection.cursor() as cursor:
        cursor.execute(_STOPS, [*live_runs.columns(live_runs.shown(known)), FEW, GLANCE])
        found = cursor.fetchall()
    digests = [digest for digest, *_ in found]
    tasks = {
        task.id.digest: task for task in row_mapping.TASKS.readable("digest = ANY(%s)", [digests])
    }
    stops = tuple(
        Stop(task=tasks[digest.hex], tasks=1, held=own)
        if alike <= FEW
        else Stop(task=tasks[digest.hex], tasks=alike, held=int(held))
        for digest, alike, own, held, _ in found
        if digest.hex in tasks
    )
    return stops, max(0, found[0][-1] - GLANCE) if found else 0


def _muted_stops(known: Sequence[ThreadState]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_MUTED_STOPS, live_runs.columns(live_runs.shown(known)))
        (count,) = cursor.fetchone()
    return int(count)


def applications() -> tuple[Summary, ...]:
    """Return all applications by name."""
    states = row_mapping.APPLICATIONS.readable("true ORDER BY name", [])
    return _summaries(states, health.lags())


def application_page(
    lags: Sequence[Lag], *, cursor: str | None = None, limit: int = 50
) -> Page[Summary]:
    """Return applications by name, of those that have one of `lags`."""
    after = cursors.unpack(cursor, str) or ""
    wanted = [lag.application for lag in lags]
    names = _names().filter(name__gt=after, name__in=wanted)[: cursors.bounded(limit) + 1]
    page = cursors.page([*names], limit=limit, key=str)
    found = row_mapping.APPLICATIONS.readable(
        "name = ANY(%s::text[]) ORDER BY name", [[*page.rows]]
    )
    return Page(rows=_summaries(found, lags), next=page.next)


def application(name: str, lags: Sequence[Lag] = ()) -> Summary:
    """Return one application, with its lag if it is in `lags`; raise NotFound."""
    found = row_mapping.APPLICATIONS.load("name = %s", [name])
    if not found:
        raise NotFound(f"there is no application {name!r}")
    own = [lag for lag in lags if lag.application == name] or [health.lag(name)]
    return _summaries(found, own)[0]


def _summaries(states: Sequence[ApplicationState], lags: Sequence[Lag]) -> tuple[Summary, ...]:
    names = [state.name for state in states]
    lag_of = {lag.application: lag for lag in lags}
    tasks, instances = task_counts(names), instance_counts(names)
    groups = _count(models.ErrorGroup.objects.filter(application__in=names))
    last = {
        command.application: command for command in row_mapping.COMMANDS.readable(_LAST, [names])
    }
    waiting = _count(models.Command.objects.filter(application__in=names, open=True))
    return tuple(
        Summary(
            state=state,
            running=tasks[state.name][TaskStatus.RUNNING],
            paused=tasks[state.name][TaskStatus.PAUSED],
            dead=tasks[state.name][TaskStatus.DEAD],
            held=tasks[state.name]["held"],
            instances=instances[state.name]["alive"],
            lost=instances[state.name]["lost"],
            groups=groups[state.name],
            open_commands=waiting[state.name],
            last_command=last.get(state.name),
            lag=lag_of[state.name],
        )
        for state in states
    )


def _count(found: QuerySet[Any]) -> Counter[str]:
    """Return the number of rows by application."""
    return Counter(dict(found.values_list("application").annotate(number=Count("*"))))


def instance_counts(names: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the number of live instances, and how many of them are LOST."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application, count(*), count(*) FILTER (WHERE lost) FROM instance"
            f" WHERE application = ANY(%s) AND {states.LIVES} GROUP BY 1",
            [list(names), states.OVER],
        )
        for application, alive, lost in cursor.fetchall():
            found[application].update({"alive": alive, "lost": lost})
    return found


def task_counts(names: Sequence[str]) -> dict[str, Counter[str]]:
    """Return the number of tasks by status, and `held`, of the shown checkpoints of each
    application."""
    return _shown_counts(names, row_mapping.THREADS.readable("application = ANY(%s)", [names]))


def _shown_counts(names: Sequence[str], known: Sequence[ThreadState]) -> dict[str, Counter[str]]:
    shown = {live_runs.line(each) for each in live_runs.shown(known)}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line, counts in _counts(names).items():
        if line in shown:
            found[line[0]].update(counts)
    return found


def pipelines(
    application: str,
    *,
    history: bool = False,
    only: str | None = None,
    key: str = "",
    offset: int = 0,
    limit: int = 500,
) -> tuple[Pipeline, ...]:
    """Return the task grid: each live checkpoint (with `history` each one) with its tasks.

    A checkpoint is live while its newest run is RUNNING; the newest one of a pipeline is always
    shown, so that a dead pipeline does not vanish from its page. `only` names one pipeline. Of each
    pipeline it contains the tasks whose key begins with `key`, from `offset` on.
    """
    known = states.threads(application)
    alive = Counter(each.pipeline for each in known if each.status is ThreadStatus.RUNNING)
    shown = list(known) if history else live_runs.shown(known)
    shown = [each for each in shown if only in (None, each.pipeline)]
    counts = _counts([application])
    tasks: dict[live_runs.Line, list[TaskState]] = defaultdict(list)
    asked = [*live_runs.columns(shown), key, key, cursors.bounded(limit), offset]
    for task in row_mapping.TASKS.load(_FIRST_OF_LINES, asked):
        tasks[(task.id.application, task.id.pipeline, task.id.checkpoint)].append(task)
    return tuple(
        Pipeline(
            thread=thread,
            tasks=tuple(tasks[live_runs.line(thread)]),
            counts={status.value: counts[live_runs.line(thread)][status] for status in TaskStatus},
            held=counts[live_runs.line(thread)]["held"],
            twin=alive[thread.pipeline] > 1,
        )
        for thread in sorted(shown, key=lambda each: (each.pipeline, each.checkpoint))
    )


def _counts(names: Sequence[str]) -> dict[live_runs.Line, Counter[str]]:
    """Return the number of tasks by status, and `held`, of each pipeline and checkpoint."""
    found: dict[live_runs.Line, Counter[str]] = defaultdict(Counter)
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, [list(names), list(names)])
        for application, pipeline, checkpoint, what, count in cursor.fetchall():
            found[(application, pipeline, checkpoint)].update({what: int(count)})
    return found
