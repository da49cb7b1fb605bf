"""The views of states: the columns of each, the mapping of its rows, and reads of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import connection
from django.db import models as fields
from psycopg.pq import Format

from arrester.controlplane import models
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_values import ANY, fit, fit_or_none, saturated
from arrester.controlplane.views.bulk_upsert import Row, column_types, key_columns
from arrester.controlplane.views.view_mapping import ViewMapping
from arrester.domain.errors import NotFound
from arrester.domain.state.states import (
    ApplicationState,
    CommandState,
    GroupState,
    InstanceState,
    TaskState,
    ThreadState,
    if_set,
)

#: Rows of a result that are made at once.
ROWS_AT_ONCE = 1_000


def live_rows(model: type[fields.Model], application: str) -> list[Row]:
    """Return all rows of an application in the order of their key."""
    return in_order(model, list(each_live_row(model, application)))


def each_live_row(model: type[fields.Model], application: str, *, after: int = 0) -> Iterator[Row]:
    """Yield the rows of an application; with a log position only those changed later."""
    types = column_types(model)
    later = " AND sequence > %s" if after else ""
    with prepared_statements.cursor() as cursor:
        # In binary: Python parses a time that comes as text.
        cursor.cursor.format = Format.BINARY
        cursor.execute(
            f"SELECT {', '.join(types)} FROM {model._meta.db_table}"
            f" WHERE {owner(model)} = %s{later}",
            [application, after] if after else [application],
        )
        while some := cursor.fetchmany(ROWS_AT_ONCE):
            for values in some:
                yield dict(zip(types, values, strict=True))


def in_order(model: type[fields.Model], rows: list[Row]) -> list[Row]:
    """Return `rows` in the order of their key."""
    return sorted(rows, key=lambda row: key_of(model, row))


def key_of(model: type[fields.Model], row: Row) -> tuple[str, ...]:
    """Return the key of `row` as texts, which sort and compare."""
    return tuple(str(row[name]) for name in key_columns(model))


def delete(model: type[fields.Model], application: str) -> None:
    """Delete all rows of an application."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {model._meta.db_table} WHERE {owner(model)} = %s", [application]
        )


def delete_empty(model: type[fields.Model], application: str) -> None:
    """Delete the rows of an application that count nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {model._meta.db_table} WHERE {owner(model)} = %s AND count <= 0",
            [application],
        )


def owner(model: type[fields.Model]) -> str:
    """Return the column that names the application."""
    return "name" if model is models.Application else "application"


def _hyphened(digest: str) -> str:
    """Return a digest as PostgreSQL writes a uuid, in a quarter of the time of Python's."""
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def _application(state: ApplicationState) -> Row:
    return {"name": state.name, "status": state.status.value}


def _instance(state: InstanceState) -> Row:
    return {
        "application": state.application,
        "id": state.id,
        "status": state.status.value,
        "lost": state.lost,
        "started_at": state.started_at,
    }


def _thread(state: ThreadState) -> Row:
    return {
        "application": state.application,
        "pipeline": state.pipeline,
        "checkpoint": state.checkpoint,
        "epoch": state.epoch,
        "status": state.status.value,
        "since": state.since,
    }


def _task(state: TaskState) -> Row:
    return {
        "digest": UUID(state.id.digest),
        "application": state.id.application,
        "pipeline": state.id.pipeline,
        "checkpoint": state.id.checkpoint,
        "key": fit_or_none(state.id.key),
        "status": state.status.value,
        # Lists are sorted by the first stop: a retry that fails again makes no task younger.
        "since": state.first_stopped or state.since,
        "failed": saturated(state.failed),
        "held": state.held,
        "fingerprint": None if state.failure is None else state.failure.fingerprint,
    }


def _command(state: CommandState) -> Row:
    return {
        "application": state.application,
        "id": state.id,
        "kind": state.kind.value,
        "actor": fit(state.actor),
        "task": None if state.task is None else UUID(state.task.digest),
        "status": state.status.value,
        "open": not state.status.final,
        "issued_at": state.issued_at,
        "part_of": if_set(state.part_of),
    }


def _group(state: GroupState) -> Row:
    return {
        "application": state.application,
        "fingerprint": state.fingerprint,
        "stage": fit(state.stage),
        "exception_class": fit(state.exception_class),
        "other_classes": _other_classes(state),
        "pipeline": state.pipeline,
        "status": state.status.value,
        "count": saturated(state.count),
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }


def _other_classes(state: GroupState) -> list[str] | None:
    """Return the indexed value: most groups have no further classes, and are not in the index."""
    if state.other_classes is None:
        return None if state.condition is None else [ANY]
    return [fit(each) for each in state.other_classes] or None


APPLICATIONS = ViewMapping(
    model=models.Application,
    state=ApplicationState,
    columns=_application,
    key=lambda state: state.name,
    key_sql="name",
    states=lambda stream: {stream.application.name: stream.application},
    changed=lambda stream: [stream.application.name],
    parse_key=str,
)
INSTANCES = ViewMapping(
    model=models.Instance,
    state=InstanceState,
    columns=_instance,
    key=lambda state: str(state.id),
    key_sql="id::text",
    states=lambda stream: stream.instances,
    changed=lambda stream: stream.changed_keys.instances,
    parse_key=UUID,
)
THREADS = ViewMapping(
    model=models.Thread,
    state=ThreadState,
    columns=_thread,
    # Neither of the two contains a space.
    key=lambda state: f"{state.pipeline} {state.checkpoint}",
    key_sql="pipeline || ' ' || checkpoint",
    states=lambda stream: stream.threads,
    changed=lambda stream: stream.changed_keys.threads,
    parse_key=lambda key: tuple(key.split(" ")),
)
TASKS = ViewMapping(
    model=models.Task,
    state=TaskState,
    columns=_task,
    key=lambda state: _hyphened(state.id.digest),
    key_sql="digest::text",
    states=lambda stream: stream.tasks,
    changed=lambda stream: stream.changed_keys.tasks,
    parse_key=lambda key: UUID(key).hex,
)
COMMANDS = ViewMapping(
    model=models.Command,
    state=CommandState,
    columns=_command,
    key=lambda state: str(state.id),
    key_sql="id::text",
    states=lambda stream: stream.commands,
    changed=lambda stream: stream.changed_keys.commands,
    parse_key=UUID,
)
GROUPS = ViewMapping(
    model=models.ErrorGroup,
    state=GroupState,
    columns=_group,
    key=lambda state: state.fingerprint,
    key_sql="fingerprint",
    states=lambda stream: stream.groups,
    changed=lambda stream: stream.changed_keys.groups,
    parse_key=str,
)
#: Every view that holds states.
STATES: tuple[ViewMapping[Any], ...] = (APPLICATIONS, INSTANCES, THREADS, TASKS, COMMANDS, GROUPS)


def task_state(digest: str) -> TaskState:
    """Return the state of a task by its digest; raise NotFound."""
    try:
        tasks = TASKS.load("digest = %s", [UUID(hex=digest)])
    except ValueError:
        tasks = []
    if not tasks:
        raise NotFound(f"there is no task {digest!r}")
    return tasks[0]


#: Whether the newest run of a pipeline belongs to an instance. Its id is searched in the JSON text
#: of all runs, once for all instances: a quote inside of a string is escaped.
OWNS_A_RUN = """((application, id::text) IN (SELECT thread.application,
    coalesce(substring(thread.state from '"instance":"([0-9a-f-]{36})"'), '') FROM thread))"""
