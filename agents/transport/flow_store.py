"""The flow of runs on the local disk: counts that wait for a commit, and sums of minutes.

Both are tables in the file of the spool. The counts of a micro-batch are *pending* until it is
known whether Spark has committed it: until then it may be repeated. They are *settled* by one
transaction, which moves them into the sum of their minute; another one turns the sum into an event.
So each is counted once, whenever the process is killed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.domain import durations
from arrester.domain.events import FLOW_COUNTS, Event, FlowMeasured, Run
from arrester.domain.python_versions import UTC, StrEnum

_log = logging.getLogger("arrester.spool")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(FlowMeasured).decode
_SUM_COLUMNS: Final = "checkpoint, epoch, minute, pipeline, instance, measured"
_PENDING_COLUMNS: Final = "checkpoint, epoch, kind, number, pipeline, instance, measured"


class Waits(StrEnum):
    """What pending counts wait for."""

    #: Spark's commit of the micro-batch of this number.
    BATCH = "batch"
    #: The journal entry of this number.
    ENTRY = "entry"


class Measured(NamedTuple):
    """Counts of a run."""

    instance: UUID
    run: Run
    flow: FlowMeasured


class Pending(NamedTuple):
    """Counts of a run that wait for a commit."""

    waits: Waits
    number: int
    measured: Measured

    @property
    def epoch(self) -> int:
        """The number of the run."""
        return self.measured.run.epoch


class FlowStore:
    """The tables of flow in one spool. Methods may be called from any thread.

    They never raise for a disk that fails: what cannot be stored is not counted, and what cannot
    be settled stays pending.
    """

    def __init__(self, database: sqlite3.Connection, lock: threading.RLock) -> None:
        self._database = database
        self._lock = lock
        #: The checkpoints that runs of this process have counted for.
        self.guarded: set[str] = set()
        #: What the disk refused.
        self.write_failures = 0

    def add_pending(self, pending: Pending) -> None:
        """Store counts that wait for a commit, in place of those of an earlier attempt."""
        instance, run, flow = pending.measured
        row = (
            *(run.checkpoint, run.epoch, pending.waits.value, pending.number),
            *(run.pipeline, instance.bytes, _pack(flow)),
        )
        statement = (
            f"INSERT OR REPLACE INTO flow_pending ({_PENDING_COLUMNS}) VALUES (?,?,?,?,?,?,?)"
        )
        self._try(lambda: self._database.execute(statement, row))

    def pending(self, checkpoint: str) -> list[Pending]:
        """Return the counts of a checkpoint that wait for a commit, of any run."""
        query = f"SELECT {_PENDING_COLUMNS} FROM flow_pending WHERE checkpoint = ? ORDER BY number"
        try:
            with self._lock:
                rows = self._database.execute(query, (checkpoint,)).fetchall()
        except sqlite3.Error:  # they are settled later
            return []
        return [_pending_of(row) for row in rows]

    def settle(self, committed: Sequence[Pending], *, repeated: Sequence[Pending] = ()) -> None:
        """Add committed counts to the sums of their minutes; delete those that are repeated."""

        def move() -> None:
            for pending in committed:
                if self._delete(pending):
                    self._add(pending.measured)
            for pending in repeated:
                self._delete(pending)

        if committed or repeated:
            self._try(move)

    def add(self, measured: Measured) -> None:
        """Add counts to the sum of their minute."""
        self._try(lambda: self._add(measured))

    def take(self, now: datetime | None) -> list[Event]:
        """Return the events of all minutes but that of `now`, and delete their sums.

        The caller's transaction contains both, and stores the events. Raises sqlite3.Error.
        """
        minute = None if now is None else _seconds(minute_of(now))
        query = f"SELECT {_SUM_COLUMNS} FROM flow WHERE minute IS NOT ? ORDER BY minute"
        rows = self._database.execute(query, (minute,)).fetchall()
        self._database.execute("DELETE FROM flow WHERE minute IS NOT ?", (minute,))
        return [_event_of(*row) for row in rows]

    def is_empty(self) -> bool:
        """Whether nothing is stored; raises sqlite3.Error."""
        query = "SELECT 1 FROM flow UNION ALL SELECT 1 FROM flow_pending LIMIT 1"
        return self._database.execute(query).fetchone() is None

    def adopt(self, schema: str) -> None:
        """Take over the tables of another spool, in the caller's transaction.

        The file of an earlier version has none. Raises sqlite3.Error.
        """
        names = f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table'"
        tables = {name for (name,) in self._database.execute(names)}
        for table, columns in (("flow", _SUM_COLUMNS), ("flow_pending", _PENDING_COLUMNS)):
            if table in tables:
                self._database.execute(
                    f"INSERT OR IGNORE INTO main.{table} ({columns})"
                    f" SELECT {columns} FROM {schema}.{table}"
                )

    def _delete(self, pending: Pending) -> bool:
        """Delete pending counts; return whether they were there."""
        run = pending.measured.run
        key = (run.checkpoint, run.epoch, pending.waits.value, pending.number)
        is_it = "(checkpoint, epoch, kind, number) = (?, ?, ?, ?)"
        deleted = self._database.execute(f"DELETE FROM flow_pending WHERE {is_it}", key)
        return deleted.rowcount > 0

    def _add(self, measured: Measured) -> None:
        instance, run, flow = measured
        key = (run.checkpoint, run.epoch, _seconds(flow.minute))
        query = "SELECT measured FROM flow WHERE checkpoint = ? AND epoch = ? AND minute = ?"
        earlier = self._database.execute(query, key).fetchone()
        total = flow if earlier is None else added(_unpack(earlier[0]), flow)
        statement = f"INSERT OR REPLACE INTO flow ({_SUM_COLUMNS}) VALUES (?,?,?,?,?,?)"
        row = (*key, run.pipeline, instance.bytes, _pack(total))
        self._database.execute(statement, row)

    def _try(self, work: Callable[[], object]) -> None:
        """Do `work` in one transaction; log the first failure of the disk."""
        try:
            with self._lock:
                self._database.execute("BEGIN IMMEDIATE")
                with self._database:
                    work()
        except sqlite3.Error as exc:
            self.write_failures += 1
            if self.write_failures == 1:
                _log.warning(
                    "what flows through the pipelines cannot be stored (%s); counts are missing",
                    exc,
                )


def minute_of(at: datetime) -> datetime:
    """Return the beginning of the minute of a time."""
    return at.astimezone(UTC).replace(second=0, microsecond=0)


def added(earlier: FlowMeasured, later: FlowMeasured) -> FlowMeasured:
    """Return the sum of two measurements of one minute; the backlog is the later one."""
    counts = {name: getattr(earlier, name) + getattr(later, name) for name in FLOW_COUNTS}
    ends = [each for each in (earlier.last_batch_at, later.last_batch_at) if each is not None]
    newest = earlier if later.backlog is None else later
    return replace(
        later,
        **counts,
        durations=durations.added([earlier.durations, later.durations]),
        last_batch_at=max(ends, default=None),
        backlog=newest.backlog,
        backlog_unit=newest.backlog_unit,
        watermark=earlier.watermark if later.watermark is None else later.watermark,
    )


def _seconds(minute: datetime) -> int:
    return int(minute.timestamp())


def _pending_of(row: Sequence[object]) -> Pending:
    checkpoint, epoch, kind, number, pipeline, instance, measured = row
    return Pending(
        waits=Waits(str(kind)),
        number=int(str(number)),
        measured=_measured(checkpoint, epoch, pipeline, instance, measured),
    )


def _event_of(
    checkpoint: object,
    epoch: object,
    minute: object,
    pipeline: object,
    instance: object,
    measured: object,
) -> Event:
    found = _measured(checkpoint, epoch, pipeline, instance, measured)
    at = found.flow.last_batch_at or found.flow.minute
    return Event(occurred_at=at, instance=found.instance, run=found.run, data=found.flow)


def _measured(
    checkpoint: object, epoch: object, pipeline: object, instance: object, measured: object
) -> Measured:
    assert isinstance(instance, bytes)
    assert isinstance(measured, bytes)
    run = Run(pipeline=str(pipeline), checkpoint=str(checkpoint), epoch=int(str(epoch)))
    return Measured(instance=UUID(bytes=instance), run=run, flow=_unpack(measured))
