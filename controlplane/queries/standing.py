"""How things stand now: reads of the view tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Count, Q, Sum

from controlplane import models, rows
from controlplane.domain.errors import NotFound
from controlplane.domain.states import (
    ENDED,
    ApplicationState,
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
    TaskStatus,
    ThreadState,
    ThreadStatus,
)
from controlplane.queries import cursors, history, operations
from controlplane.queries.answers import (
    GroupDetail,
    Lag,
    Overview,
    Page,
    Pipeline,
    Summary,
    TaskDetail,
)

STOPPED = [TaskStatus.PAUSED.value, TaskStatus.DEAD.value]
_ENDED = [status.value for status in ENDED]
#: How much of each list the overview shows.
GLANCE = 20
_OF_LINES = (
    "(application, pipeline, checkpoint) IN"
    " (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]))"
)


def overview() -> Overview:
    """Return the first page: all applications and what needs somebody."""
    now = datetime.now(UTC)
    last_hour = history.minutes(since=now - timedelta(hours=1), until=now + timedelta(minutes=1))
    stopped = f"{_OF_LINES} AND status = ANY(%s::text[]) ORDER BY since DESC LIMIT %s"
    lines = _lines(_shown(rows.THREADS.load("true", [])))
    return Overview(
        applications=applications(),
        stopped=tuple(rows.TASKS.load(stopped, [*lines, STOPPED, GLANCE])),
        groups=groups(limit=GLANCE).rows,
        open_commands=tuple(rows.COMMANDS.load("open ORDER BY issued_at DESC", [])),
        failed_last_hour=sum(each.count for each in last_hour),
        health=operations.health(),
    )


def applications() -> tuple[Summary, ...]:
    """Return all applications by name."""
    lags = {lag.application: lag for lag in operations.lags()}
    states = rows.APPLICATIONS.load("true ORDER BY name", [])
    return tuple(_summary(state, lags[state.name]) for state in states)


def application(name: str) -> Summary:
    """Return one application; raise NotFound."""
    for state in rows.APPLICATIONS.load("name = %s", [name]):
        return _summary(state, operations.lag(name))
    raise NotFound(f"there is no application {name!r}")


def _summary(state: ApplicationState, lag: Lag) -> Summary:
    name = state.name
    instances = models.Instance.objects.filter(application=name).exclude(status__in=_ENDED)
    alive = instances.aggregate(all=Count("id"), lost=Count("id", filter=Q(lost=True)))
    shown = {(each.pipeline, each.checkpoint) for each in _shown(threads(name))}
    tasks: Counter[str] = Counter()
    for line, counts in _counts(name).items():
        if line in shown:
            tasks.update(counts)
    return Summary(
        state=state,
        paused=tasks[TaskStatus.PAUSED],
        dead=tasks[TaskStatus.DEAD],
        held=tasks["held"],
        instances=alive["all"],
        lost=alive["lost"],
        groups=models.ErrorGroup.objects.filter(application=name).count(),
        open_commands=models.Command.objects.filter(application=name, open=True).count(),
        lag=lag,
    )


def instances(application: str, *, ended: bool = False) -> tuple[InstanceState, ...]:
    """Return the instances that have not ended, newest first; with `ended` those that have."""
    which = "= ANY" if ended else "<> ALL"
    where = (
        f"application = %s AND status {which}(%s::text[]) ORDER BY started_at DESC NULLS LAST, id"
    )
    return tuple(rows.INSTANCES.load(f"{where} LIMIT %s", [application, _ENDED, cursors.MOST_ROWS]))


def threads(application: str) -> tuple[ThreadState, ...]:
    """Return the newest run of each pipeline at each checkpoint, live ones first."""
    where = "application = %s ORDER BY status DESC, pipeline, since DESC NULLS LAST, checkpoint"
    return tuple(rows.THREADS.load(where, [application]))


def pipelines(application: str, *, history: bool = False, limit: int = 500) -> tuple[Pipeline, ...]:
    """Return the task grid: each live checkpoint (with `history` each one) with its tasks.

    A checkpoint is live while its newest run is RUNNING; the newest one of a pipeline is shown
    in any case, so that a dead pipeline does not vanish from its page.
    """
    known = threads(application)
    alive = Counter(each.pipeline for each in known if each.status is ThreadStatus.RUNNING)
    counts = _counts(application)
    return tuple(
        Pipeline(
            thread=thread,
            tasks=tuple(_tasks_of(thread, cursors.bounded(limit))),
            counts={
                status.value: counts.get((thread.pipeline, thread.checkpoint), Counter())[status]
                for status in TaskStatus
            },
            twin=alive[thread.pipeline] > 1,
        )
        for thread in sorted(
            known if history else _shown(known), key=lambda each: (each.pipeline, each.checkpoint)
        )
    )


def _tasks_of(thread: ThreadState, limit: int) -> list[TaskState]:
    return rows.TASKS.load(
        "application = %s AND pipeline = %s AND checkpoint = %s"
        " ORDER BY status = 'RUNNING', key NULLS FIRST, digest LIMIT %s",
        [thread.application, thread.pipeline, thread.checkpoint, limit],
    )


def _counts(application: str) -> dict[tuple[str, str], Counter[str]]:
    """Return the number of tasks by status, and `held`, of each pipeline and checkpoint."""
    found: dict[tuple[str, str], Counter[str]] = {}
    of_application = models.Task.objects.filter(application=application)
    lines = of_application.values_list("pipeline", "checkpoint", "status")
    for pipeline, checkpoint, status, count, held in lines.annotate(Count("digest"), Sum("held")):
        found.setdefault((pipeline, checkpoint), Counter()).update({status: count, "held": held})
    return found


def _shown(known: Sequence[ThreadState]) -> list[ThreadState]:
    """Return the threads that run, and of each pipeline the newest."""
    newest: dict[tuple[str, str], ThreadState] = {}
    beginning = datetime.min.replace(tzinfo=UTC)
    for each in sorted(known, key=lambda each: each.since or beginning):
        newest[(each.application, each.pipeline)] = each
    return [
        each
        for each in known
        if each.status is ThreadStatus.RUNNING or newest[(each.application, each.pipeline)] is each
    ]


def _lines(known: Sequence[ThreadState]) -> list[list[str]]:
    return [
        [each.application for each in known],
        [each.pipeline for each in known],
        [each.checkpoint for each in known],
    ]


def task(digest: str) -> TaskDetail:
    """Return a task by its digest; raise NotFound."""
    state = task_state(digest)
    id = state.id
    lines = "application = %s AND pipeline = %s AND checkpoint = %s"
    found = rows.THREADS.load(lines, [id.application, id.pipeline, id.checkpoint])
    newest = commands(id.application, task=digest, limit=10).rows
    waiting = [command for command in newest if not command.status.final]
    return TaskDetail(
        state=state,
        thread=found[0] if found else None,
        failure=history.event(id.application, state.failure_sequence)
        if state.failure_sequence
        else None,
        open_command=waiting[0] if waiting else None,
        last_command=newest[0] if newest else None,
    )


def task_state(digest: str) -> TaskState:
    """Return the state of a task by its digest; raise NotFound."""
    try:
        found = rows.TASKS.load("digest = %s", [UUID(hex=digest)])
    except ValueError:
        found = []
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    return found[0]


def held(application: str | None = None) -> tuple[TaskState, ...]:
    """Return the tasks that hold records, most records first."""
    where = (
        "held > 0 AND (%s::text IS NULL OR application = %s) ORDER BY held DESC, digest LIMIT %s"
    )
    return tuple(rows.TASKS.load(where, [application, application, cursors.MOST_ROWS]))


def groups(
    application: str | None = None, *, cursor: str | None = None, limit: int = 50
) -> Page[GroupState]:
    """Return error groups, those that failed last first."""
    before = cursors.unpack(cursor, tuple[datetime, str, str])
    where, parameters = cursors.where(
        {"application": application}, "last_seen, application, fingerprint", before
    )
    order = "ORDER BY last_seen DESC, application DESC, fingerprint DESC LIMIT %s"
    found = rows.GROUPS.load(f"{where} {order}", [*parameters, cursors.bounded(limit) + 1])
    return cursors.page(
        found,
        limit=limit,
        key=lambda each: (each.last_seen or each.first_seen, each.application, each.fingerprint),
    )


def group(application: str, fingerprint: str) -> GroupDetail:
    """Return an error group; raise NotFound."""
    found = rows.GROUPS.load("application = %s AND fingerprint = %s", [application, fingerprint])
    if not found:
        raise NotFound(f"there is no error group {application} {fingerprint!r}")
    (state,) = found
    stopped = rows.TASKS.load(
        "application = %s AND status = ANY(%s::text[]) ORDER BY since DESC LIMIT %s",
        [application, STOPPED, cursors.MOST_ROWS],
    )
    return GroupDetail(
        state=state,
        example=history.event(application, state.example_sequence)
        if state.example_sequence
        else None,
        stopped=tuple(
            each
            for each in stopped
            if each.failure is not None and each.failure.fingerprint == fingerprint
        ),
    )


def commands(
    application: str | None = None,
    *,
    task: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[CommandState]:
    """Return commands (of one application, of the task with this digest), newest first."""
    before = cursors.unpack(cursor, tuple[datetime, UUID])
    equal = {"application": application, "task": None if task is None else UUID(hex=task)}
    where, parameters = cursors.where(equal, "issued_at, id", before)
    found = rows.COMMANDS.load(
        f"{where} ORDER BY issued_at DESC, id DESC LIMIT %s",
        [*parameters, cursors.bounded(limit) + 1],
    )
    return cursors.page(found, limit=limit, key=lambda each: (each.issued_at, each.id))


def command(id: UUID) -> CommandState:
    """Return a command; raise NotFound."""
    for state in rows.COMMANDS.load("id = %s", [id]):
        return state
    raise NotFound(f"there is no command {id}")
