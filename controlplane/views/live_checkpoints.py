"""Live checkpoints: those of the live runs. Counts, lists and dialogs leave out the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import connection

from arrester.controlplane.views import row_mapping
from arrester.domain.identity.names import TaskId
from arrester.domain.state.live_runs import live, no_run_since
from arrester.domain.state.states import (
    InstanceState,
    TaskState,
    ThreadState,
    ThreadStatus,
)

#: A pipeline on a checkpoint of an application.
PipelineKey = tuple[str, str, str]
#: SQL of a table of pipelines on checkpoints, and of the condition that a row belongs to one
#: of them; takes `columns`.
TABLE = "unnest(%s::text[], %s::text[], %s::text[])"
OF_THREADS = f"(application, pipeline, checkpoint) IN (SELECT * FROM {TABLE})"


def live_keys(threads: Sequence[ThreadState]) -> frozenset[PipelineKey]:
    """Return the live checkpoints with their pipelines."""
    return frozenset(pipeline_key(each) for each in live(threads))


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of some applications, each with its pipeline."""

    live: frozenset[PipelineKey]
    #: Those that no run uses, and since when.
    no_run_since: dict[PipelineKey, datetime]

    @classmethod
    def of(cls, threads: Sequence[ThreadState], instances: Iterable[InstanceState]) -> Checkpoints:
        """Return the checkpoints of some runs; `instances` are those that run them."""
        by_id = {each.id: each for each in instances}
        since = {pipeline_key(each): no_run_since(each, by_id) for each in threads}
        return cls(
            live=live_keys(threads),
            no_run_since={key: at for key, at in since.items() if at is not None},
        )


def checkpoints(applications: Iterable[str]) -> Checkpoints:
    """Return the checkpoints of some applications."""
    names = [[*applications]]
    return checkpoints_of(row_mapping.THREADS.load_readable("application = ANY(%s::text[])", names))


def checkpoints_of(threads: Sequence[ThreadState]) -> Checkpoints:
    """Return the checkpoints of some runs."""
    return Checkpoints.of(threads, instances_of(threads).values())


def instances_of(threads: Iterable[ThreadState]) -> dict[UUID, InstanceState]:
    """Return the instances of some runs."""
    ids = [each.instance for each in threads if each.instance is not None]
    instances = row_mapping.INSTANCES.load_readable("id = ANY(%s::uuid[])", [ids])
    return {each.id: each for each in instances}


def running_on_others(threads: Sequence[ThreadState]) -> tuple[ThreadState, ...]:
    """Return the live runs of pipelines that also have a RUNNING run on an older checkpoint."""
    shown = live(threads)
    keys = {pipeline_key(each) for each in shown}
    others = {
        (each.application, each.pipeline)
        for each in threads
        if each.status is ThreadStatus.RUNNING
        and not each.unguarded
        and pipeline_key(each) not in keys
    }
    found = {name: each for each in shown if (name := (each.application, each.pipeline)) in others}
    return tuple(each for _, each in sorted(found.items()))


def pipeline_key(of: ThreadState | TaskId) -> PipelineKey:
    """Return the pipeline and checkpoint of a run, or of a task."""
    return (of.application, of.pipeline, of.checkpoint)


def columns(threads: Sequence[ThreadState]) -> list[list[str]]:
    """Return the live checkpoints of `threads` as the parameters of `TABLE`."""
    return columns_of(live(threads))


def columns_of(threads: Sequence[ThreadState]) -> list[list[str]]:
    """Return the checkpoints of `threads` as the parameters of `TABLE`."""
    return [
        [each.application for each in threads],
        [each.pipeline for each in threads],
        [each.checkpoint for each in threads],
    ]


def tasks_of(threads: Sequence[ThreadState], *, limit: int) -> tuple[list[TaskState], int]:
    """Return the tasks of the live checkpoints of `threads`, at most `limit`, and their number."""
    parameters = columns(threads)
    tasks = row_mapping.TASKS.load(f"{OF_THREADS} ORDER BY digest LIMIT %s", [*parameters, limit])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM task WHERE {OF_THREADS}", parameters)
        ((count,),) = cursor.fetchall()
    return tasks, int(count)
