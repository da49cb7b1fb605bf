"""The index of dead letters and their totals: written by folds and rebuilds, idempotent by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection

from arrester.controlplane.domain.events import RecordsDeadLettered, StoredEvent
from arrester.controlplane.domain.identity.names import task_id
from arrester.controlplane.domain.wire.dead_letter_columns import dead_letters_of
from arrester.controlplane.domain.wire.failure_columns import Stored, StoredFailures
from arrester.controlplane.models import NO_CAUSE
from arrester.controlplane.store import prepared_statements
from arrester.controlplane.store.column_values import hash_group

ROWS_PER_STATEMENT = 5_000
#: The columns with their types, in the order of `_Row`.
COLUMNS = {
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
TOTAL_COLUMNS = ("task", "cause", "pipeline", "fingerprint", "count")


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
    """Write the dead letters that events report; the stream is locked.

    A dead letter that was reported before is replaced.
    """
    causes: dict[int, str] = {}
    rows: list[_Row] = []
    for each in stored:
        if isinstance(each, StoredFailures) or not isinstance(each.event.data, RecordsDeadLettered):
            continue
        for row in _rows(each, each.event.data, causes):
            rows.append(row)
            if len(rows) == ROWS_PER_STATEMENT:
                _write(application, rows, causes, tables)
                rows.clear()
                causes.clear()
    if rows:
        _write(application, rows, causes, tables)


def _rows(stored: StoredEvent, data: RecordsDeadLettered, causes: dict[int, str]) -> Iterator[_Row]:
    """Yield the rows of an event, and add the error groups to `causes` by their number."""
    application, run = stored.application, stored.event.run
    if run is None:
        return
    listed = dead_letters_of(application, run, data)
    task = task_id(application, run, data.task).digest
    pipeline = key_of_pipeline(application, run.pipeline)
    at = stored.event.occurred_at.isoformat()
    each_one = zip(listed.ids, listed.positions, listed.fingerprints, listed.sizes, strict=True)
    for number, (id, position, fingerprint, size) in enumerate(each_one):
        cause = NO_CAUSE
        if fingerprint is not None:
            cause = hash_group(application, fingerprint)
            causes[cause] = fingerprint
        yield _Row(id.hex(), task, pipeline, cause, position, size, stored.sequence, number, at)


def _write(application: str, rows: Sequence[_Row], causes: dict[int, str], tables: Tables) -> None:
    names = ", ".join(COLUMNS)
    # A text per column: Python would quote an array value by value.
    arrays = ", ".join(f"string_to_array(%s::text, ',', '')::{type}[]" for type in COLUMNS.values())
    sets = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
    changed = "stream, task, cause, pipeline"
    with prepared_statements.cursor() as cursor:
        cursor.execute(
            "WITH reported AS (SELECT DISTINCT ON (each.id) stream.id AS stream, each.*"
            f" FROM stream CROSS JOIN unnest({arrays}) AS each ({names})"
            " WHERE stream.application = %s ORDER BY each.id, each.sequence DESC, number DESC),"
            f" earlier AS (SELECT earlier.* FROM {tables.dead_letters} AS earlier"
            " JOIN reported USING (stream, id)),"
            f" written AS (INSERT INTO {tables.dead_letters} (stream, {names})"
            f" SELECT stream, {names} FROM reported"
            f" ON CONFLICT (stream, id) DO UPDATE SET {sets}),"
            f" change AS (SELECT {changed}, sum(one) AS count FROM (SELECT {changed}, 1 AS one"
            f" FROM reported UNION ALL SELECT {changed}, -1 FROM earlier) AS each"
            f" GROUP BY {changed} HAVING sum(one) <> 0)"
            f" INSERT INTO {tables.totals} AS total (stream, {', '.join(TOTAL_COLUMNS)})"
            " SELECT stream, task, cause, pipeline, fingerprint, count FROM change"
            " LEFT JOIN unnest(%s::bigint[], %s::text[]) AS known (cause, fingerprint)"
            " USING (cause) ON CONFLICT (stream, task, cause)"
            " DO UPDATE SET count = total.count + excluded.count",
            [
                *(_column(rows, index) for index in range(len(COLUMNS))),
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


def _column(rows: Sequence[_Row], index: int) -> str:
    return ",".join("" if row[index] is None else str(row[index]) for row in rows)


def forget(application: str, *, until: int) -> None:
    """Delete the dead letters whose newest event is at a position or before it.

    The stream is locked.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH gone AS (DELETE FROM dead_letter USING stream WHERE stream.id = stream"
            " AND application = %s AND dead_letter.sequence <= %s"
            " RETURNING stream, dead_letter.task, dead_letter.cause),"
            " change AS (SELECT stream, task, cause, count(*) AS count FROM gone GROUP BY 1, 2, 3)"
            " UPDATE dead_letter_total AS total SET count = total.count - change.count FROM change"
            " WHERE (total.stream, total.task, total.cause)"
            " = (change.stream, change.task, change.cause)",
            [application, until],
        )
        cursor.execute(
            "DELETE FROM dead_letter_total WHERE count = 0"
            " AND stream = (SELECT id FROM stream WHERE application = %s)",
            [application],
        )
