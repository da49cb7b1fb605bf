"""States as of a time or log position: the same results as for now, folded from the log.

A time is the server's time of receipt. A log position, `@18233`, is of one application. What did
not exist yet raises NotFound; a point before the log raises BeforeHistory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import msgspec

from arrester.controlplane import store
from arrester.controlplane.history import state_at_position
from arrester.controlplane.queries import paging
from arrester.controlplane.queries.as_of_position import AsOf, log_position
from arrester.controlplane.queries.current_state import task_grid
from arrester.controlplane.queries.current_state.applications import Summary
from arrester.controlplane.queries.current_state.task_grid import PipelineGrid, Section
from arrester.controlplane.queries.current_state.tasks import TaskDetail, TaskFilter, sort_key
from arrester.controlplane.queries.failure_history import history
from arrester.controlplane.queries.failure_history.error_groups import GroupDetail
from arrester.controlplane.queries.operation.health import Lag
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.controlplane.views.live_checkpoints import Checkpoints
from arrester.domain.commands.kinds import TESTS
from arrester.domain.errors import InvalidValue, NotFound
from arrester.domain.events import StoredEvent
from arrester.domain.state.live_runs import live
from arrester.domain.state.states import (
    ENDED,
    AnyState,
    GroupState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
)
from arrester.domain.state.stream_state import StreamState

S = TypeVar("S", bound=AnyState)
Key = TypeVar("Key", tuple[datetime, UUID], tuple[datetime, str, str])
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


class ApplicationDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An application as of a log position, with its pipelines and live instances."""

    summary: Summary
    grid: PipelineGrid
    instances: tuple[InstanceState, ...]


def application(name: str, when: AsOf) -> Summary:
    """Return one application as of then."""
    return _summary(_existing(name, when), store.read_stream(name))


def application_detail(
    name: str, when: AsOf, *, tasks: int, section: Section = task_grid.FIRST
) -> ApplicationDetail:
    """Return one application with a page of its pipelines, the first `tasks` of each, and its live
    instances, all as of the same fold."""
    state = _existing(name, when)
    return ApplicationDetail(
        summary=_summary(state, store.read_stream(name)),
        grid=_grid(state, section, limit=tasks),
        instances=_instances(state),
    )


def applications(when: AsOf) -> tuple[Summary, ...]:
    """Return all applications that existed, by name, as of a time."""
    states = [state for state in _states(None, when) if state.application.sequence]
    streams = {each.application: each for each in store.all_streams()}
    return tuple(_summary(each, streams[each.application.name]) for each in states)


def task(digest: str, when: AsOf) -> TaskDetail:
    """Return a task with its run and its commands."""
    id = row_mapping.task_state(digest).id
    then = state_at_position.at(id.application, log_position(id.application, when))
    state = then.tasks.get(digest)
    if state is None:
        raise NotFound(f"the task {id.printed!r} had no failure and no change as of {when.printed}")
    about_it = [
        each for each in then.commands.values() if each.task == id and each.kind not in TESTS
    ]
    thread = then.threads.get((id.pipeline, id.checkpoint))
    instance = None if thread is None else thread.instance
    of_pipeline = [each for each in then.threads.values() if each.pipeline == id.pipeline]
    newest = sorted(about_it, key=lambda each: (each.issued_at, str(each.id)), reverse=True)
    return TaskDetail(
        state=state,
        thread=thread,
        instance=None if instance is None else then.instances.get(instance),
        newest=next(iter(live(of_pipeline)), None),
        failure=history.event_if_kept(id.application, state.failure_sequence),
        open_command=next((each for each in newest if not each.status.final), None),
        last_command=newest[0] if newest else None,
    )


