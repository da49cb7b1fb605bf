"""The overview of all applications, and what needs attention.

It needs a fixed number of statements for any number of applications and tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arrester.controlplane.domain.state.states import (
    CommandState,
    TaskState,
    TaskStatus,
    ThreadState,
)
from arrester.controlplane.queries import sql
from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.queries.current_state.applications import application_names
from arrester.controlplane.queries.current_state.instances import instance_counts
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.health import Health, Lag
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.controlplane.views.live_checkpoints import Checkpoints

#: Rows of each list of the overview, and tasks of one cause that are listed separately.
GLANCE, FEW = 20, 3
#: Whether a task is stopped by a muted error.
_MUTED = """EXISTS (SELECT FROM error_group WHERE error_group.application = task.application
    AND error_group.fingerprint = task.fingerprint AND error_group.status = 'MUTED')"""
_MUTED_STOPS = f"""
SELECT count(*) FROM task WHERE {live_checkpoints.OF_THREADS} AND {sql.STOPPED} AND {_MUTED}
"""
# DEAD ones first, then the longest stopped: what is left out can wait. Few tasks are stopped, and
# they have an index, which the planner does not choose beside a list of pipelines.
_STOPS = f"""
WITH task AS MATERIALIZED (
    SELECT application, pipeline, checkpoint, digest, status, since, held, fingerprint
    FROM task WHERE {sql.STOPPED}
), stopped AS (
    SELECT digest, status, since, held, count(*) OVER alike AS alike,
        sum(held) OVER alike AS together,
        row_number() OVER (PARTITION BY application, pipeline, status,
            coalesce(fingerprint, digest::text) ORDER BY since, digest) AS place
    FROM task WHERE {live_checkpoints.OF_THREADS} AND NOT {_MUTED}
    WINDOW alike AS (PARTITION BY application, pipeline, status,
        coalesce(fingerprint, digest::text))
)
SELECT digest, alike, held, together, count(*) OVER () FROM stopped
WHERE place = 1 OR alike <= %s ORDER BY status, since, digest LIMIT %s
"""


class ApplicationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An application in a few numbers, for its live checkpoints."""

    name: str
    paused: int
    dead: int
    held: int
    #: Live instances, and how many of them are LOST; see `queries.instances`.
    instances: int
    lost: int


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of a pipeline stopped by one cause, combined if there are more than a few."""

    #: The one stopped for the longest time.
    task: TaskState
    tasks: int
    #: Held records of all of them.
    held: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview: all applications, and what needs attention."""

    applications: tuple[ApplicationSummary, ...]
    #: Of all applications, including those without any valid entry.
    lags: tuple[Lag, ...]
    #: DEAD, then PAUSED tasks of live checkpoints, the longest stopped first.
    stops: tuple[Stop, ...]
    #: The number of further ones.
    more_stops: int
    checkpoints: Checkpoints
    #: Pipelines that also run on an older checkpoint.
    on_two_checkpoints: tuple[ThreadState, ...]
    #: The number of tasks stopped by muted errors, which are omitted above.
    muted_stops: int
    open_commands: tuple[CommandState, ...]
    health: Health


def overview() -> Overview:
    """Return the overview: all applications and what needs attention."""
    threads = row_mapping.THREADS.load_readable("true", [])
    stops, more = _stops(threads)
    # Applications first: each of them has a lag by then.
    names = [*application_names()]
    lags = health.lags()
    tasks = task_grid.task_counts(names, threads)
    instances = instance_counts(names)
    return Overview(
        applications=tuple(
            ApplicationSummary(
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
        checkpoints=live_checkpoints.checkpoints_of(threads),
        on_two_checkpoints=live_checkpoints.running_on_others(threads),
        muted_stops=_muted_stops(threads),
        open_commands=tuple(row_mapping.COMMANDS.load_readable("open ORDER BY issued_at DESC", [])),
        health=health.health(),
    )


def _stops(threads: Sequence[ThreadState]) -> tuple[tuple[Stop, ...], int]:
    """Return the first stops, and the number of further ones."""
    rows = sql.rows(_STOPS, [*live_checkpoints.columns(threads), FEW, GLANCE])
    digests = [digest for digest, *_ in rows]
    tasks = {
        task.id.digest: task
        for task in row_mapping.TASKS.load_readable("digest = ANY(%s)", [digests])
    }
    stops = tuple(
        Stop(task=tasks[digest.hex], tasks=1, held=own)
        if alike <= FEW
        else Stop(task=tasks[digest.hex], tasks=alike, held=int(held))
        for digest, alike, own, held, _ in rows
        if digest.hex in tasks
    )
    return stops, max(0, rows[0][-1] - GLANCE) if rows else 0


def _muted_stops(threads: Sequence[ThreadState]) -> int:
    ((count,),) = sql.rows(_MUTED_STOPS, live_checkpoints.columns(threads))
    return int(count)
