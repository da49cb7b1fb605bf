"""The index of dead letters and their totals: written by folds and rebuilds, idempotent by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from arrester.controlplane.models import NO_CAUSE, OPEN, DeadLetterStatus
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_values import hash_group
from arrester.domain.events import (
    DeadLettersDiscarded,
    RecordsDeadLettered,
    RecordsHeld,
    RecordsRedriven,
    StoredEvent,
)
from arrester.domain.identity.names import task_id
from arrester.domain.wire.dead_letter_columns import (
    dead_letters_of,
    discarded_ids,
    redriven_ids,
)
from arrester.domain.wire.failure_columns import Stored, StoredFailures

ROWS_PER_STATEMENT = 5_000
_HAS_ID = "each.id = ANY (string_to_array(%s::text, ',', '')::uuid[])"
#: The columns of a report with their types, in the order of `_Row`.
_REPORTED = {
    "id": "uuid",
    "task": "uuid",
    "pipeline": "bigint",
    "cause": "bigint",
    "position": "bigint",
    "size": "integer",
    "sequence": "bigint",
    "number": "integer",
    "occurred_at": "timestamptz",
}
COLUMNS = (*_REPORTED, "first_sequence", "status", "redrive", "redrives")
TOTAL_COLUMNS = ("task", "cause", "pipeline", "fingerprint", "count", "waiting")
_OPEN = f"({', '.join(str(int(each)) for each in OPEN)})"


def key_of_pipeline(application: str, pipeline: str) -> int:
    """Return the number of a pipeline of an application."""
    return hash_group(application, pipeline)


class _Row(NamedTuple):
    id: str
    task: str
    pipeline: int
    cause: int
    position: int | None
    size: int | None
    sequence: int
    number: int
    occurred_at: str


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of dead letters and totals: the live ones, or those of a rebuild."""

    dead_letters: str = "dead_letter"
    totals: str = "dead_letter_total"


LIVE = Tables()


def write(application: str, stored: Iterable[Stored], tables: Tables = LIVE) -> None:
    """Write the dead letters that events report, and what became of them; the stream is locked.

    Of a dead letter that was reported before, the newest event counts.
    """
    writer = _Writer(application, tables)
    for each in stored:
        if not isinstance(each, StoredFailures):
            writer.add(each)
    writer.flush()


class _Writer:
    """Writes the events of a fold in their order, many dead letters in one statement."""

    def __init__(self, application: str, tables: Tables) -> None:
        self._application, self._tables = application, tables
        #: The fingerprints of the causes in `_rows`, by number.
        self._causes: dict[int, str] = {}
        #: By id.
        self._rows: dict[str, _Row] = {}
        #: Whether a dead letter is REDRIVEN; None: not read yet.
        self._has_redriven: bool | None = None

    def add(self, stored: StoredEvent) -> None:
        data, run = stored.event.data, stored.event.run
        if isinstance(data, DeadLettersDiscarded):
            self.flush()
            ids = discarded_ids(self._application, data)
            _mark_discarded(self._application, ids, stored.sequence, self._tables)
        if run is None:
            return
        if isinstance(data, RecordsDeadLettered):
            for row, fingerprint in _rows(stored, data):
                known = self._rows.get(row.id)
                if known is not None and known.sequence != row.sequence:
                    # The earlier event is the first one.
                    self.flush()
                self._rows[row.id] = row
                if fingerprint is not None:
                    self._causes[row.cause] = fingerprint
                if len(self._rows) == ROWS_PER_STATEMENT:
                    self.flush()
        elif isinstance(data, RecordsRedriven):
            self.flush()
            ids = redriven_ids(self._application, run, data)
            _mark_redriven(self._application, ids, stored.sequence, data.redrive, self._tables)
            self._has_redriven = True
        elif isinstance(data, RecordsHeld) and self._has_processed(data):
            self.flush()
            task = task_id(self._application, run, data.task).digest
            until = data.processed_until if data.held else None
            _mark_processed(self._application, task, until, self._tables)

    def flush(self) -> None:
        """Write the dead letters so far."""
        if self._rows:
            _write(self._application, [*self._rows.values()], self._causes, self._tables)
            self._rows, self._causes = {}, {}

    def _has_processed(self, data: RecordsHeld) -> bool:
        """Whether redriven records of a task may be processed since."""
        return (not data.held or data.processed_until is not None) and self._redriven_exist()

    def _redriven_exist(self) -> bool:
        if self._has_redriven is None:
            self._has_redriven = _redriven_exist(self._application, self._tables)
        return self._has_redriven


