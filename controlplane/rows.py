"""How each state is laid out as a row of its view, and the SQL that reads and writes such rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from django.db import connection
from django.db import models as fields
from django.db.backends.utils import CursorWrapper

from controlplane import models, prepared
from controlplane.columns import fit, fit_or_none, saturated
from controlplane.domain.errors import NotFound
from controlplane.domain.states import (
    ApplicationState,
    CommandState,
    GroupState,
    InstanceState,
    State,
    TaskState,
    ThreadState,
)

ROWS_PER_STATEMENT = 5000
S = TypeVar("S", bound=State)
Value = str | int | bool | UUID | datetime | None
Row = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Generic[S]):
    """A view's table, the state that its rows hold, and the columns beside that state."""

    model: type[models.View]
    state: type[S]
    columns: Callable[[S], Row]
    #: The key beside the application as one text, of a state and in SQL of its row.
    key: Callable[[S], str]
    key_sql: str

    @property
    def table(self) -> str:
        """The name of the view's table."""
        return self.model._meta.db_table

    def row(self, state: S) -> Row:
        """Return the whole row of `state`."""
        text = msgspec.json.encode(state).decode()
        return self.columns(state) | {"sequence": state.sequence, "state": text}

    def load(self, where: str, parameters: list[Any]) -> list[S]:
        """Return the states of the rows that `where` selects."""
        return self._loaded(connection.cursor(), where, parameters)

    def load_often(self, where: str, parameters: list[Any]) -> list[S]:
        """Like `load`, for what each fold asks: see `prepared`."""
        return self._loaded(prepared.cursor(), where, parameters)

    def _loaded(self, cursor: CursorWrapper, where: str, parameters: list[Any]) -> list[S]:
        with cursor:
            cursor.execute(f"SELECT state FROM {self.table} WHERE {where}", parameters)
            return [msgspec.json.decode(text, type=self.state) for (text,) in cursor.fetchall()]

    def save(self, states: Iterable[S]) -> None:
        """Insert the rows of `states`, or replace those that are there, in one statement."""
        changes = {name: f"excluded.{name}" for name in column_types(self.model)}
        upsert(self.model, [self.row(state) for state in states], changes)


def upsert(model: type[fields.Model], rows: Sequence[Row], changes: Mapping[str, str]) -> None:
    """Insert `rows`; where the key is taken, set each column of `changes` to its expression."""
    columns, key = ", ".join(column_types(model)), key_columns(model)
    sets = ", ".join(f"{name} = {to}" for name, to in changes.items() if name not in key)
    table = model._meta.db_table
    # As one JSON text: an array for each column would be quoted value by value, in Python.
    statement = (
        f"INSERT INTO {table} ({columns})"
        f" SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s)"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"
    )
    with prepared.cursor() as cursor:
        for begin in range(0, len(rows), ROWS_PER_STATEMENT):
            some = rows[begin : begin + ROWS_PER_STATEMENT]
            cursor.execute(statement, [msgspec.json.encode(some).decode()])


def live_rows(model: type[fields.Model], application: str) -> list[Row]:
    """Return all rows of an application in the order of their key."""
    types = column_types(model)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(types)} FROM {model._meta.db_table} WHERE {owner(model)} = %s",
            [application],
        )
        rows = [dict(zip(types, values, strict=True)) for values in cursor.fetchall()]
    return in_order(model, rows)


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


@cache
def column_types(model: type[fields.Model]) -> dict[str, str]:
    """Return the columns of a table with their types."""
    found = {field.column: field.db_type(connection) for field in model._meta.concrete_fields}
    return {name: type for name, type in found.items() if name and type}


@cache
def key_columns(model: type[fields.Model]) -> list[str]:
    """Return the columns of a table's key."""
    return [field.column for field in model._meta.pk_fields if field.column]


def owner(model: type[fields.Model]) -> str:
    """Return the column that names the application."""
    return "name" if model is models.Application else "application"


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
        "since": state.since,
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
    }


def _group(state: GroupState) -> Row:
    return {
        "application": state.application,
        "fingerprint": state.fingerprint,
        "stage": fit(state.stage),
        "exception_class": fit(state.exception_class),
        "pipeline": state.pipeline,
        "status": state.status.value,
        "count": saturated(state.count),
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }


APPLICATIONS = View(
    model=models.Application,
    state=ApplicationState,
    columns=_application,
    key=lambda state: state.name,
    key_sql="name",
)
INSTANCES = View(
    model=models.Instance,
    state=InstanceState,
    columns=_instance,
    key=lambda state: str(state.id),
    key_sql="id::text",
)
THREADS = View(
    model=models.Thread,
    state=ThreadState,
    columns=_thread,
    # Neither of the two has a space in it.
    key=lambda state: f"{state.pipeline} {state.checkpoint}",
    key_sql="pipeline || ' ' || checkpoint",
)
TASKS = View(
    model=models.Task,
    state=TaskState,
    columns=_task,
    key=lambda state: str(UUID(state.id.digest)),
    key_sql="digest::text",
)
COMMANDS = View(
    model=models.Command,
    state=CommandState,
    columns=_command,
    key=lambda state: str(state.id),
    key_sql="id::text",
)
GROUPS = View(
    model=models.ErrorGroup,
    state=GroupState,
    columns=_group,
    key=lambda state: state.fingerprint,
    key_sql="fingerprint",
)
#: Every view that holds states.
STATES: tuple[View[Any], ...] = (APPLICATIONS, INSTANCES, THREADS, TASKS, COMMANDS, GROUPS)


def task_state(digest: str) -> TaskState:
    """Return the state of a task by its digest; raise NotFound."""
    try:
        found = TASKS.load("digest = %s", [UUID(hex=digest)])
    except ValueError:
        found = []
    if not found:
        raise NotFound(f"there is no task {digest!r}")
    return found[0]


#: Whether the newest run of a pipeline is of an instance. Its id is looked for in the JSON text of
#: all runs, once for all instances: a quote inside of a string is escaped.
RUNS = """((application, id::text) IN (SELECT thread.application,
    coalesce(substring(thread.state from '"instance":"([0-9a-f-]{36})"'), '') FROM thread))"""
