"""The streams: the length of each log, the cursor of its Redis stream, and the locks."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from uuid import UUID

import msgspec
from django.db import Error, OperationalError, connection
from msgspec.structs import replace
from psycopg.errors import LockNotAvailable

from arrester.controlplane.store import prepared_statements
from arrester.domain.errors import NotFound

#: The place before the first entry of a stream in Redis.
BEGINNING = "0-0"
#: The first of the two keys of our advisory locks, distinct from other programs' keys.
_FOLD_LOCK, _MAINTENANCE_LOCK, _HOUSEKEEPING_LOCK, _SNAPSHOT_LOCK = 0x4152, 0x414D, 0x4148, 0x414B
_ALERT_LOCK, _AGENT_USER_LOCK = 0x4141, 0x4155


class LogStream(msgspec.Struct, frozen=True, kw_only=True):
    """An application's log when it was read; see the table's description."""

    #: Used in place of the name in tables with many rows.
    id: int
    application: str
    cursor: str
    generation: int
    sequence: int
    #: When the newest event was received; None if there is none.
    received_at: datetime | None = None

    def moment(self, now: datetime) -> datetime:
        """Return `now`, or the time of the newest event if the clock went back: times in a log
        never decrease."""
        return now if self.received_at is None else max(now, self.received_at)


_COLUMNS = "id, application, cursor, generation, sequence, received_at"


def open_stream(application: str) -> None:
    """Create the application's log if it is missing."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO stream (application, cursor, generation, sequence)"
            " VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING",
            [application, BEGINNING],
        )


def read_stream(application: str) -> LogStream:
    """Return the stream without a lock; raise NotFound."""
    return _query_stream(application, f"SELECT {_COLUMNS} FROM stream WHERE application = %s")()


def lock(application: str) -> LogStream:
    """Return the stream, locked until the transaction ends; raise NotFound."""
    return send_lock(application)()


class StreamLocked(Exception):
    """Another process holds the lock of a stream for longer than was waited."""


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Wait for the locks of streams for so long in the block, then raise StreamLocked: one slow
    fold must not hold up what is done for all applications."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{seconds:g}s"])
    try:
        yield
    except OperationalError as exc:
        if isinstance(exc.__cause__, LockNotAvailable):
            raise StreamLocked(str(exc)) from exc
        raise
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")


def limit_statements(seconds: float) -> None:
    """Let each statement of this transaction take so long at most, in a pipeline too."""
    prepared_statements.cursor().execute(
        "SELECT set_config('statement_timeout', %s, true)", [f"{int(seconds * 1000)}ms"]
    )


def send_lock(application: str) -> Callable[[], LogStream]:
    """Lock the stream in a pipeline; the returned function gives it afterwards, or raises
    NotFound."""
    return _query_stream(
        application, f"SELECT {_COLUMNS} FROM stream WHERE application = %s FOR UPDATE"
    )


def all_streams() -> list[LogStream]:
    """Return all streams by name."""
    return list(
        map(
            _stream, prepared_statements.rows(f"SELECT {_COLUMNS} FROM stream ORDER BY application")
        )
    )


def move_cursor(stream: LogStream, *, cursor: str) -> LogStream:
    """Advance the cursor of a locked stream: entries up to it are in the log."""
    _set_cursor(stream.application, cursor, generation=stream.generation)
    return replace(stream, cursor=cursor)


def reset_cursor(stream: LogStream) -> LogStream:
    """Begin a new generation of a locked stream: Redis has lost the entry of the cursor."""
    _set_cursor(stream.application, BEGINNING, generation=stream.generation + 1)
    return replace(stream, cursor=BEGINNING, generation=stream.generation + 1)


def seen_batches(application: str, batches: Collection[UUID]) -> set[UUID]:
    """Return which of `batches` are in the log; call it under the stream's lock."""
    return send_seen_batches(application, batches)()


def send_seen_batches(application: str, batches: Collection[UUID]) -> Callable[[], set[UUID]]:
    """Query in a pipeline which of `batches` are in the log; the returned function gives them
    afterwards."""
    cursor = prepared_statements.cursor()
    cursor.execute(
        "SELECT batch FROM batch_seen WHERE application = %s AND batch = ANY(%s::uuid[])",
        [application, list(batches)],
    )
    return lambda: {batch for (batch,) in cursor.fetchall()}


def batch_ids_since() -> date | None:
    """Return the day before which batch ids were dropped, or None.

    Call it after `seen_batches` in the same transaction: retention waits for its lock.
    """
    with prepared_statements.cursor() as cursor:
        cursor.execute("SELECT since FROM ids_kept")
        row = cursor.fetchone()
    return None if row is None else row[0]


