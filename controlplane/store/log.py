"""Every way of reading the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection
from msgspec.structs import replace

from controlplane.columns import MOST
from controlplane.domain import wire
from controlplane.domain.errors import NotFound
from controlplane.domain.events import (
    Event,
    Run,
    StoredEvent,
)
from controlplane.store.bodies import body_of

#: What a stored event is made of again; the other columns are only searched by.
_STORED = (
    "application, sequence, received_at, occurred_at, schema_version, batch, instance,"
    " pipeline, checkpoint, epoch, caused_by, data"
)
#: What a row of the database is before it is a StoredEvent, and what a statement is given.
Row = tuple[Any, ...]
Parameter = Any


def read(
    application: str,
    *,
    after: int = 0,
    until: int = MOST,
    about: Mapping[str, str | UUID] | None = None,
    chunk: int = 2000,
) -> Iterator[StoredEvent]:
    """Return the log in order, without bodies, a chunk at a time.

    With `about`, only events that are of no task, or whose columns are equal to any of these.
    """
    condition, wanted = _about(about)
    while True:
        rows = select(
            f"WHERE application = %s AND sequence > %s AND sequence <= %s{condition}"
            " ORDER BY sequence LIMIT %s",
            [application, after, until, *wanted, chunk],
        )
        yield from rows
        if len(rows) < chunk:
            return
        after = rows[-1].sequence


def follow(positions: Mapping[str, int], *, limit: int) -> list[StoredEvent]:
    """Return events of several logs that stand behind a position of each, without bodies.

    In the order of each log; every log that has more gets its share of about `limit` events.
    """
    if not positions:
        return []
    share = max(1, limit // len(positions))
    return fetch(
        "SELECT found.* FROM unnest(%s::text[], %s::bigint[]) AS wanted (name, after)"
        f" CROSS JOIN LATERAL (SELECT {_STORED} FROM event WHERE application = wanted.name"
        " AND sequence > wanted.after ORDER BY sequence LIMIT %s) AS found"
        " ORDER BY received_at, application, sequence",
        [list(positions), list(positions.values()), share],
    )


def _about(about: Mapping[str, str | UUID] | None) -> tuple[str, list[Parameter]]:
    if about is None:
        return "", []
    conditions = ["task IS NULL", *(f"{column} = %s" for column in about)]
    return f" AND ({' OR '.join(conditions)})", list(about.values())


def position_at(application: str, moment: datetime) -> int:
    """Return the last position whose event had come by `moment`; 0 where none had."""
    day = moment.astimezone(UTC).date()
    ends = "SELECT min(sequence), max(sequence) FROM event WHERE application = %s AND day"
    with connection.cursor() as cursor:
        cursor.execute(f"{ends} = %s", [application, day])
        first, last = cursor.fetchone()
        if first is not None:
            before, after = first - 1, last + 1
            # Times stand in the order of positions, so they need no index of their own.
            while after - before > 1:
                middle = (before + after) // 2
                cursor.execute(
                    "SELECT sequence, received_at FROM event WHERE application = %s AND day = %s"
                    " AND sequence >= %s ORDER BY sequence LIMIT 1",
                    [application, day, middle],
                )
                found, received_at = cursor.fetchone()
                before, after = (found, after) if received_at <= moment else (before, middle)
            if before >= first:
                return int(before)
        cursor.execute(f"{ends} < %s", [application, day])
        return int(cursor.fetchone()[1] or 0)


def last_before(application: str, day: date) -> tuple[int, datetime] | None:
    """Return the position and the time of the last event that came before a day, if any did."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequence, received_at FROM event WHERE application = %s AND day < %s"
            " ORDER BY sequence DESC LIMIT 1",
            [application, day],
        )
        found = cursor.fetchone()
    return None if found is None else (found[0], found[1])