def _rows(stored: StoredEvent, data: RecordsDeadLettered) -> Iterator[tuple[_Row, str | None]]:
    """Yield the rows of an event, each with the fingerprint of its error group."""
    application, run = stored.application, stored.event.run
    if run is None:
        return
    listed = dead_letters_of(application, run, data)
    task = task_id(application, run, data.task).digest
    pipeline = key_of_pipeline(application, run.pipeline)
    at = stored.event.occurred_at.isoformat()
    each_one = zip(listed.ids, listed.positions, listed.fingerprints, listed.sizes, strict=True)
    for number, (id, position, fingerprint, size) in enumerate(each_one):
        cause = NO_CAUSE if fingerprint is None else hash_group(application, fingerprint)
        row = _Row(id.hex(), task, pipeline, cause, position, size, stored.sequence, number, at)
        yield row, fingerprint


def _write(application: str, rows: Sequence[_Row], causes: dict[int, str], tables: Tables) -> None:
    """Write reported dead letters, of which none is twice in `rows`."""
    names = ", ".join(_REPORTED)
    # A text per column: Python would quote an array value by value.
    types = _REPORTED.values()
    arrays = ", ".join(f"string_to_array(%s::text, ',', '')::{type}[]" for type in types)
    sets = ", ".join(f"{name} = excluded.{name}" for name in _REPORTED if name != "id")
    changed = "stream, task, cause, pipeline"
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            "WITH reported AS (SELECT stream.id AS stream, each.*"
            f" FROM stream CROSS JOIN unnest({arrays}) AS each ({names})"
            " WHERE stream.application = %s ORDER BY each.id),"
            f" earlier AS (SELECT {changed}, status FROM {tables.dead_letters} AS earlier"
            " JOIN (SELECT stream, id FROM reported) AS reported USING (stream, id)),"
            f" written AS (INSERT INTO {tables.dead_letters} AS known (stream, {names},"
            f" first_sequence) SELECT stream, {names}, sequence FROM reported"
            f" ON CONFLICT (stream, id) DO UPDATE SET {sets}, status ="
            f" CASE known.status WHEN {DeadLetterStatus.WAITING:d} THEN known.status"
            f" ELSE {DeadLetterStatus.FAILED_AGAIN:d} END),"
            f" change AS (SELECT {changed}, sum(one) AS count, sum(open) AS waiting"
            f" FROM (SELECT {changed}, 1 AS one, 1 AS open FROM reported UNION ALL"
            f" SELECT {changed}, -1, CASE WHEN status IN {_OPEN} THEN -1 ELSE 0 END FROM earlier)"
            f" AS each GROUP BY {changed})"
            f" INSERT INTO {tables.totals} AS total (stream, {', '.join(TOTAL_COLUMNS)})"
            " SELECT stream, task, cause, pipeline, fingerprint, count, waiting FROM change"
            " LEFT JOIN unnest(%s::bigint[], %s::text[]) AS known (cause, fingerprint)"
            " USING (cause) WHERE (count, waiting) <> (0, 0) ON CONFLICT (stream, task, cause)"
            " DO UPDATE SET count = total.count + excluded.count,"
            " waiting = total.waiting + excluded.waiting",
            [
                *(_column(rows, index) for index in range(len(_REPORTED))),
                application,
                list(causes),
                list(causes.values()),
            ],
        )
        cursor.execute(
            f"DELETE FROM {tables.totals} WHERE count = 0"
            " AND stream = (SELECT id FROM stream WHERE application = %s)",
            [application],
        )


