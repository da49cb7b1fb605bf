"""The views, updated with each append. `rebuild` derives them again with the same fold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from arrester.controlplane.store import prepared_statements
from arrester.controlplane.views import (
    chart_buckets,
    dead_letters,
    failure_totals,
    flow,
    held_minutes,
    row_mapping,
)
from arrester.controlplane.views.bulk_upsert import upsert
from arrester.controlplane.views.row_mapping import TASKS
from arrester.controlplane.views.view_mapping import RowQuery, query_together
from arrester.domain.identity.names import TaskId
from arrester.domain.state.keyed_states import StateKeys
from arrester.domain.state.states import ENDED, TaskState, TaskStatus
from arrester.domain.state.stream_state import StreamState, empty, state_keys
from arrester.domain.wire.failure_columns import Element, Stored, element_of


def project(application: str, stored: Sequence[Stored]) -> None:
    """Fold `stored` into the views; the stream is locked."""
    state, tasks = query_states(application, map(element_of, stored))()
    state.fold(stored)
    with prepared_statements.pipelined():
        write_states(state, stored, tasks)
    dead_letters.write(application, stored)


def query_states(
    application: str, elements: Iterable[Element]
) -> Callable[[], tuple[StreamState, Mapping[str, TaskState]]]:
    """Query in a pipeline the states that the elements may read or change; the returned
    function returns them afterwards, and the tasks as they are before a fold."""
    of_application = RowQuery(row_mapping.APPLICATIONS, "name = %s", [application])
    wanted = state_keys(application, elements)
    read_states = query_together([of_application, *_states(application, wanted)])

    def states() -> tuple[StreamState, Mapping[str, TaskState]]:
        state = empty(application)
        for each in read_states():
            state.put(each)
        return state, dict(state.tasks)

    return states


def write_states(
    state: StreamState, stored: Sequence[Stored], before: Mapping[str, TaskState]
) -> None:
    """Write the states changed by the fold of `stored`; `before` has the tasks before it. In a
    pipeline, PostgreSQL writes tasks while the other rows are made."""
    upsert([TASKS.changed_rows(state)])
    counted = chart_buckets.Buckets(state.application.name)
    counted.count(stored)
    held = held_minutes.additions(state)
    counted.add_held_changes(state)
    others = [view.changed_rows(state) for view in row_mapping.STATES if view is not TASKS]
    failures = failure_totals.additions(state, before)
    upsert([*others, *chart_buckets.additions(counted), held, failures, *flow.additions(stored)])


def current_states(
    application: str,
    *,
    tasks: Collection[TaskId] = (),
    commands: Collection[UUID] = (),
    pipelines: Collection[str] = (),
    group: str | None = None,
) -> StreamState:
    """Return the states that rules use: open commands, live instances, muted groups, and the
    named states."""
    state = empty(application)
    for application_state in row_mapping.APPLICATIONS.load("name = %s", [application]):
        state.application = application_state
    wanted = "application = %s AND (open OR id = ANY(%s::uuid[]))"
    for known in row_mapping.COMMANDS.load(wanted, [application, list(commands)]):
        state.commands[known.id] = known
    answering = [part.instance for known in state.commands.values() for part in known.deliveries]
    ended = [status.value for status in ENDED]
    # A killed instance reports no end. A day after its start, if it is lost and all its runs were
    # taken over, it is no longer loaded: it would end as superseded.
    alive = (
        "application = %s AND (id = ANY(%s::uuid[]) OR (status <> ALL(%s::text[]) AND NOT"
        f" (lost AND started_at IS NOT NULL AND started_at < now() - interval '1 day'"
        f" AND NOT {row_mapping.OWNS_A_RUN})))"
    )
    for instance in row_mapping.INSTANCES.load(alive, [application, answering, ended]):
        state.instances[instance.id] = instance
    # Groups whose mute may be over, and the named one.
    muted = "application = %s AND (status = 'MUTED' OR fingerprint = %s)"
    for group_state in row_mapping.GROUPS.load(muted, [application, group]):
        state.groups[group_state.fingerprint] = group_state
    if tasks:
        _put_tasks(state, tasks)
    if pipelines:
        of_pipelines = "application = %s AND pipeline = ANY(%s::text[])"
        for thread in row_mapping.THREADS.load(of_pipelines, [application, list(pipelines)]):
            state.threads[(thread.pipeline, thread.checkpoint)] = thread
    return state


def _put_tasks(state: StreamState, tasks: Collection[TaskId]) -> None:
    """Load some tasks."""
    of_tasks = StateKeys(tasks={task.digest: task for task in tasks})
    for each in query_together([*_states(state.application.name, of_tasks)])():
        state.put(each)


def _states(application: str, wanted: StateKeys) -> Iterator[RowQuery]:
    """Yield the rows of `wanted` to read; most folds need only some kinds."""
    if wanted.tasks:
        yield RowQuery(TASKS, "digest = ANY(%s::uuid[])", [list(wanted.tasks)])
    for line in wanted.reported:
        where = "application = %s AND pipeline = %s AND checkpoint = %s"
        not_running = f"{where} AND (status <> %s OR held > 0)"
        yield RowQuery(TASKS, not_running, [application, *line, TaskStatus.RUNNING.value])
    if wanted.threads:
        pipelines, checkpoints = zip(*sorted(wanted.threads), strict=True)
        where = (
            "application = %s AND (pipeline, checkpoint) IN"
            " (SELECT * FROM unnest(%s::text[], %s::text[]))"
        )
        yield RowQuery(
            row_mapping.THREADS, where, [application, list(pipelines), list(checkpoints)]
        )
    of_keys = "application = %s AND {} = ANY(%s::{}[])"
    for view, of_view, keys in (
        (row_mapping.INSTANCES, of_keys.format("id", "uuid"), wanted.instances),
        (row_mapping.COMMANDS, of_keys.format("id", "uuid"), wanted.commands),
        (row_mapping.GROUPS, of_keys.format("fingerprint", "text"), wanted.groups),
    ):
        if keys:
            yield RowQuery(view, of_view, [application, list(keys)])