def task_history(
    digest: str, when: AsOf, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the events of a task up to then, newest first; see `history.task_history`."""
    application = row_mapping.task_state(digest).id.application
    until = log_position(application, when)
    return history.task_history(digest, cursor=cursor, limit=limit, until=until)


def tasks(
    wanted: TaskFilter, when: AsOf, *, cursor: str | None = None, limit: int = 50
) -> Page[TaskState]:
    """Return tasks as of then, in the order of `queries.tasks`; owners are those of now."""
    if wanted.owner is not None:
        raise InvalidValue("owner", wanted.owner, "only without as_of")
    before = paging.unpack(cursor, tuple[datetime, UUID], of="past tasks")
    rows = [each for state in _states(wanted.application, when) for each in _wanted(state, wanted)]
    return _page(rows, sort_key, before, limit, of="past tasks")


def groups(
    application: str | None,
    when: AsOf,
    *,
    status: str | None = None,
    text: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[GroupState]:
    """Return error groups as of then, the last failed first."""
    before = paging.unpack(cursor, tuple[datetime, str, str], of="past error groups")
    part = None if text is None else text.lower()
    rows = [
        each
        for then in _states(application, when)
        for each in then.groups.values()
        if status in (None, each.status.value)
        and (part is None or part in each.exception_class.lower() or part in each.message.lower())
    ]
    return _page(rows, _group_order, before, limit, of="past error groups")


def group(application: str, fingerprint: str, when: AsOf) -> GroupDetail:
    """Return an error group as of then, with the tasks that it had stopped."""
    then = state_at_position.at(application, log_position(application, when))
    state = then.groups.get(fingerprint)
    if state is None:
        raise NotFound(
            f"there was no error group {application} {fingerprint!r} as of {when.printed}"
        )
    live_keys = _live(then)
    stopped = [
        each
        for each in then.tasks.values()
        if each.status.stopped
        and live_checkpoints.pipeline_key(each.id) in live_keys
        and each.failure is not None
        and each.failure.fingerprint == fingerprint
    ]
    return GroupDetail(
        state=state,
        example=history.event_if_kept(application, state.example_sequence),
        stopped=tuple(sorted(stopped, key=sort_key, reverse=True)[: paging.MAX_ROWS]),
        stopped_total=len(stopped),
    )


def instances(application: str, when: AsOf, *, ended: bool = False) -> tuple[InstanceState, ...]:
    """Return the instances that were live, newest first; with `ended` the others."""
    return _instances(
        state_at_position.at(application, log_position(application, when)), ended=ended
    )


def _instances(then: StreamState, *, ended: bool = False) -> tuple[InstanceState, ...]:
    instances = [each for each in then.instances.values() if _lives(each, then) is not ended]
    instances.sort(key=lambda each: str(each.id))
    instances.sort(key=lambda each: each.started_at or _EARLIEST, reverse=True)
    return tuple(instances[: paging.MAX_ROWS])


def instance(application: str, id: UUID, when: AsOf) -> InstanceState:
    """Return an instance as of then."""
    then = state_at_position.at(application, log_position(application, when))
    if id not in then.instances:
        raise NotFound(f"there was no instance {id} of {application} as of {when.printed}")
    return then.instances[id]


def threads(application: str, when: AsOf) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline on each checkpoint, as of then."""
    then = state_at_position.at(application, log_position(application, when))
    return tuple(sorted(then.threads.values(), key=lambda each: (each.pipeline, each.checkpoint)))


def checkpoints(applications: Iterable[str], when: AsOf) -> Checkpoints:
    """Return the checkpoints of some applications as of then."""
    states = [state_at_position.at(name, log_position(name, when)) for name in applications]
    return Checkpoints.of(
        [each for state in states for each in state.threads.values()],
        [each for state in states for each in state.instances.values()],
    )


def _grid(then: StreamState, section: Section, *, limit: int) -> PipelineGrid:
    threads = list(then.threads.values())
    tasks: dict[live_checkpoints.PipelineKey, list[TaskState]] = defaultdict(list)
    for each in sorted(then.tasks.values(), key=_grid_order):
        if each.status is not TaskStatus.DISMISSED:
            tasks[live_checkpoints.pipeline_key(each.id)].append(each)
    counts = {
        key: Counter(each.status.value for each in some)
        | Counter(held=sum(each.held for each in some))
        for key, some in tasks.items()
    }
    first = {key: some[: paging.checked(limit)] for key, some in tasks.items()}
    runs = task_grid.ordered(live(threads), then.instances)
    return PipelineGrid(
        pipelines=task_grid.grid(section.of(runs), threads, first, counts), total=len(runs)
    )


def _existing(name: str, when: AsOf) -> StreamState:
    state = state_at_position.at(name, log_position(name, when))
    if not state.application.sequence:
        raise NotFound(f"there was no application {name!r} as of {when.printed}")
    return state


def _states(application: str | None, when: AsOf) -> list[StreamState]:
    if application is None and when.moment is None:
        raise InvalidValue("as_of", str(when), "a time, unless one application is chosen")
    names = (
        [application]
        if application is not None
        else [each.application for each in store.all_streams()]
    )
    return [state_at_position.at(name, log_position(name, when)) for name in names]


def _wanted(state: StreamState, wanted: TaskFilter) -> list[TaskState]:
    live_keys, ended = _live(state), _no_run_since(state)
    return [
        each
        for each in state.tasks.values()
        if wanted.pipeline in (None, each.id.pipeline)
        and wanted.status in (None, _status(each, ended))
        and (not wanted.live or live_checkpoints.pipeline_key(each.id) in live_keys)
    ]


def _no_run_since(then: StreamState) -> Mapping[live_checkpoints.PipelineKey, datetime]:
    """Return the checkpoints that no run used."""
    return Checkpoints.of([*then.threads.values()], then.instances.values()).no_run_since


def _status(task: TaskState, ended: Container[live_checkpoints.PipelineKey]) -> str:
    """Return the status of a task, or NO_RUN, by the rule of `queries.tasks`."""
    waits = task.status is TaskStatus.RUNNING and live_checkpoints.pipeline_key(task.id) in ended
    return task_grid.NO_RUN if waits else task.status.value


def _live(state: StreamState) -> frozenset[live_checkpoints.PipelineKey]:
    return live_checkpoints.live_keys([*state.threads.values()])


def _page(
    rows: list[S], order: Callable[[S], Key], before: Key | None, limit: int, *, of: str
) -> Page[S]:
    ordered = sorted(rows, key=order, reverse=True)
    rest = [each for each in ordered if before is None or order(each) < before]
    return paging.page(rest[: paging.checked(limit) + 1], of=of, limit=limit, key=order)


def _group_order(state: GroupState) -> tuple[datetime, str, str]:
    return (state.last_seen or _EARLIEST, state.application, state.fingerprint)


def _grid_order(state: TaskState) -> tuple[str, bool, str, str]:
    # DEAD ones first, as in the current grid.
    return (state.status.value, state.id.key is not None, state.id.key or "", state.id.digest)


def _lives(state: InstanceState, then: StreamState) -> bool:
    """Whether an instance was live, by the rule of `queries.instances`."""
    runs = any(thread.instance == state.id for thread in then.threads.values())
    return state.status not in ENDED and not (state.lost and not runs)


def _summary(then: StreamState, stream: store.LogStream) -> Summary:
    name = then.application.name
    shown = _wanted(then, TaskFilter(application=name))
    alive = [each for each in then.instances.values() if _lives(each, then)]
    ended = _no_run_since(then)
    statuses = Counter(_status(each, ended) for each in shown)
    return Summary(
        state=then.application,
        running=statuses[TaskStatus.RUNNING.value],
        no_run=statuses[task_grid.NO_RUN],
        paused=statuses[TaskStatus.PAUSED.value],
        dead=statuses[TaskStatus.DEAD.value],
        held=sum(each.held for each in shown),
        instances=len(alive),
        lost=sum(each.lost for each in alive),
        groups=len(then.groups),
        open_commands=sum(not each.status.final for each in then.commands.values()),
        last_command=max(then.commands.values(), key=lambda each: each.issued_at, default=None),
        # What waited then is not known.
        lag=Lag(
            application=name,
            sequence=then.application.sequence,
            generation=stream.generation,
            waiting=None,
            waiting_seconds=None,
            quarantined=0,
            too_old=0,
        ),
    )
