"""Read actions of people, dead letters, and the history of an error group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

import msgspec
from django.db import connection

from arrester.controlplane.store import column_values
from arrester.controlplane.store.batches import PLACE, next_begin
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.store.log import Newest, fetch, select, type_of
from arrester.domain.events import (
    Data,
    GroupEvent,
    NoteAdded,
    RecordFailed,
    StoredEvent,
)

#: What is done with an error group, as SQL; it has an index.
_ON_GROUPS = ", ".join(str(type_of(cls)) for cls in get_args(GroupEvent | NoteAdded))
_FROM = f"SELECT {PLACE} FROM event JOIN stream ON stream.id = event.stream"
#: Events of a task that are read at once.
PORTION = 1_000
_NEWEST = "ORDER BY occurred_at DESC, application DESC, event.sequence DESC LIMIT %s"


class ActionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions of people to read; None means any."""

    actor: str | None = None
    application: str | None = None
    types: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


def read_actions(wanted: ActionQuery, *, before: Newest | None, limit: int) -> list[StoredEvent]:
    """Return actions of people, newest first."""
    conditions, parameters = _range(wanted.since, wanted.until, before)
    _equal(conditions, parameters, actor=wanted.actor, application=wanted.application)
    if wanted.types is not None:
        conditions.append("type = ANY(%s::int[])")
        parameters.append([column_values.hash_text(name) for name in wanted.types])
    where = " AND ".join(["actor IS NOT NULL", *conditions])
    return fetch(f"{_FROM} WHERE {where} {_NEWEST}", [*parameters, limit])


def read_events(wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], StoredEvent]:
    """Return the events at log positions, without bodies; those that a log lacks are left out."""
    if not wanted:
        return {}
    names, sequences = zip(*wanted, strict=True)
    events = fetch(
        f"SELECT {PLACE} FROM unnest(%s::text[], %s::bigint[]) AS wanted (name, sequence)"
        " JOIN stream ON stream.application = wanted.name"
        " JOIN event ON event.stream = stream.id AND event.sequence = wanted.sequence",
        [list(names), list(sequences)],
    )
    return {(each.application, each.sequence): each for each in events}


def begin_of_log(application: str) -> int | None:
    """Return the first log position that retention has not dropped; None: all is dropped."""
    return next_begin(application, after=0)


def read_examples(task: UUID, *, around: int, limit: int) -> list[StoredEvent]:
    """Return failed records of a task near a log position, newest first."""
    return select(
        "WHERE task = %s AND type = %s AND sequence < %s ORDER BY sequence DESC LIMIT %s",
        [task, type_of(RecordFailed), around + limit, limit],
    )


def read_examples_before(wanted: Sequence[tuple[UUID, int]], *, limit: int) -> list[StoredEvent]:
    """Return the last failed records of each task before a log position, up to `limit` of each."""
    if not wanted:
        return []
    tasks, sequences = zip(*wanted, strict=True)
    return fetch(
        "SELECT found.* FROM unnest(%s::uuid[], %s::bigint[]) AS wanted (task, before)"
        f" CROSS JOIN LATERAL (SELECT {PLACE} FROM event WHERE event.task = wanted.task"
        " AND event.type = %s AND event.sequence < wanted.before"
        " ORDER BY event.sequence DESC LIMIT %s) AS found",
        [list(tasks), list(sequences), type_of(RecordFailed), limit],
    )


def read_of_task(task: UUID, of_type: type[Data]) -> Iterator[StoredEvent]:
    """Yield all events of a type of a task, newest first, without bodies."""
    before = MAX_BIGINT
    while some := select(
        "WHERE task = %s AND type = %s AND sequence < %s ORDER BY sequence DESC LIMIT %s",
        [task, type_of(of_type), before, PORTION],
    ):
        yield from some
        before = some[-1].sequence


def read_group_actions(
    application: str, fingerprint: str, *, before: int | None, limit: int
) -> list[StoredEvent]:
    """Return the actions on an error group, newest first."""
    return select(
        f"WHERE cause = %s AND type IN ({_ON_GROUPS}) AND sequence < %s"
        " ORDER BY sequence DESC LIMIT %s",
        [
            column_values.hash_group(application, fingerprint),
            MAX_BIGINT if before is None else before,
            limit,
        ],
    )


def read_notes_on_command(command: UUID, *, limit: int) -> list[StoredEvent]:
    """Return the notes on a command, newest first."""
    return select(
        "WHERE command = %s AND type = %s ORDER BY sequence DESC LIMIT %s",
        [command, type_of(NoteAdded), limit],
    )


def count_by_task(
    application: str, fingerprint: str, *, limit: int
) -> tuple[dict[UUID, int], bool]:
    """Return the failed records of a group by task, newest first, and whether these are all.

    Only the `limit` newest events are counted.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT task, sum(count), count(*) FROM (SELECT task, count, occurred_at FROM event"
            " WHERE cause = %s AND count IS NOT NULL"
            " ORDER BY occurred_at DESC, sequence DESC LIMIT %s) AS newest"
            " WHERE task IS NOT NULL GROUP BY 1 ORDER BY max(occurred_at) DESC, 1",
            [column_values.hash_group(application, fingerprint), limit],
        )
        rows = cursor.fetchall()
    return {task: int(count) for task, count, _ in rows}, sum(row[2] for row in rows) < limit


def _range(
    since: datetime | None, until: datetime | None, before: Newest | None
) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    parameters: list[Any] = []
    if since is not None:
        conditions.append("occurred_at >= %s")
        parameters.append(since)
    if until is not None:
        conditions.append("occurred_at < %s")
        parameters.append(until)
    if before is not None:
        # The first condition is what the index begins at, the second is exact.
        conditions.append(
            "occurred_at <= %s AND (occurred_at, application, event.sequence) < (%s, %s, %s)"
        )
        parameters += [before[0], *before]
    return conditions, parameters


def _equal(
    conditions: list[str], parameters: list[Any], **columns: str | int | UUID | None
) -> None:
    for column, value in columns.items():
        if value is not None:
            conditions.append(f"{column} = %s")
            parameters.append(value)
