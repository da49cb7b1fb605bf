"""The views: moved on with each append. `rebuilding` derives them again, with the same fold."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from controlplane import buckets, rows
from controlplane.domain.failed import Stored
from controlplane.domain.names import TaskId
from controlplane.domain.states import ENDED, TaskStatus
from controlplane.domain.stream import StreamState, Subjects, empty, subjects


def project(application: str, stored: list[Stored]) -> StreamState:
    """Fold `stored` into the views and return what was touched; the stream is locked."""
    state = _load(application, subjects(application, stored))
    state.fold(stored)
    touched = state.touched
    rows.APPLICATIONS.save([state.application])
    rows.TASKS.save(state.tasks[key] for key in touched.tasks)
    rows.THREADS.save(state.threads[key] for key in touched.threads)
    rows.INSTANCES.save(state.instances[key] for key in touched.instances)
    rows.COMMANDS.save(state.commands[key] for key in touched.commands)
    rows.GROUPS.save(state.groups[key] for key in touched.groups)
    counted = buckets.Buckets(application)
    counted.count(stored)
    counted.take(state)
    buckets.add(counted)
    return state


def standing(
    application: str,
    *,
    tasks: Collection[TaskId] = (),
    commands: Collection[UUID] = (),
    pipelines: Collection[str] = (),
    group: str | None = None,
) -> StreamState:
    """Return the states that rules look at: what is open, what is alive, and what is meant."""
    state = empty(application)
    for found in rows.APPLICATIONS.load("name = %s", [application]):
        state.application = found
    wanted = "application = %s AND (open OR id = ANY(%s::uuid[]))"
    for known in rows.COMMANDS.load(wanted, [application, list(commands)]):
        state.commands[known.id] = known
    asked = [part.instance for known in state.commands.values() for part in known.deliveries]
    ended = [status.value for status in ENDED]
    # One that was killed says no last word. A day after its start, when it is lost and all its
    # runs are others', nobody asks after it: it would end as superseded.
    alive = (
        "application = %s AND (id = ANY(%s::uuid[]) OR (status <> ALL(%s::text[]) AND NOT"
        f" (lost AND started_at IS NOT NULL AND started_at < now() - interval '1 day'"
        f" AND NOT {rows.RUNS})))"
    )
    for instance in rows.INSTANCES.load(alive, [application, asked, ended]):
        state.instances[instance.id] = instance
    # Those whose silence may be over, and the one that is meant.
    muted = "application = %s AND (status = 'MUTED' OR fingerprint = %s)"
    for found_group in rows.GROUPS.load(muted, [application, group]):
        state.groups[found_group.fingerprint] = found_group
    if tasks:
        wished = Subjects(
            tasks={task.digest: task for task in tasks},
            threads={(task.pipeline, task.checkpoint) for task in tasks},
        )
        _load_tasks(state, wished)
        _load_threads(state, wished)
    if pipelines:
        of_pipelines = "application = %s AND pipeline = ANY(%s::text[])"
        for thread in rows.THREADS.load(of_pipelines, [application, list(pipelines)]):
            state.threads[(thread.pipeline, thread.checkpoint)] = thread
    return state


def _load(application: str, wanted: Subjects) -> StreamState:
    """Return the states that are known of `wanted`, each kind in one read."""
    state = empty(application)
    for found in rows.APPLICATIONS.load_often("name = %s", [application]):
        state.application = found
    _load_tasks(state, wanted)
    _load_threads(state, wanted)
    mine = "application = %s AND {} = ANY(%s::{}[])"
    # Most folds touch no instance and no command.
    if wanted.instances:
        where = mine.format("id", "uuid")
        for instance in rows.INSTANCES.load_often(where, [application, list(wanted.instances)]):
            state.instances[instance.id] = instance
    if wanted.commands:
        where = mine.format("id", "uuid")
        for command in rows.COMMANDS.load_often(where, [application, list(wanted.commands)]):
            state.commands[command.id] = command
    if wanted.groups:
        where = mine.format("fingerprint", "text")
        for group in rows.GROUPS.load_often(where, [application, list(wanted.groups)]):
            state.groups[group.fingerprint] = group
    return state


def _load_tasks(state: StreamState, wanted: Subjects) -> None:
    for task in rows.TASKS.load_often("digest = ANY(%s::uuid[])", [list(wanted.tasks)]):
        state.tasks[task.id.digest] = task
    for pipeline, checkpoint in wanted.reported:
        for task in rows.TASKS.load_often(
            "application = %s AND pipeline = %s AND checkpoint = %s AND (status <> %s OR held > 0)",
            [state.application.name, pipeline, checkpoint, TaskStatus.RUNNING.value],
        ):
            state.tasks[task.id.digest] = task


def _load_threads(state: StreamState, wanted: Subjects) -> None:
    lines = sorted(wanted.threads)
    pipelines, checkpoints = [line[0] for line in lines], [line[1] for line in lines]
    for thread in rows.THREADS.load_often(
        "application = %s AND (pipeline, checkpoint) IN"
        " (SELECT * FROM unnest(%s::text[], %s::text[]))",
        [state.application.name, pipelines, checkpoints],
    ):
        state.threads[(thread.pipeline, thread.checkpoint)] = thread
