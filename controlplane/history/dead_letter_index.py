"""The index of dead letters in a rebuild: derived beside the live tables, compared by PostgreSQL.

It can have millions of rows, which Python does not load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection

from arrester.controlplane import store
from arrester.controlplane.models import DeadLetterStatus
from arrester.controlplane.views import dead_letters
from arrester.controlplane.views.dead_letters import LIVE, Tables
from arrester.domain.wire.failure_columns import Stored

#: At most this many differences of each table are listed.
LISTED = 1_000
_DERIVED = Tables("shadow_dead_letter", "shadow_dead_letter_total")
#: The live table, the derived one, the key within the application, and the other columns.
_TABLES = (
    (LIVE.dead_letters, _DERIVED.dead_letters, ("id",), dead_letters.COLUMNS),
    (LIVE.totals, _DERIVED.totals, ("task", "cause"), dead_letters.TOTAL_COLUMNS),
)
_IS_OF = "stream = (SELECT id FROM stream WHERE application = %s)"


@contextmanager
def deriving(application: str) -> Iterator[DerivedIndex]:
    """Have an index to derive while the block runs; the rebuild's lock is held."""
    index = DerivedIndex(application)
    index.clear()
    yield index
    index.clear()


@dataclass(frozen=True, slots=True)
class DerivedIndex:
    """The index derived from the events so far."""

    application: str

    def clear(self) -> None:
        """Delete the derived rows, also those of a rebuild that ended early."""
        with connection.cursor() as cursor:
            for _, derived, _, _ in _TABLES:
                cursor.execute(f"DELETE FROM {derived} WHERE {_IS_OF}", [self.application])

    def add(self, stored: Iterable[Stored]) -> None:
        """Add the dead letters of events."""
        dead_letters.write(self.application, stored, _DERIVED)

    def differences(self) -> Iterator[str]:
        """Yield how the live rows differ; the stream is locked."""
        self._add_dropped()
        for live, derived, key, columns in _TABLES:
            names, keys = ", ".join(columns), ", ".join(key)
            with connection.cursor() as cursor:
                cursor.execute(
                    f"SELECT coalesce(live.key, derived.key), derived.row, live.row FROM"
                    f" (SELECT ({keys})::text AS key, ({names})::text AS row FROM {live}"
                    f" WHERE {_IS_OF}) AS live FULL JOIN"
                    f" (SELECT ({keys})::text AS key, ({names})::text AS row FROM {derived}"
                    f" WHERE {_IS_OF}) AS derived USING (key)"
                    " WHERE live.row IS DISTINCT FROM derived.row ORDER BY 1 LIMIT %s",
                    [self.application, self.application, LISTED],
                )
                for of_key, wanted, there in cursor.fetchall():
                    yield f"{live} {of_key}: the log gives {wanted}, there is {there}"

    def swap(self) -> None:
        """Replace the live rows that differ; the stream is locked."""
        self._add_dropped()
        for live, derived, key, columns in _TABLES:
            names = ", ".join(columns)
            sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
            there = ", ".join(f"{live}.{name}" for name in columns)
            wanted = ", ".join(f"excluded.{name}" for name in columns)
            same_key = " AND ".join(f"{derived}.{name} = {live}.{name}" for name in key)
            with connection.cursor() as cursor:
                cursor.execute(
                    f"DELETE FROM {live} WHERE {_IS_OF}"
                    f" AND NOT EXISTS (SELECT FROM {derived} WHERE {derived}.stream = {live}.stream"
                    f" AND {same_key})",
                    [self.application],
                )
                cursor.execute(
                    f"INSERT INTO {live} (stream, {names}) SELECT stream, {names} FROM {derived}"
                    f" WHERE {_IS_OF} ON CONFLICT (stream, {', '.join(key)}) DO UPDATE SET {sets}"
                    f" WHERE ({there}) IS DISTINCT FROM ({wanted})",
                    [self.application],
                )

    def _add_dropped(self) -> None:
        """Add what only events before the base have reported about dead letters that are newer."""
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE shadow_dead_letter AS derived SET first_sequence = live.first_sequence,"
                " redrive = coalesce(derived.redrive, live.redrive),"
                " redrives = greatest(derived.redrives, live.redrives),"
                f" status = CASE WHEN derived.status = {DeadLetterStatus.WAITING:d}"
                f" AND live.status = {DeadLetterStatus.FAILED_AGAIN:d}"
                " THEN live.status ELSE derived.status END"
                " FROM dead_letter AS live JOIN stream ON stream.id = live.stream"
                " WHERE stream.application = %s"
                " AND (derived.stream, derived.id) = (live.stream, live.id)"
                " AND live.first_sequence < derived.first_sequence AND live.first_sequence <= %s",
                [self.application, store.base(self.application).position],
            )
