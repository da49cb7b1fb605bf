"""The views: moved on with each append, and derived again from the log whenever one wishes.

Both ways fold the same events with the same code, so they give the same rows, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import models as fields
from django.db import transaction

from controlplane import models, rows, store
from controlplane.columns import MOST, fit, saturated
from controlplane.domain.events import FAILED, StoredEvent
from controlplane.domain.names import TaskId
from controlplane.domain.states import ENDED, TaskStatus
from controlplane.domain.stream import StreamState, Subjects, empty, subjects
from controlplane.rows import Row

PROGRESS_EVERY = 50_000


def project(application: str, stored: list[StoredEvent]) -> StreamState:
    """Fold `stored` into the views and return what was touched; the stream is locked."""
    state = _load(application, subjects(application, [each.event for each in stored]))
    state.fold(stored)
    touched = state.touched
    rows.APPLICATIONS.save([state.application])
    rows.TASKS.save(state.tasks[key] for key in touched.tasks)
    rows.THREADS.save(state.threads[key] for key in touched.threads)
    rows.INSTANCES.save(state.instances[key] for key in touched.instances)
    rows.COMMANDS.save(state.commands[key] for key in touched.commands)
    rows.GROUPS.save(state.groups[key] for key in touched.groups)
    buckets = Buckets(application)
    buckets.count(stored)
    _save_counts(models.MinuteCount, buckets.minute_rows())
    _save_counts(models.HourCount, buckets.hour_rows())
    return state


def standing(
    application: str,
    *,
    task: TaskId | None = None,
    command: UUID | None = None,
    group: str | None = None,
) -> StreamState:
    """Return the states that rules look at: what is open, what is alive, and what is meant."""
    state = empty(application)
    for found in rows.APPLICATIONS.load("name = %s", [application]):
        state.application = found
    wanted = "application = %s AND (open OR id = %s)"
    for known in rows.COMMANDS.load(wanted, [application, command]):
        state.commands[known.id] = known
    asked = [part.instance for known in state.commands.values() for part in known.deliveries]
    ended = [status.value for status in ENDED]
    alive = "application = %s AND (status <> ALL(%s::text[]) OR id = ANY(%s::uuid[]))"
    for instance in rows.INSTANCES.load(alive, [application, ended, asked]):
        state.instances[instance.id] = instance
    # Those whose silence may be over, and the one that is meant.
    muted = "application = %s AND (status = 'MUTED' OR fingerprint = %s)"
    for found_group in rows.GROUPS.load(muted, [application, group]):
        state.groups[found_group.fingerprint] = found_group
    if task is not None:
        wished = Subjects(tasks={task.digest: task}, threads={(task.pipeline, task.checkpoint)})
        _load_tasks(state, wished)
        _load_threads(state, wished)
    return state


def _load(application: str, wanted: Subjects) -> StreamState:
    """Return the states that are known of `wanted`, each kind in one read."""
    state = empty(application)
    for found in rows.APPLICATIONS.load("name = %s", [application]):
        state.application = found
    _load_tasks(state, wanted)
    _load_threads(state, wanted)
    mine = "application = %s AND {} = ANY(%s::{}[])"
    for instance in rows.INSTANCES.load(
        mine.format("id", "uuid"), [application, list(wanted.instances)]
    ):
        state.instances[instance.id] = instance
    for command in rows.COMMANDS.load(
        mine.format("id", "uuid"), [application, list(wanted.commands)]
    ):
        state.commands[command.id] = command
    for group in rows.GROUPS.load(
        mine.format("fingerprint", "text"), [application, list(wanted.groups)]
    ):
        state.groups[group.fingerprint] = group
    return state


def _load_tasks(state: StreamState, wanted: Subjects) -> None:
    for task in rows.TASKS.load("digest = ANY(%s::uuid[])", [list(wanted.tasks)]):
        state.tasks[task.id.digest] = task
    for pipeline, checkpoint in wanted.reported:
        for task in rows.TASKS.load(
            "application = %s AND pipeline = %s AND checkpoint = %s AND (status <> %s OR held > 0)",
            [state.application.name, pipeline, checkpoint, TaskStatus.RUNNING.value],
        ):
            state.tasks[task.id.digest] = task


def _load_threads(state: StreamState, wanted: Subjects) -> None:
    lines = sorted(wanted.threads)
    pipelines, checkpoints = [line[0] for line in lines], [line[1] for line in lines]
    for thread in rows.THREADS.load(
        "application = %s AND (pipeline, checkpoint) IN"
        " (SELECT * FROM unnest(%s::text[], %s::text[]))",
        [state.application.name, pipelines, checkpoints],
    ):
        state.threads[(thread.pipeline, thread.checkpoint)] = thread


@dataclass(slots=True)
class Buckets:
    """Failed records of the events that were counted: by minute, pipeline, stage and group; by
    hour and group."""

    application: str
    minutes: dict[tuple[datetime, str, str, str], tuple[int, int]] = field(default_factory=dict)
    hours: dict[tuple[datetime, str], tuple[int, int]] = field(default_factory=dict)

    def count(self, stored: Iterable[StoredEvent]) -> None:
        for each in stored:
            event, run = each.event, each.event.run
            if isinstance(event.data, FAILED) and run is not None and (count := event.data.count):
                minute = event.occurred_at.replace(second=0, microsecond=0)
                failure = event.data.failure
                mark = failure.fingerprint
                key = (minute, run.pipeline, fit(failure.stage), mark)
                self.minutes[key] = (self.minutes.get(key, (0, 0))[0] + count, each.sequence)
                hour = (minute.replace(minute=0), mark)
                self.hours[hour] = (self.hours.get(hour, (0, 0))[0] + count, each.sequence)

    def minute_rows(self) -> list[Row]:
        return [
            {
                "application": self.application,
                "minute": minute,
                "pipeline": pipeline,
                "stage": stage,
                "fingerprint": fingerprint,
                "count": saturated(count),
                "sequence": sequence,
            }
            for (minute, pipeline, stage, fingerprint), (count, sequence) in self.minutes.items()
        ]

    def hour_rows(self) -> list[Row]:
        return [
            {
                "application": self.application,
                "hour": hour,
                "fingerprint": fingerprint,
                "count": saturated(count),
                "sequence": sequence,
            }
            for (hour, fingerprint), (count, sequence) in self.hours.items()
        ]


def _save_counts(model: type[fields.Model], counted: list[Row]) -> None:
    total = f"least({model._meta.db_table}.count::numeric + excluded.count, {MOST})::bigint"
    rows.upsert(model, counted, {"count": total, "sequence": "excluded.sequence"})


Derived = dict[type[fields.Model], list[Row]]
VIEWS: list[type[fields.Model]] = [
    models.Application,
    models.Instance,
    models.Thread,
    models.Task,
    models.Command,
    models.ErrorGroup,
    models.MinuteCount,
    models.HourCount,
]


def derive(application: str, *, progress: Callable[[int], None] = lambda count: None) -> Derived:
    """Return the rows that the log gives, read from its beginning; the stream is locked."""
    state, buckets = empty(application), Buckets(application)
    for count, stored in enumerate(store.read(application), 1):
        state.fold([stored])
        buckets.count([stored])
        if count % PROGRESS_EVERY == 0:
            progress(count)
    derived: Derived = {model: [] for model in VIEWS}
    if state.application.sequence:
        derived[models.Application] = [rows.APPLICATIONS.row(state.application)]
    derived[models.Instance] = [rows.INSTANCES.row(each) for each in state.instances.values()]
    derived[models.Thread] = [rows.THREADS.row(each) for each in state.threads.values()]
    derived[models.Task] = [rows.TASKS.row(each) for each in state.tasks.values()]
    derived[models.Command] = [rows.COMMANDS.row(each) for each in state.commands.values()]
    derived[models.ErrorGroup] = [rows.GROUPS.row(each) for each in state.groups.values()]
    derived[models.MinuteCount] = buckets.minute_rows()
    derived[models.HourCount] = buckets.hour_rows()
    return {model: rows.in_order(model, found) for model, found in derived.items()}


def live(application: str) -> Derived:
    """Return the rows of the views as they are."""
    return {model: rows.live_rows(model, application) for model in VIEWS}


@transaction.atomic
def rebuild(application: str, *, progress: Callable[[int], None] = lambda count: None) -> int:
    """Derive the views again from the log, under the stream's lock; return the position."""
    stream = store.lock(application)
    for model, derived in derive(application, progress=progress).items():
        rows.delete(model, application)
        rows.upsert(model, derived, {"sequence": "excluded.sequence"})
    return stream.sequence


@transaction.atomic
def differences(
    application: str, *, progress: Callable[[int], None] = lambda count: None
) -> list[str]:
    """Return how the live rows differ from what the log gives; empty when they are equal."""
    store.lock(application)
    derived, found = derive(application, progress=progress), live(application)
    return [line for model in VIEWS for line in _compare(model, derived[model], found[model])]


def _compare(model: type[fields.Model], derived: list[Row], found: list[Row]) -> Iterator[str]:
    table = model._meta.db_table
    ours = {rows.key_of(model, row): row for row in derived}
    theirs = {rows.key_of(model, row): row for row in found}
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield f"{table} {key}: the log gives {ours.get(key)}, there is {theirs.get(key)}"
