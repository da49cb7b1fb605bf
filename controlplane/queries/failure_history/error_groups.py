"""Error groups: filtered, sorted and counted, with their history and affected tasks.

Each needs a fixed number of statements for any number of groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import connection

from arrester.controlplane import store
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import CommandKind, StoredEvent
from arrester.controlplane.domain.identity import uuids
from arrester.controlplane.domain.state.states import GroupState, GroupStatus, TaskState
from arrester.controlplane.models.views import about
from arrester.controlplane.queries import cursors
from arrester.controlplane.queries.current_state import live_runs
from arrester.controlplane.queries.filters import GroupFilter
from arrester.controlplane.queries.results import Affected, Page, Paused
from arrester.controlplane.store.column_limits import fit
from arrester.controlplane.views import row_mapping

#: The sort columns of a list; with `-` before the name, the largest is first.
SORTS = ("last_seen", "first_seen", "count", "exception_class")
NEWEST = "-last_seen"
#: The number of newest failures of a group that are read to find affected tasks.
LOOKED_AT = 5000
#: Searched in the JSON text: a quote in a message is escaped, so no message can look like a key.
#: First in the whole text, which contains class and message: extracting the message takes far
#: longer.
_CONTAINS = r"""strpos(lower(state), lower(%s)) > 0
    AND (strpos(lower(exception_class), lower(%s)) > 0
    OR strpos(lower(substring(state from '"message":"((?:[^"\\]|\\.)*)"')), lower(%s)) > 0)"""
_ABOUT = about("%s::timestamptz")
_KEYS: dict[str, Any] = {
    "last_seen": tuple[str, datetime, str, str],
    "first_seen": tuple[str, datetime, str, str],
    "count": tuple[str, int, str, str],
    "exception_class": tuple[str, str, str, str],
}


def groups(
    wanted: GroupFilter | None = None,
    *,
    sort: str = NEWEST,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[GroupState]:
    """Return error groups, by default the last failed first."""
    column = sort.removeprefix("-")
    if column not in SORTS:
        allowed = ", ".join(f"{name}, -{name}" for name in SORTS)
        raise InvalidValue("sort", sort, allowed)
    conditions, parameters = _where(wanted or GroupFilter())
    way, than = ("DESC", "<") if sort.startswith("-") else ("ASC", ">")
    keys = [column, "application", "fingerprint"]
    before = cursors.unpack(cursor, _KEYS[column])
    if before is not None:
        if before[0] != sort:
            raise InvalidValue("cursor", cursor, f"one of a list that is sorted by {sort}")
        conditions.append(f"({', '.join(keys)}) {than} (%s, %s, %s)")
        parameters += before[1:]
        if column == "last_seen":
            conditions.append(f"seen_about {than}= {_ABOUT}")
            parameters.append(before[1])
    # Rows that the index does not distinguish are sorted when they are read.
    by = ["seen_about", *keys] if column == "last_seen" else keys
    found = row_mapping.GROUPS.load(
        f"{' AND '.join(conditions)} ORDER BY {', '.join(f'{key} {way}' for key in by)} LIMIT %s",
        [*parameters, cursors.bounded(limit) + 1],
    )
    return cursors.page(
        found,
        limit=limit,
        key=lambda each: (sort, _value(each, column), each.application, each.fingerprint),
    )


def _value(state: GroupState, column: str) -> object:
    value = getattr(state, column)
    return fit(value) if column == "exception_class" else value


def group_counts(wanted: GroupFilter | None = None) -> Counter[str]:
    """Return the number of groups in each state, regardless of the state in `wanted`."""
    conditions, parameters = _where(msgspec.structs.replace(wanted or GroupFilter(), state=None))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT status, count(*) FROM error_group WHERE {' AND '.join(conditions)} GROUP BY 1",
            parameters,
        )
        return Counter(dict(cursor.fetchall()))


def _where(wanted: GroupFilter) -> tuple[list[str], list[Any]]:
    conditions = ["first_seen IS NOT NULL"]
    parameters: list[Any] = []
    equal = {"application": wanted.application, "status": wanted.state, "stage": wanted.stage}
    for column, value in equal.items():
        if value is not None:
            conditions.append(f"{column} = %s")
            parameters.append(fit(value))
    if wanted.exception_class is not None:
        # With or without its package.
        conditions.append(r"(exception_class = %s OR exception_class LIKE %s)")
        name = fit(wanted.exception_class)
        parameters += [name, f"%.{_literally(name)}"]
    if wanted.text is not None:
        conditions.append(_CONTAINS)
        written = _as_written(wanted.text)
        parameters += [written, fit(wanted.text), written]
    if wanted.since is not None:
        conditions.append(f"seen_about >= {_ABOUT} AND last_seen >= %s")
        parameters += [wanted.since, wanted.since]
    if wanted.until is not None:
        conditions.append("first_seen < %s")
        parameters.append(wanted.until)
    return conditions, parameters


def _literally(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _as_written(text: str) -> str:
    """Return `text` as it is written inside of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def stages(application: str | None = None) -> tuple[str, ...]:
    """Return the stages that any group has, by name."""
    where, parameters = cursors.where({"application": application}, "application", None)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT stage FROM error_group"
            f" WHERE first_seen IS NOT NULL AND {where} ORDER BY 1 LIMIT 200",
            parameters,
        )
        return tuple(stage for (stage,) in cursor.fetchall())


