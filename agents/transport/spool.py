"""The spool: batches of events on the local disk until the server has committed them.

SQLite in WAL mode: a put survives `kill -9` of the process. After a power failure the newest puts
may be missing; those of pipelines are in the journal and are put again.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from arrester.agents.transport.flow_store import FlowStore
from arrester.agents.transport.spool_file import check_format, connect
from arrester.domain.events import Event, RecordFailed
from arrester.domain.identity.uuids import milliseconds, uuid7
from arrester.domain.python_versions import UTC
from arrester.domain.wire import codec, limits
from arrester.domain.wire.counted_only import counted_only

log = logging.getLogger("arrester.spool")

#: The number of confirmed batch ids that are remembered, newest first.
REMEMBERED = 10_000
#: The size of the batches that may wait in memory while the disk refuses to write.
UNWRITTEN_BYTES = 64 * 2**20
#: The path of a spool in memory, if there is no disk to write to.
MEMORY = ":memory:"
#: The pages that are returned to the disk at a time: 10 MiB, in some milliseconds.
VACUUM_PAGES = 2560


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledBatch:
    """Events as they are sent, under one id; `number` orders them in their spool."""

    number: int
    id: UUID
    events: bytes


@dataclass(frozen=True, slots=True)
class _Unwritten:
    id: UUID
    packed: bytes
    count: int


class Spool:
    """One file, used by one instance; every method may be called from any thread.

    `put` and `is_confirmed` never raise and never wait for Redis. The other methods raise
    sqlite3.Error if the disk fails; the sender tries again later.
    """

    def __init__(self, path: Path, *, id: UUID, limit_bytes: int) -> None:
        self.id = id
        self.path = path
        #: Set by each put; the sender clears it.
        self.wake = threading.Event()
        #: Whether failed records are only counted because the server is overloaded.
        self.counts_only = False
        #: Failed records that were only counted, also because the spool was full.
        self.counted_only = 0
        #: Puts that the disk refused at first.
        self.write_failures = 0
        #: Batches dropped in this process: disk and memory were full. The journal has them.
        self.dropped = 0
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()
        self._unwritten: deque[_Unwritten] = deque()
        self._database = connect(path)
        #: What flows through the runs, until it is an event.
        self.flow = FlowStore(self._database, self._lock)
        self._bytes, self._events = self._measure()

    # ── for publishers of events ─────────────────────────────────────────────────────────────

    def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
        """Store `events` under `batch_id`, after all earlier ones; a repetition has no effect."""
        with self._lock:
            self._unwritten.append(self._pack(batch_id, events))
            self.write()
            self._drop_beyond_memory_limit()
        self.wake.set()

    def is_confirmed(self, batch_id: UUID) -> bool:
        """Return whether the server is known to have the batch; False means unknown."""
        try:
            return self._has("SELECT 1 FROM confirmed WHERE id = ?", batch_id)
        except sqlite3.Error:
            return False

    def is_stored(self, batch_id: UUID) -> bool:
        """Return whether the batch is or was in the file; False for a spool in memory."""
        if str(self.path) == MEMORY:
            return False
        try:
            return self._has("SELECT 1 FROM batch WHERE id = ?", batch_id) or self.is_confirmed(
                batch_id
            )
        except sqlite3.Error:
            return False

    def write(self) -> None:
        """Write the batches that wait in memory, until the disk refuses one."""
        with self._lock:
            try:
                while self._unwritten:
                    self._insert(self._unwritten[0])
                    self._unwritten.popleft()
            except sqlite3.Error as exc:
                self.write_failures += 1
                if self.write_failures == 1:
                    log.warning("%s cannot be written (%s); events wait in memory", self.path, exc)

    def put_flow(self, now: datetime, *, all: bool = False) -> None:
        """Put what flowed in the minutes that are over, or in `all`, as one batch of events.

        The batch and the deletion of what it contains are one transaction.
        """
        try:
            with self._lock:
                with self._transaction():
                    events = self.flow.take(None if all else now)
                    packed = [
                        self._pack(uuid7(now), events[first : first + codec.BATCH_MAX_EVENTS])
                        for first in range(0, len(events), codec.BATCH_MAX_EVENTS)
                    ]
                    for each in packed:
                        self._insert_row(each)
                self._count(packed)
        except sqlite3.Error:
            log.debug("%s: the flow of pipelines is put later", self.path, exc_info=True)

    # ── for the sender ───────────────────────────────────────────────────────────────────────

    def unsent(self, *, most: int, most_bytes: int) -> list[SpooledBatch]:
        """Return the oldest batches that Redis does not have, in order; at least one if any."""
        query = (
            "SELECT number, id, events FROM batch"
            " WHERE number > (SELECT coalesce(max(number), 0) FROM sent) ORDER BY number"
        )
        batches: list[SpooledBatch] = []
        size = 0
        with self._lock, closing(self._database.execute(query)) as rows:
            for number, id, events in rows:
                size += len(events)
                if batches and (len(batches) == most or size > most_bytes):
                    break
                batches.append(SpooledBatch(number=number, id=UUID(bytes=id), events=events))
        return batches

    def last_sent(self) -> UUID | None:
        """Return the newest sent batch: Redis or the server has it, unless Redis lost data."""
        query = "SELECT id FROM sent JOIN batch USING (number) ORDER BY number DESC LIMIT 1"
        with self._lock:
            row = self._database.execute(query).fetchone()
        return None if row is None else UUID(bytes=row[0])

    def mark_sent(self, batches: Iterable[SpooledBatch], entries: Iterable[str]) -> None:
        """Record the stream entries of `batches`."""
        rows = [(batch.number, entry) for batch, entry in zip(batches, entries, strict=False)]
        with self._lock, self._transaction():
            self._database.executemany("INSERT INTO sent (number, entry) VALUES (?, ?)", rows)

    def mark_lost(self) -> int:
        """Mark all batches as unsent; return how many have to be sent again."""
        with self._lock:
            return self._database.execute("DELETE FROM sent").rowcount

    def confirm(self, ids: Iterable[UUID]) -> None:
        """Delete the batches that the server has committed, and remember their ids."""
        rows = [(id.bytes,) for id in dict.fromkeys(ids)]
        known = "SELECT length(events), count FROM batch WHERE id = ?"
        with self._lock:
            with self._transaction():
                deleted = [
                    size_and_count
                    for row in rows
                    for size_and_count in self._database.execute(known, row).fetchall()
                ]
                self._database.executemany(
                    "DELETE FROM sent WHERE number = (SELECT number FROM batch WHERE id = ?)", rows
                )
                self._database.executemany("DELETE FROM batch WHERE id = ?", rows)
                self._database.executemany("INSERT OR IGNORE INTO confirmed (id) VALUES (?)", rows)
                self._database.execute(
                    "DELETE FROM confirmed WHERE number <= (SELECT max(number) FROM confirmed) - ?",
                    (REMEMBERED,),
                )
            # Counted only after the batches are deleted: after a failure they are confirmed again.
            self._bytes -= sum(size for size, _ in deleted)
            self._events -= sum(count for _, count in deleted)

    def shrink(self) -> None:
        """Return some free pages of the file to the disk; a put waits meanwhile."""
        with self._lock:
            # `execute` in place of a script would free one page only.
            self._database.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    # ── for the instance ─────────────────────────────────────────────────────────────────────

    @property
    def events(self) -> int:
        """The number of events that wait for confirmation, in the file and in memory."""
        return self._events + sum(batch.count for batch in list(self._unwritten))

    @property
    def size_bytes(self) -> int:
        """The packed size of the batches in the file, which wait for confirmation."""
        return self._bytes

    def oldest(self) -> datetime | None:
        """When the oldest waiting batch was made, according to its id; None if nothing waits."""
        try:
            with self._lock:
                query = "SELECT id FROM batch ORDER BY number LIMIT 1"
                row = self._database.execute(query).fetchone()
        except sqlite3.Error:
            return None
        if row is None:
            return None
        return datetime.fromtimestamp(milliseconds(UUID(bytes=row[0])) / 1000, UTC)

    def is_empty(self) -> bool:
        """Whether nothing waits; also False if the disk cannot be read."""
        with self._lock:
            try:
                row = self._database.execute("SELECT 1 FROM batch LIMIT 1").fetchone()
                return row is None and not self._unwritten and self.flow.is_empty()
            except sqlite3.Error:
                return False

    def adopt(self, other: Path) -> None:
        """Take over all batches of a dead instance's file, after our own, or none of them."""
        with self._lock:
            self._database.execute("ATTACH ? AS other", (str(other),))
            try:
                check_format(self._database, "other")
                with self._transaction():
                    self._database.execute(
                        "INSERT OR IGNORE INTO batch (id, events, count)"
                        " SELECT id, events, count FROM other.batch ORDER BY number"
                    )
                    self.flow.adopt("other")
            finally:
                self._database.execute("DETACH other")
            self._bytes, self._events = self._measure()
        self.wake.set()

    def close(self) -> None:
        """Write what still waits in memory and close the file."""
        with self._lock:
            self.write()
            self._database.close()

    def _pack(self, id: UUID, events: Sequence[Event]) -> _Unwritten:
        """Return the batch in full if it fits and the server keeps up, else counted only."""
        events = [*map(limits.with_short_texts, events)]
        try:
            packed = None if self.counts_only else codec.encode_batch(events)
            if packed is not None and self._bytes + len(packed) <= self._limit_bytes:
                return _Unwritten(id, packed, len(events))
        except Exception:  # a record that cannot be packed must not break its pipeline
            log.exception("batch %s cannot be packed in full; its records are left out", id)
        reduced = counted_only(events)
        self.counted_only += _failed_records(events) - _failed_records(reduced)
        return _Unwritten(id, codec.encode_batch(reduced), len(reduced))

    def _insert(self, batch: _Unwritten) -> None:
        if not self._has("SELECT 1 FROM confirmed WHERE id = ?", batch.id):
            self._count([batch] if self._insert_row(batch) else [])

    def _insert_row(self, batch: _Unwritten) -> bool:
        statement = "INSERT OR IGNORE INTO batch (id, events, count) VALUES (?, ?, ?)"
        row = (batch.id.bytes, batch.packed, batch.count)
        return self._database.execute(statement, row).rowcount > 0

    def _count(self, inserted: Iterable[_Unwritten]) -> None:
        for batch in inserted:
            self._bytes += len(batch.packed)
            self._events += batch.count

    def _has(self, query: str, id: UUID) -> bool:
        with self._lock:
            return self._database.execute(query, (id.bytes,)).fetchone() is not None

    def _measure(self) -> tuple[int, int]:
        query = "SELECT coalesce(sum(length(events)), 0), coalesce(sum(count), 0) FROM batch"
        size, events = self._database.execute(query).fetchone()
        return size, events

    def _drop_beyond_memory_limit(self) -> None:
        while sum(len(batch.packed) for batch in self._unwritten) > UNWRITTEN_BYTES:
            self._unwritten.pop()
            self.dropped += 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        # The connection commits, or rolls back if the block or the commit raises.
        with self._database:
            yield


def _failed_records(events: Iterable[Event]) -> int:
    return sum(isinstance(event.data, RecordFailed) for event in events)
