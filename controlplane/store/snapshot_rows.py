"""States at log positions: snapshots, and the bases that logs begin at.

Each position stores the states that changed since the position before it, so the newest state of a
key up to a position is the one as of that position. This module does not interpret states.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec
from django.db import connection

from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_values import MAX_BIGINT
from arrester.controlplane.store.streams import copy_in

#: Each event changes the state of this kind, so it has a row at every stored position.
EVERY_POSITION = "application"
_STATE_COLUMNS = {
    "application": "text",
    "kind": "text",
    "key": "text",
    "position": "int8",
    "state": "text",
}
#: States are in a base or in a snapshot, or in both if a base has a snapshot's position.
_BOTH = (
    "(SELECT * FROM base_state WHERE application = %(application)s AND position <= %(position)s"
    " {wanted} UNION ALL"
    " SELECT * FROM snapshot WHERE application = %(application)s AND position <= %(position)s"
    " {wanted}) AS kept"
)


class LogBeginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log of an application begins; before its first base, at position 0."""

    position: int = 0
    #: When the event at the position came.
    received_at: datetime | None = None


class StoredState(NamedTuple):
    """A state as stored: the name of its view, its key there, and the state as JSON."""

    kind: str
    key: str
    state: str


def base(application: str) -> LogBeginning:
    """Return the position after which the log can be read."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT position, received_at FROM base WHERE application = %s"
            " ORDER BY position DESC LIMIT 1",
            [application],
        )
        row = cursor.fetchone()
    return LogBeginning() if row is None else LogBeginning(position=row[0], received_at=row[1])


def bases() -> dict[str, LogBeginning]:
    """Return the newest base of each application that has one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (application) application, position, received_at FROM base"
            " ORDER BY application, position DESC"
        )
        return {
            name: LogBeginning(position=position, received_at=received_at)
            for name, position, received_at in cursor.fetchall()
        }


def nearest_snapshot(application: str, position: int) -> int:
    """Return the newest position with stored states up to `position`, or 0."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(position), 0) FROM"
            f" {_BOTH.format(wanted='AND kind = %(kind)s AND key = %(application)s')}",
            {"application": application, "position": position, "kind": EVERY_POSITION},
        )
        (newest,) = cursor.fetchone()
    return int(newest)


def states_at(application: str, position: int, *, kind: str | None = None) -> list[StoredState]:
    """Return all states (of one kind) as of a position that `nearest_snapshot` returned."""
    wanted = "" if kind is None else "AND kind = %(kind)s"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (kind, key) kind, key, state FROM"
            f" {_BOTH.format(wanted=wanted)} ORDER BY kind, key, position DESC",
            {"application": application, "position": position, "kind": kind},
        )
        return [StoredState(*row) for row in cursor.fetchall()]


def base_states(application: str) -> list[StoredState]:
    """Return the states of the newest base of an application."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (kind, key) kind, key, state FROM base_state"
            " WHERE application = %s ORDER BY kind, key, position DESC",
            [application],
        )
        return [StoredState(*row) for row in cursor.fetchall()]


def save_base(
    application: str,
    position: int,
    states: Iterable[StoredState],
    *,
    received_at: datetime,
    now: datetime,
) -> None:
    """Store a base: the states that changed since the base before, and its position."""
    copy_in("base_state", _STATE_COLUMNS, _at_position(application, position, states))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO base (application, position, received_at, made_at)"
            " VALUES (%s, %s, %s, %s)",
            [application, position, received_at, now],
        )


def delete_base_buckets(application: str, *, before: datetime) -> None:
    """Delete the chart buckets before a time from a base."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_forget_buckets(%s, %s)", [application, before])


def delete_old_states() -> None:
    """Delete states that a newer base replaces, and snapshots before a base."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT arrester_forget_old_states()")


def next_snapshot(application: str, *, after: int) -> int | None:
    """Return the first position after `after` that has a snapshot, or None."""
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            "SELECT min(position) FROM snapshot WHERE application = %s AND position > %s",
            [application, after],
        )
        (position,) = cursor.fetchone()
    return None if position is None else int(position)


def snapshot_states(application: str, position: int) -> list[StoredState]:
    """Return the states in the snapshot of a position: those changed since the one before."""
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            "SELECT kind, key, state FROM snapshot WHERE application = %s AND position = %s",
            [application, position],
        )
        return [StoredState(*row) for row in cursor.fetchall()]


def delete_snapshots(application: str, *, but: Collection[int]) -> None:
    """Delete the snapshots of an application, except those of some positions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE there (position) AS ("
            " SELECT min(position) FROM snapshot WHERE application = %(application)s"
            " UNION ALL SELECT (SELECT min(position) FROM snapshot"
            " WHERE application = %(application)s AND position > there.position)"
            " FROM there WHERE position IS NOT NULL)"
            " SELECT position FROM there WHERE position IS NOT NULL",
            {"application": application},
        )
        positions = {position for (position,) in cursor.fetchall()} - set(but)
        if positions:
            cursor.execute(
                "DELETE FROM snapshot WHERE application = %s AND position = ANY(%s)",
                [application, sorted(positions)],
            )


def snapshot_views(application: str, *, every: int, views: Mapping[str, tuple[str, str]]) -> None:
    """Store a snapshot of the changed rows of views if the last one is `every` events old; callers
    hold the snapshot lock.

    `views` gives, by table, the column that names the application and the SQL of a row's key. It is
    one statement, so it needs no lock of the stream: it sees the log's length, the views and
    earlier snapshots as one transaction left them.
    """
    changed = " UNION ALL ".join(
        f"SELECT {owner}, '{table}', {key}, due.position, state FROM {table}"
        f" WHERE {owner} = %(application)s AND sequence > due.last"
        for table, (owner, key) in views.items()
    )
    last = _BOTH.format(wanted="AND kind = %(kind)s AND key = %(application)s")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO snapshot (application, kind, key, position, state) SELECT made.* FROM ("
            "SELECT stream.sequence AS position, ("
            f"SELECT coalesce(max(position), 0) FROM {last}) AS last"
            " FROM stream WHERE application = %(application)s OFFSET 0) AS due"
            f" CROSS JOIN LATERAL ({changed}) AS made WHERE due.position >= due.last + %(every)s",
            {
                "application": application,
                "kind": EVERY_POSITION,
                "position": MAX_BIGINT,
                "every": every,
            },
        )


def _at_position(
    application: str, position: int, states: Iterable[StoredState]
) -> Iterator[tuple[str, str, str, int, str]]:
    return ((application, each.kind, each.key, position, each.state) for each in states)