def _mark_redriven(
    application: str, ids: Sequence[bytes], sequence: int, redrive: UUID | None, tables: Tables
) -> None:
    """Mark dead letters that were reported before a log position as REDRIVEN."""
    _set_status(
        application,
        tables,
        DeadLetterStatus.REDRIVEN,
        f"{_HAS_ID} AND each.sequence < %s",
        [_listed(ids), sequence],
        ", redrive = %s::uuid, redrives = least(each.redrives + 1, 32767)",
        [redrive],
    )


def _mark_discarded(application: str, ids: Sequence[bytes], sequence: int, tables: Tables) -> None:
    """Mark open dead letters that were reported before a log position as DISCARDED."""
    _set_status(
        application,
        tables,
        DeadLetterStatus.DISCARDED,
        f"{_HAS_ID} AND each.status IN {_OPEN} AND each.sequence < %s",
        [_listed(ids), sequence],
    )


def _mark_processed(application: str, task: str, until: int | None, tables: Tables) -> None:
    """Mark the redriven dead letters of a task as PROCESSED: all, or those up to a position."""
    where = f"each.task = %s AND each.status = {DeadLetterStatus.REDRIVEN:d}"
    values: list[Any] = [task]
    if until is not None:
        where, values = f"{where} AND each.position <= %s", [task, until]
    _set_status(application, tables, DeadLetterStatus.PROCESSED, where, values)


def _set_status(
    application: str,
    tables: Tables,
    status: DeadLetterStatus,
    where: str,
    values: Sequence[Any],
    more: str = "",
    of_more: Sequence[Any] = (),
) -> None:
    """Set the status, which is not an open one, of the dead letters of a condition.

    `more` sets further columns.
    """
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            "WITH chosen AS (SELECT each.stream, each.id, each.task, each.cause, each.status"
            f" FROM {tables.dead_letters} AS each JOIN stream ON stream.id = each.stream"
            f" WHERE stream.application = %s AND {where}),"
            f" changed AS (UPDATE {tables.dead_letters} AS each SET status = {status:d}{more}"
            " FROM chosen WHERE (each.stream, each.id) = (chosen.stream, chosen.id)),"
            " change AS (SELECT stream, task, cause, count(*) AS waiting FROM chosen"
            f" WHERE status IN {_OPEN} GROUP BY 1, 2, 3)"
            f" UPDATE {tables.totals} AS total SET waiting = total.waiting - change.waiting"
            " FROM change WHERE (total.stream, total.task, total.cause)"
            " = (change.stream, change.task, change.cause)",
            [application, *values, *of_more],
        )


def _redriven_exist(application: str, tables: Tables) -> bool:
    [(exist,)] = prepared_statements.rows(
        f"SELECT EXISTS (SELECT FROM {tables.dead_letters} AS each JOIN stream"
        " ON stream.id = each.stream WHERE stream.application = %s"
        f" AND each.status = {DeadLetterStatus.REDRIVEN:d})",
        [application],
    )
    return bool(exist)


def _listed(ids: Sequence[bytes]) -> str:
    return ",".join(id.hex() for id in ids)


def _column(rows: Sequence[_Row], index: int) -> str:
    return ",".join("" if row[index] is None else str(row[index]) for row in rows)


def forget(application: str, *, until: int) -> None:
    """Delete the dead letters whose newest event is at a log position or before it.

    The stream is locked.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH gone AS (DELETE FROM dead_letter USING stream WHERE stream.id = stream"
            " AND application = %s AND dead_letter.sequence <= %s"
            " RETURNING stream, dead_letter.task, dead_letter.cause, dead_letter.status),"
            " change AS (SELECT stream, task, cause, count(*) AS count,"
            f" count(*) FILTER (WHERE status IN {_OPEN}) AS waiting"
            " FROM gone GROUP BY 1, 2, 3)"
            " UPDATE dead_letter_total AS total SET count = total.count - change.count,"
            " waiting = total.waiting - change.waiting FROM change"
            " WHERE (total.stream, total.task, total.cause)"
            " = (change.stream, change.task, change.cause)",
            [application, until],
        )
        cursor.execute(
            "DELETE FROM dead_letter_total WHERE count = 0"
            " AND stream = (SELECT id FROM stream WHERE application = %s)",
            [application],
        )
