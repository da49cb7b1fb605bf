"""The overview of all applications.

It needs a fixed number of statements for any number of applications and tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from arrester.controlplane.queries import sql
from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.queries.current_state.applications import application_names
from arrester.controlplane.queries.current_state.instances import instance_counts
from arrester.controlplane.queries.operation import health
from arrester.controlplane.queries.operation.health import Health, Lag
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.state.states import (
    CommandState,
    TaskStatus,
    ThreadState,
)

#: Whether a task is stopped by a muted error.
_MUTED = """EXISTS (SELECT FROM error_group WHERE error_group.application = task.application
    AND error_group.fingerprint = task.fingerprint AND error_group.status = 'MUTED')"""
_MUTED_STOPS = f"""
SELECT count(*) FROM task WHERE {live_checkpoints.OF_THREADS} AND {sql.STOPPED} AND {_MUTED}
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


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview: all applications in a few numbers."""

    applications: tuple[ApplicationSummary, ...]
    #: The newest run of each pipeline on each checkpoint.
    threads: tuple[ThreadState, ...]
    #: Tasks by status, and `held`, of each pipeline and checkpoint.
    tasks: Mapping[live_checkpoints.PipelineKey, Counter[str]]
    #: Of all applications, including those without any valid entry.
    lags: tuple[Lag, ...]
    #: The number of tasks stopped by muted errors, which need no attention.
    muted_stops: int
    open_commands: tuple[CommandState, ...]
    health: Health


def overview() -> Overview:
    """Return the overview of all applications."""
    threads = row_mapping.THREADS.load_readable("true", [])
    # Applications first: each of them has a lag by then.
    names = [*application_names()]
    lags = health.lags()
    by_pipeline = task_grid.counts_by_pipeline(names)
    tasks = task_grid.task_counts(names, threads, by_pipeline)
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
        threads=tuple(threads),
        tasks=by_pipeline,
        lags=lags,
        muted_stops=_muted_stops(threads),
        open_commands=tuple(row_mapping.COMMANDS.load_readable("open ORDER BY issued_at DESC", [])),
        health=health.health(),
    )


def _muted_stops(threads: Sequence[ThreadState]) -> int:
    ((count,),) = sql.rows(_MUTED_STOPS, live_checkpoints.columns(threads))
    return int(count)
