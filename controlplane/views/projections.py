"""The views, updated with each append. `rebuild` derives them again with the same fold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from uuid import UUID

from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.keyed_states import Subjects
from arrester.controlplane.domain.state.states import ENDED, TaskStatus
from arrester.controlplane.domain.state.stream_state import StreamState, empty, subjects
from arrester.controlplane.domain.wire.failure_columns import Element, Stored, said
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.views import chart_buckets, row_mapping
from arrester.controlplane.views.bulk_upsert import upsert
from arrester.controlplane.views.row_mapping import Wanted, ask_together


def project(application: str, stored: Sequence[Stored]) -> None:
    """Fold `stored` into the views; the stream is locked."""
    state = ask(application, map(said, stored))().fold(stored)
    with prepared_statements.together():
        show(state, stored)


def ask(application: str, told: Iterable[Element]) -> Callable[[], StreamState]:
    """Query in a pipeline the states that the elements may read or change; the returned
    function gives them afterwards."""
    of_application = Wanted(row_mapping.APPLICATIONS, "name = %s", [application])
    wanted = subjects(application, told)
    found = ask_together([of_application, *_states(application, wanted)])

    def states() -> StreamState:
        state = empty(application)
        for each in found():
            state.put(each)
        return state

    return states


def show(state: StreamState, stored: Sequence[Stored]) -> None:
    """Write the states changed by the fold of `stored`. In a pipeline, PostgreSQL writes tasks
    while the other rows are made."""
    touched = state.touched
    upsert([row_mapping.TASKS.saved(state.tasks[key] for key in touched.tasks)])
    counted = chart_buckets.Buckets(state.application.name)
    counted.count(stored)
    counted.take(state)
    upsert(
        [
            row_mapping.APPLICATIONS.saved([state.application]),
            row_mapping.THREADS.saved(state.threads[key] for key in touched.threads),
            row_mapping.INSTANCES.saved(state.instances[key] for key in touched.instances),
            row_mapping.COMMANDS.saved(state.commands[key] for key in touched.commands),
            row_mapping.GROUPS.saved(state.groups[key] for key in touched.groups),
            *chart_buckets.added(counted),
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
    """Return the states that rules use: open commands, live instances, and the named states."""
    state = empty(application)
    for found in row_mapping.APPLICATIONS.load("name = %s", [application]):
        state.application = found
    wanted = "application = %s AND (open OR id = ANY(%s::uuid[]))"
    for known in row_mapping.COMMANDS.load(wanted, [application, list(commands)]):
        state.commands[known.id] = known
    asked = [part.instance for known in state.commands.values() for part in known.deliveries]
    ended = [status.value for status in ENDED]
    # A killed instance reports no end. A day after its start, if it is lost and all its runs were
    # taken over, it is no longer loaded: it would end as superseded.
    alive = (
        "application = %s AND (id = ANY(%s::uuid[]) OR (status <> ALL(%s::text[]) AND NOT"
        f" (lost AND started_at IS NOT NULL AND started_at < now() - interval '1 day'"
        f" AND NOT {row_mapping.RUNS})))"
    )
    for instance in row_mapping.INSTANCES.load(alive, [application, asked, ended]):
        state.instances[instance.id] = instance
    # Groups whose mute may be over, and the named one.
    muted = "application = %s AND (status = 'MUTED' OR fingerprint = %s)"
    for found_group in row_mapping.GROUPS.load(muted, [application, group]):
        state.groups[found_group.fingerprint] = found_group
    if tasks:
        apply_command = Subjects(
            tasks={task.digest: task for task in tasks},
            threads={(task.pipeline, task.checkpoint) for task in tasks},
        )
        for each in ask_together([*_states(application, apply_command)])():
            state.put(each)
    if pipelines:
        of_pipelines = "application = %s AND pipeline = ANY(%s::text[])"
        for thread in row_mapping.THREADS.load(of_pipelines, [application, list(pipelines)]):
            state.threads[(thread.pipeline, thread.checkpoint)] = thread
    return state


def _states(application: str, wanted: Subjects) -> Iterator[Wanted]:
    """Yield the rows of `wanted` to read; most folds need only some kinds."""
    if wanted.tasks:
        yield Wanted(row_mapping.TASKS, "digest = ANY(%s::uuid[])", [list(wanted.tasks)])
    for line in wanted.reported:
        where = "application = %s AND pipeline = %s AND checkpoint = %s"
        stands = f"{where} AND (status <> %s OR held > 0)"
        yield Wanted(row_mapping.TASKS, stands, [application, *line, TaskStatus.RUNNING.value])
    if wanted.threads:
        pipelines, checkpoints = zip(*sorted(wanted.threads), strict=True)
        where = (
            "application = %s AND (pipeline, checkpoint) IN"
            " (SELECT * FROM unnest(%s::text[], %s::text[]))"
        )
        yield Wanted(row_mapping.THREADS, where, [application, list(pipelines), list(checkpoints)])
    of_keys = "application = %s AND {} = ANY(%s::{}[])"
    for view, of_view, keys in (
        (row_mapping.INSTANCES, of_keys.format("id", "uuid"), wanted.instances),
        (row_mapping.COMMANDS, of_keys.format("id", "uuid"), wanted.commands),
        (row_mapping.GROUPS, of_keys.format("fingerprint", "text"), wanted.groups),
    ):
        if keys:
            yield Wanted(view, of_view, [application, list(keys)])