def group_history(
    application: str, fingerprint: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the acts on a group, the ends of mutes, and its notes, newest first."""
    before = cursors.unpack(cursor, int)
    found = store.read_group_actions(
        application, fingerprint, before=before, limit=cursors.bounded(limit) + 1
    )
    return cursors.page(found, limit=limit, key=lambda each: each.sequence)


def affected(application: str, fingerprint: str) -> Affected:
    """Return the tasks with failures of this cause, the last failed first."""
    counts, complete = store.count_by_task(application, fingerprint, limit=LOOKED_AT)
    states = {
        UUID(each.id.digest): each
        for each in row_mapping.TASKS.load("digest = ANY(%s::uuid[])", [list(counts)])
    }
    tasks: Sequence[tuple[TaskState, int]] = [
        (states[digest], count) for digest, count in counts.items() if digest in states
    ]
    return Affected(tasks=tuple(tasks), complete=complete)


def groups_of(events: Iterable[StoredEvent | None]) -> dict[tuple[str, str], GroupState]:
    """Return the error groups of events, by application and fingerprint."""
    marks = {
        (each.application, mark)
        for each in events
        if each is not None and (mark := getattr(each.event.data, "fingerprint", None))
    }
    return groups_by_key(marks)


def groups_by_key(keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], GroupState]:
    """Return those of some error groups that exist, by application and fingerprint."""
    where = "(application, fingerprint) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
    columns = [[name for name, _ in keys], [mark for _, mark in keys]]
    found = row_mapping.GROUPS.readable(where, columns)
    return {(each.application, each.fingerprint): each for each in found}


def paused(application: str, *, fingerprint: str | None = None, limit: int = 500) -> Paused:
    """Return the PAUSED tasks of live checkpoints, of one cause if given.

    Without those that have an open command. Raises NotFound for an unknown application.
    """
    store.read_stream(application)
    known = row_mapping.THREADS.load("application = %s", [application])
    where = (
        f"{live_runs.OF_LINES} AND status = 'PAUSED' AND (%s::text IS NULL OR fingerprint = %s)"
        " AND NOT EXISTS (SELECT FROM command WHERE command.task = task.digest AND command.open)"
    )
    parameters = [*live_runs.columns(live_runs.shown(known)), fingerprint, fingerprint]
    found = row_mapping.TASKS.load(
        f"{where} ORDER BY since, digest LIMIT %s", [*parameters, cursors.bounded(limit)]
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM task WHERE {where}", parameters)
        (count,) = cursor.fetchone()
    return Paused(tasks=tuple(found), left=count - len(found))


def paused_of(digests: Sequence[str]) -> Paused:
    """Return those of some tasks that are PAUSED and have no open command."""
    where = (
        "digest = ANY(%s::uuid[]) AND status = 'PAUSED'"
        " AND NOT EXISTS (SELECT FROM command WHERE command.task = task.digest AND command.open)"
        " ORDER BY since, digest"
    )
    return Paused(tasks=tuple(row_mapping.TASKS.load(where, [list(digests)])), left=0)


def resumed_by(act: UUID, application: str) -> list[str]:
    """Return the digests of the tasks that an act has resumed; empty if it is a new one.

    Acts are known as long as batches are.
    """
    known = timedelta(days=settings.ENVIRONMENT.replay_days)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, task FROM command"
            " WHERE application = %s AND kind = %s AND issued_at > %s AND task IS NOT NULL"
            " ORDER BY task",
            [application, CommandKind.RESUME_TASK.value, datetime.now(UTC) - known],
        )
        return [task.hex for id, task in cursor.fetchall() if id == uuids.part_of(act, task.hex)]


def quiet_groups(application: str | None = None) -> dict[str, int]:
    """Return the number of groups that lists omit by default, by state."""
    quiet = [GroupStatus.MUTED.value, GroupStatus.RESOLVED.value]
    where, parameters = cursors.where({"application": application}, "application", None)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT status, count(*) FROM error_group WHERE first_seen IS NOT NULL"
            f" AND status = ANY(%s::text[]) AND {where} GROUP BY 1",
            [quiet, *parameters],
        )
        return dict.fromkeys(quiet, 0) | dict(cursor.fetchall())