def read_one(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound."""
    found = select("WHERE application = %s AND sequence = %s", [application, sequence])
    if not found:
        raise NotFound(f"there is no event {application} @ {sequence}")
    (stored,) = found
    return replace(stored, event=replace(stored.event, body=body_of(stored)))


def read_about(
    application: str, *, task: UUID, commands: Sequence[UUID], before: int | None, limit: int
) -> list[StoredEvent]:
    """Return what happened to a task and to the commands for it, newest first."""
    end = MOST if before is None else before
    page = "AND sequence < %s ORDER BY sequence DESC LIMIT %s"
    # Two index scans: one condition with OR would read and sort all of the task's history.
    own = select(f"WHERE task = %s {page}", [task, end, limit])
    others = select(
        f"WHERE application = %s AND command = ANY(%s::uuid[]) AND task IS DISTINCT FROM %s {page}",
        [application, list(commands), task, end, limit],
    )
    return sorted([*own, *others], key=lambda each: each.sequence, reverse=True)[:limit]


#: What changed a state, among the many events that only count; as the indexes have it.
_TURNS = "count IS NULL AND type NOT IN ('RetriesCounted', 'RecordsHeld', 'RecordsDeadLettered')"


def read_turns(application: str, *, before: int | None, limit: int) -> list[StoredEvent]:
    """Return what changed a state in an application, newest first."""
    return select(
        f"WHERE application = %s AND sequence < %s AND {_TURNS} ORDER BY sequence DESC LIMIT %s",
        [application, MOST if before is None else before, limit],
    )


def read_task_turns(task: UUID, *, before: int | None, limit: int) -> list[StoredEvent]:
    """Return what changed a task's state, or was commanded for it, newest first."""
    return select(
        f"WHERE task = %s AND sequence < %s AND {_TURNS} ORDER BY sequence DESC LIMIT %s",
        [task, MOST if before is None else before, limit],
    )


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures to read: columns that must be equal, and a range of `occurred_at`."""

    applications: Sequence[str]
    equal: Mapping[str, str | UUID]
    #: (application, fingerprint) of the groups that it can only be; None: it may be any.
    groups: Sequence[tuple[str, str]] | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: The row that the page before this one ended with: occurred_at, application, sequence.
    before: tuple[datetime, str, int] | None = None


def read_next(stored: StoredEvent, *, newer: bool) -> int | None:
    """Return the next RecordFailed of the same group that is newer, or older, by sequence."""
    failure = getattr(stored.event.data, "failure", None)
    if failure is None:
        return None
    than, order = (">", "ASC") if newer else ("<", "DESC")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequence FROM event WHERE application = %s AND fingerprint = %s"
            f" AND count IS NOT NULL AND type = 'RecordFailed' AND (occurred_at, sequence) {than}"
            f" (%s, %s) ORDER BY occurred_at {order}, sequence {order} LIMIT 1",
            [stored.application, failure.fingerprint, stored.event.occurred_at, stored.sequence],
        )
        found = cursor.fetchone()
    return None if found is None else int(found[0])


def read_failures(wanted: Failures, *, limit: int) -> list[StoredEvent]:
    """Return failures, those that occurred last first, without bodies."""
    conditions = ["application = name", "count IS NOT NULL"]
    scans, parameters = _scans(wanted)
    if wanted.groups is not None:
        conditions.append("fingerprint = cause")
    for column, value in wanted.equal.items():
        conditions.append(f"{column} = %s")
        parameters.append(value)
    if wanted.since is not None:
        conditions.append("occurred_at >= %s")
        parameters.append(wanted.since)
    if wanted.until is not None:
        conditions.append("occurred_at < %s")
        parameters.append(wanted.until)
    if wanted.before is not None:
        # The first condition is what the index begins at, the second is exact.
        conditions.append(
            "occurred_at <= %s AND (occurred_at, application, sequence) < (%s, %s, %s)"
        )
        parameters += [wanted.before[0], *wanted.before]
    # One short index scan for each application or group, whatever the others' size.
    statement = (
        f"SELECT found.* FROM {scans} CROSS JOIN LATERAL ("
        f"SELECT {_STORED} FROM event WHERE {' AND '.join(conditions)}"
        " ORDER BY occurred_at DESC, sequence DESC LIMIT %s) AS found"
        " ORDER BY occurred_at DESC, application DESC, sequence DESC LIMIT %s"
    )
    return fetch(statement, [*parameters, limit, limit])


def _scans(wanted: Failures) -> tuple[str, list[Parameter]]:
    if wanted.groups is None:
        return "unnest(%s::text[]) AS name", [list(wanted.applications)]
    names = [application for application, _ in wanted.groups]
    causes = [fingerprint for _, fingerprint in wanted.groups]
    return "unnest(%s::text[], %s::text[]) AS wanted(name, cause)", [names, causes]


def select(where: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    """Return the events that a condition, in SQL, selects."""
    return fetch(f"SELECT {_STORED} FROM event {where}", parameters)


def fetch(statement: str, parameters: Sequence[Parameter]) -> list[StoredEvent]:
    """Return the events that a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [_stored(row) for row in cursor.fetchall()]


def _stored(row: Row) -> StoredEvent:
    (application, sequence, received_at, occurred_at, schema_version, batch, *rest) = row
    instance, pipeline, checkpoint, epoch, caused_by, data = rest
    run = None if pipeline is None else Run(pipeline=pipeline, checkpoint=checkpoint, epoch=epoch)
    event = Event(
        occurred_at=occurred_at,
        data=wire.decode_data(bytes(data)),
        instance=instance,
        run=run,
        caused_by=caused_by,
        schema_version=schema_version,
    )
    return StoredEvent(
        application=application,
        sequence=sequence,
        received_at=received_at,
        batch=batch,
        event=event,
    )
