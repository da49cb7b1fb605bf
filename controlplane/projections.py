"""The views: moved on with each append. `rebuilding` derives them again, with the same fold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from uuid import UUID

from controlplane import buckets, past, prepared, rows
from controlplane.domain.failed import Stored, Told, said
from controlplane.domain.names import TaskId
from controlplane.domain.states import ENDED, TaskStatus
from controlplane.domain.stream import StreamState, Subjects, empty, subjects
from controlplane.rows import Wanted, ask_together
from controlplane.writing import upsert


def project(application: str, stored: Sequence[Stored]) -> None:
    """Fold `stored` into the views; the stream is locked."""
    state = ask(application, map(said, stored))().fold(stored)
    with prepared.together():
        show(state, stored)


def ask(application: str, told: Iterable[Told]) -> Callable[[], StreamState]:
    """Ask for the states that what is told may read or change; return what gives them, behind
    `prepared.together`."""
    of_application = Wanted(rows.APPLICATIONS, "name = %s", [application])
    wanted = subjects(application, told)
    found = ask_together([of_application, *_states(application, wanted)])

    def states() -> StreamState:
        state = empty(application)
        for each in found():
            past.hold(state, each)
        return state

    return states


def show(state: StreamState, stored: Sequence[Stored]) -> None:
    """Write what the fold of `stored` has touched into the views: within `prepared.together`,
    PostgreSQL works at the tasks while the rest is made."""
    touched = state.touched
    upsert([rows.TASKS.saved(state.tasks[key] for key in touched.tasks)])
    counted = buckets.Buckets(state.application.name)
    counted.count(stored)
    counted.take(state)
    upsert(
        [
            rows.APPLICATIONS.saved([state.application]),
            rows.THREADS.saved(state.threads[key] for key in touched.threads),
            rows.INSTANCES.saved(state.instances[key] for key in touched.instances),
            rows.COMMANDS.saved(state.commands[key] for key in touched.commands),
            rows.GROUPS.saved(state.groups[key] for key in touched.groups),
            *buckets.added(counted),
        ]
    )


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
        for each in ask_together([*_states(application, wished)])():
            past.hold(state, each)
    if pipelines:
        of_pipelines = "application = %s AND pipeline = ANY(%s::text[])"
        for thread in rows.THREADS.load(of_pipelines, [application, list(pipelines)]):
            state.threads[(thread.pipeline, thread.checkpoint)] = thread
    return state


def _states(application: str, wanted: Subjects) -> Iterator[Wanted]:
    """Yield what is to be read of the states of `wanted`; most folds touch only some kinds."""
    if wanted.tasks:
        yield Wanted(rows.TASKS, "digest = ANY(%s::uuid[])", [list(wanted.tasks)])
    for line in wanted.reported:
        where = "application = %s AND pipeline = %s AND checkpoint = %s"
        stands = f"{where} AND (status <> %s OR held > 0)"
        yield Wanted(rows.TASKS, stands, [application, *line, TaskStatus.RUNNING.value])
    if wanted.threads:
        pipelines, checkpoints = zip(*sorted(wanted.threads), strict=True)
        where = (
            "application = %s AND (pipeline, checkpoint) IN"
            " (SELECT * FROM unnest(%s::text[], %s::text[]))"
        )
        yield Wanted(rows.THREADS, where, [application, list(pipelines), list(checkpoints)])
    of_keys = "application = %s AND {} = ANY(%s::{}[])"
    for view, of_view, keys in (
        (rows.INSTANCES, of_keys.format("id", "uuid"), wanted.instances),
        (rows.COMMANDS, of_keys.format("id", "uuid"), wanted.commands),
        (rows.GROUPS, of_keys.format("fingerprint", "text"), wanted.groups),
    ):
        if keys:
            yield Wanted(view, of_view, [application, list(keys)])