def copy_in(table: str, columns: Mapping[str, str], rows: Iterable[Sequence[object]]) -> None:
    """Copy `rows` into the columns of `table`, which are given with their types."""
    with copying_in(table, columns, rows):
        pass


@contextmanager
def copying_in(
    table: str, columns: Mapping[str, str], rows: Iterable[Sequence[object]]
) -> Iterator[None]:
    """Like `copy_in`, but PostgreSQL works while the block runs; the block cannot query it."""
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.copy(statement) as copy,
    ):
        copy.set_types(list(columns.values()))
        for row in rows:
            copy.write_row(row)
        yield


@contextmanager
def maintenance_lock(application: str) -> Iterator[None]:
    """Hold the lock of rebuilds and bases of an application; wait for it. Folds continue."""
    key = _key(application)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, %s)", [_MAINTENANCE_LOCK, key])
    try:
        yield
    finally:
        _unlock(_MAINTENANCE_LOCK, key)


def try_maintenance_lock(application: str) -> AbstractContextManager[bool]:
    """Like `maintenance_lock`, but yield False if it is held: a waiting worker folds nothing."""
    return _try_lock(_MAINTENANCE_LOCK, _key(application))


def try_housekeeping_lock() -> AbstractContextManager[bool]:
    """Hold the housekeeping lock; yield False if it is held."""
    return _try_lock(_HOUSEKEEPING_LOCK, 0)


def try_alert_lock() -> bool:
    """Take the lock of alerts until the transaction ends; return False if it is held."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, 0)", [_ALERT_LOCK])
        (acquired,) = cursor.fetchone()
    return bool(acquired)


def wait_for_agent_user_lock() -> None:
    """Take the lock of the Redis users of agents until the transaction ends; wait for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [_AGENT_USER_LOCK])


def try_snapshot_lock(application: str) -> bool:
    """Take the snapshot lock of an application until the transaction ends.

    Return False if another snapshot or a rebuild holds it.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_try_advisory_xact_lock(%s, %s)", [_SNAPSHOT_LOCK, _key(application)]
        )
        (acquired,) = cursor.fetchone()
    return bool(acquired)


def wait_for_snapshot_lock(application: str) -> None:
    """Take the snapshot lock until the transaction ends; wait for it.

    Do not call it under the stream's lock: folds would wait, too.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_SNAPSHOT_LOCK, _key(application)])


def try_fold_lock(application: str) -> AbstractContextManager[bool]:
    """Hold the advisory lock of a stream; yield False if it is held.

    The lock only avoids duplicate work: the row lock of the stream decides what is appended. A
    worker without the lock folds nothing, so a lost holder must be detected soon: `settings.TCP`
    detects a lost host, `terminate_stuck_fold` a suspended process.
    """
    return _try_lock(_FOLD_LOCK, _key(application))


def terminate_stuck_fold(application: str, *, seconds: float) -> bool:
    """End the connection that holds a stream's lock if its process was silent for `seconds`.

    Return whether there was one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = %s"
            " AND objid = %s AND datname = current_database() AND database = datid"
            " AND wait_event = 'ClientRead' AND state_change < now() - %s * interval '1 second'",
            [_FOLD_LOCK, _key(application) & 0xFFFF_FFFF, seconds],
        )
        return bool(cursor.fetchall())


@contextmanager
def _try_lock(lock_class: int, key: int) -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock_class, key])
        (acquired,) = cursor.fetchone()
    try:
        yield acquired
    finally:
        if acquired:
            _unlock(lock_class, key)


def _key(application: str) -> int:
    return zlib.crc32(application.encode()) - 2**31


def _unlock(lock_class: int, key: int) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock_class, key])
    except Error:
        # A lost connection has released the lock; a broken one must not keep it.
        connection.close()


def _query_stream(application: str, statement: str) -> Callable[[], LogStream]:
    cursor = prepared_statements.cursor()
    cursor.execute(statement, [application])

    def answer() -> LogStream:
        row = cursor.fetchone()
        if row is None:
            raise NotFound(f"there is no application {application!r}")
        return _stream(row)

    return answer


def _stream(row: tuple[int, str, str, int, int, datetime | None]) -> LogStream:
    id, application, cursor, generation, sequence, received_at = row
    return LogStream(
        id=id,
        application=application,
        cursor=cursor,
        generation=generation,
        sequence=sequence,
        received_at=received_at,
    )


def _set_cursor(application: str, cursor: str, *, generation: int) -> None:
    with prepared_statements.cursor() as statement:
        statement.execute(
            "UPDATE stream SET cursor = %s, generation = %s WHERE application = %s",
            [cursor, generation, application],
        )
