"""Tasks: one with what an operator needs, and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from arrester.controlplane.queries import ownership, paging, sql
from arrester.controlplane.queries.current_state.task_grid import NO_RUN
from arrester.controlplane.queries.failure_history import history
from arrester.controlplane.queries.paging import Page
from arrester.controlplane.views import live_checkpoints, row_mapping
from arrester.domain.commands.kinds import TESTS
from arrester.domain.commands.verdict import Verdict, newest_verdict
from arrester.domain.errors import InvalidValue
from arrester.domain.events import StoredEvent
from arrester.domain.state.live_runs import live, no_run_since
from arrester.domain.state.states import (
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
)

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
#: The sort columns of a list; with `-` before the name, the largest is first. A task that never
#: changed its status has the earliest time.
_COLUMNS = {"since": "coalesce(since, to_timestamp(0))", "held": "held", "failed": "failed"}
_BY_COLUMN = tuple(f"{minus}{name}" for name in _COLUMNS for minus in ("-", ""))
LATEST_STOP = "-since"
#: DEAD ones, then PAUSED ones, both by age, then the others, the last changed first.
URGENCY = "urgency"
TASK_SORTS = (*_BY_COLUMN, URGENCY)
#: The sort keys in cursors, and the name of the list in them, by its order.
_KEYS: dict[str, Any] = {"since": tuple[datetime, UUID]} | dict.fromkeys(
    ("held", "failed"), tuple[int, UUID]
)
_LIST = "tasks by {}"


#: The states that a filter selects.
TASK_STATES = ("RUNNING", "PAUSED", "DEAD", "DISMISSED", NO_RUN)


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of tasks; None means any."""

    application: str | None = None
    pipeline: str | None = None
    #: A task's status, or NO_RUN for a RUNNING one whose checkpoint no run uses: it is not among
    #: the RUNNING ones.
    status: str | None = None
    #: The fingerprint of the error group at which a task is or was stopped.
    cause: str | None = None
    #: The beginning of a task's key.
    key: str | None = None
    #: Whether tasks of checkpoints that no run uses are left out.
    live: bool = True
    owner: Annotated[
        str | None, Meta(description="A person or a team; `none`: those without an owner.")
    ] = None


class TaskDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A task with what an operator needs to decide."""

    state: TaskState
    #: The current run of its checkpoint, and the instance; None if none was reported.
    thread: ThreadState | None
    instance: InstanceState | None
    #: The live run of its pipeline.
    newest: ThreadState | None
    #: The failed record with its body; None if no record is the cause.
    failure: StoredEvent | None
    #: The open command for it.
    open_command: CommandState | None
    #: The newest command for it, open or not.
    last_command: CommandState | None

    @property
    def live(self) -> bool:
        """Whether its checkpoint is the live one of its pipeline; if not, no count contains it."""
        return self.newest == self.thread

    @property
    def verdict(self) -> Verdict | None:
        """What the newest command has achieved; None unless it let the task continue."""
        return newest_verdict(self.last_command, self.state)

    @property
    def no_run_since(self) -> datetime | None:
        """Since when no run uses its checkpoint; None while one does, or if none was reported."""
        if self.thread is None:
            return None
        instances = {} if self.instance is None else {self.instance.id: self.instance}
        return no_run_since(self.thread, instances)


def is_known(digest: str) -> bool:
    """Whether an agent has reported the task: a command may be the first that names it."""
    return bool(sql.rows("SELECT 1 FROM task WHERE digest = %s", [UUID(hex=digest)]))


def task(digest: str) -> TaskDetail:
    """Return a task by its digest; raise NotFound."""
    state = row_mapping.task_state(digest)
    id = state.id
    threads = row_mapping.THREADS.load(
        "application = %s AND pipeline = %s", [id.application, id.pipeline]
    )
    thread = next((each for each in threads if each.checkpoint == id.checkpoint), None)
    runs_on = [None if thread is None else thread.instance]
    instances = row_mapping.INSTANCES.load(
        "application = %s AND id = %s", [id.application, *runs_on]
    )
    # A test changes nothing: the verdict on the command before it is still that on the task.
    about_it = "application = %s AND task = %s AND kind <> ALL(%s)"
    parameters = [id.application, UUID(id.digest), [kind.value for kind in TESTS]]
    newest = row_mapping.COMMANDS.load(
        f"{about_it} ORDER BY issued_at DESC, id DESC LIMIT 1", parameters
    )
    # However many were refused since it was issued.
    waiting = row_mapping.COMMANDS.load(
        f"{about_it} AND open ORDER BY issued_at, id LIMIT 1", parameters
    )
    return TaskDetail(
        state=state,
        thread=thread,
        instance=next(iter(instances), None),
        newest=next(iter(live(threads)), None),
        failure=history.event_if_kept(id.application, state.failure_sequence),
        open_command=waiting[0] if waiting else None,
        last_command=newest[0] if newest else None,
    )


def tasks(
    wanted: TaskFilter,
    *,
    sort: str = LATEST_STOP,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[TaskState]:
    """Return tasks, by default by their first stop or, if RUNNING, their last change; the newest
    first."""
    if sort not in TASK_SORTS:
        raise InvalidValue("sort", sort, ", ".join(TASK_SORTS))
    where, parameters = _where(wanted)
    if sort == URGENCY:
        return _by_urgency(where, parameters, cursor, limit)
    column = sort.removeprefix("-")
    expression = _COLUMNS[column]
    direction, compared = ("DESC", "<") if sort.startswith("-") else ("ASC", ">")
    after: tuple[object, ...] = paging.unpack(cursor, _KEYS[column], of=_LIST.format(sort)) or ()
    if after:
        where = f"{where} AND ({expression}, digest) {compared} (%s, %s)"
    rows = row_mapping.TASKS.load(
        f"{where} ORDER BY {expression} {direction}, digest {direction} LIMIT %s",
        [*parameters, *after, paging.checked(limit) + 1],
    )
    return paging.page(
        rows, of=_LIST.format(sort), limit=limit, key=lambda task: _key(task, column)
    )


def tasks_of_each(wanted: TaskFilter, *, most: int) -> list[TaskState]:
    """Return `most` tasks, the last stopped first, of each application some: one of them may have
    very many."""
    where, parameters = _where(wanted)
    since = _COLUMNS["since"]
    newest_first = f"{since} DESC, digest DESC"
    numbered = (
        f"SELECT digest, {since} AS since, row_number() OVER"
        f" (PARTITION BY application ORDER BY {newest_first}) AS place FROM task WHERE {where}"
    )
    first = f"SELECT digest FROM ({numbered}) ORDER BY place, since DESC LIMIT %s"
    condition = f"digest IN ({first}) ORDER BY {newest_first}"
    return row_mapping.TASKS.load(condition, [*parameters, most])


def _where(wanted: TaskFilter) -> tuple[str, list[Any]]:
    """Return the condition of a filter as SQL, and its parameters."""
    by_run = wanted.status in (TaskStatus.RUNNING, NO_RUN)
    where, parameters = sql.where(
        {
            "application": wanted.application,
            "pipeline": wanted.pipeline,
            "status": TaskStatus.RUNNING.value if by_run else wanted.status,
            "fingerprint": wanted.cause,
        }
    )
    if wanted.key:
        where, parameters = f"{where} AND starts_with(key, %s)", [*parameters, wanted.key]
    if wanted.owner is not None:
        owned, of_owner = ownership.owners().tasks_owned_by(wanted.owner)
        where, parameters = f"{where} AND {owned}", [*parameters, *of_owner]
    if wanted.live or by_run:
        threads = row_mapping.THREADS.load_readable("true", [])
        shown = live(threads) if wanted.live else threads
        if by_run:
            instances = live_checkpoints.instances_of(shown)
            runs = wanted.status == TaskStatus.RUNNING
            shown = [each for each in shown if (no_run_since(each, instances) is None) is runs]
        where = f"{where} AND {live_checkpoints.OF_THREADS}"
        parameters = [*parameters, *live_checkpoints.columns_of(shown)]
    return where, parameters


def _by_urgency(
    where: str, parameters: Sequence[Any], cursor: str | None, limit: int
) -> Page[TaskState]:
    """Return stopped tasks, which are few and have an index, then the others by theirs."""
    after = paging.unpack(cursor, tuple[str, datetime, UUID], of=_LIST.format(URGENCY))
    since, rows = _COLUMNS["since"], list[TaskState]()
    most = paging.checked(limit) + 1
    if after is None or after[0]:
        more = "" if after is None else f" AND (status, {since}, digest) > (%s, %s, %s)"
        rows += row_mapping.TASKS.load(
            f"{where} AND {sql.STOPPED}{more} ORDER BY status, {since}, digest LIMIT %s",
            [*parameters, *(after or ()), most],
        )
        after = None
    if len(rows) < most:
        more = "" if after is None else f" AND ({since}, digest) < (%s, %s)"
        rows += row_mapping.TASKS.load(
            f"{where} AND NOT {sql.STOPPED}{more} ORDER BY {since} DESC, digest DESC LIMIT %s",
            [*parameters, *(after or ())[1:], most - len(rows)],
        )
    return paging.page(
        rows,
        of=_LIST.format(URGENCY),
        limit=limit,
        key=lambda task: (task.status.value if task.status.stopped else "", *sort_key(task)),
    )


def _key(task: TaskState, column: str) -> tuple[object, UUID]:
    if column == "since":
        return sort_key(task)
    return task.held if column == "held" else task.failed, UUID(task.id.digest)


def sort_key(task: TaskState) -> tuple[datetime, UUID]:
    """Return the sort key of lists of tasks; the view has it in its column `since`."""
    return task.first_stopped or task.since or _EARLIEST, UUID(task.id.digest)


def stopped_by_group(groups: Iterable[GroupState]) -> Counter[tuple[str, str]]:
    """Return the number of tasks of live checkpoints stopped by each group, by application and
    fingerprint."""
    applications = sorted({group.application for group in groups})
    threads = row_mapping.THREADS.load_readable("application = ANY(%s)", [applications])
    rows = sql.rows(
        "SELECT application, fingerprint, count(*) FROM task"
        f" WHERE {sql.STOPPED} AND {live_checkpoints.OF_THREADS} GROUP BY 1, 2",
        live_checkpoints.columns(threads),
    )
    return Counter({(name, cause): count for name, cause, count in rows})
