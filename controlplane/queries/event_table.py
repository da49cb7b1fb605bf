"""Events as a Parquet file, made in row groups: memory does not grow with the file.

The rows are the events of the feed. Fields of failures and of tasks are columns, and `data` has all
fields of an event as JSON.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from arrester.controlplane import store
from arrester.controlplane.queries import event_lines
from arrester.domain.errors import ArresterError, BeforeHistory
from arrester.domain.events import Failure, FailuresCounted, RecordFailed, StoredEvent

#: A row group ends after so many events of the log, or so many bytes of their data.
GROUP_EVENTS, GROUP_BYTES = 30_000, 16 * 2**20
#: The columns with their types of Arrow; see docs/how-to/send-events.md.
COLUMNS = {
    "application": "dictionary",
    "sequence": "int64",
    "received_at": "timestamp",
    "occurred_at": "timestamp",
    "type": "dictionary",
    "instance": "dictionary",
    "pipeline": "dictionary",
    "checkpoint": "dictionary",
    "epoch": "int64",
    "caused_by": "string",
    "task": "string",
    "position": "int64",
    "key": "string",
    "failed": "int64",
    "response": "dictionary",
    "stage": "dictionary",
    "exception_class": "dictionary",
    "condition": "dictionary",
    "field": "dictionary",
    "message": "string",
    "fingerprint": "dictionary",
    "frame": "dictionary",
    "attempts": "int64",
    "data": "string",
}


class NotInstalled(ArresterError):
    """A library of an extra is missing. The message has what to install."""


class _Range(NamedTuple):
    """The events of a log after one position up to another."""

    application: str
    after: int
    until: int


class _Buffer(io.RawIOBase):
    """A file that only grows, and forgets what was taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes."""
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """Return the size of the whole file."""
        return self._size

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken


class ParquetFile:
    """The file of a range of events, in parts."""

    def __init__(
        self,
        application: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        type: str | None = None,
    ) -> None:
        """Begin the file of the events that were received after `since` and up to `until`.

        Raises:
            NotInstalled: there is no pyarrow.
            BeforeHistory: the log no longer has all events after `since`.
            NotFound: there is no such application.
        """
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise NotInstalled(
                "The server has no pyarrow: install arrester[files] where the web process runs."
            ) from None
        streams = [store.read_stream(application)] if application else store.all_streams()
        bases = store.bases()
        self._type = type
        self._ranges = deque(
            _range(each, bases.get(each.application, store.LogBeginning()), since, until)
            for each in streams
        )
        self._buffer = _Buffer()
        self._schema = pyarrow.schema([(name, _types()[kind]) for name, kind in COLUMNS.items()])
        self._writer: Any = parquet.ParquetWriter(
            pyarrow.PythonFile(self._buffer, mode="w"), self._schema, compression="zstd"
        )

    def next_part(self) -> bytes | None:
        """Return the next bytes; None after the end of the file.

        Raises BeforeHistory if retention has dropped events that were to follow.
        """
        if self._writer is None:
            return None
        while self._ranges:
            rows = self._next_events()
            if rows:
                self._write(rows)
                return self._buffer.take()
        self._writer.close()
        self._writer = None
        return self._buffer.take()

    def _next_events(self) -> list[StoredEvent]:
        """Return the next events of the requested type; there may be none among those read."""
        application, after, until = self._ranges.popleft()
        found: list[StoredEvent] = []
        size, end = 0, min(until, after + GROUP_EVENTS)
        for stored in store.read(application, after=after, until=end):
            if stored.sequence != after + 1:
                break
            after = stored.sequence
            if self._type in (None, stored.event.type):
                found.append(stored)
                size += len(event_lines.data_of(stored.event))
                if size >= GROUP_BYTES:
                    end = after
                    break
        if after < end:
            # Log positions have no gaps: retention has dropped events.
            begin = store.base(application)
            raise BeforeHistory(application, position=begin.position, moment=begin.received_at)
        if end < until:
            self._ranges.appendleft(_Range(application, end, until))
        return found

    def _write(self, events: Sequence[StoredEvent]) -> None:
        import pyarrow

        columns = zip(*map(_row, events), strict=True)
        arrays = [
            pyarrow.array(values, field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))


def _types() -> dict[str, Any]:
    import pyarrow

    return {
        "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
        "int64": pyarrow.int64(),
        "string": pyarrow.string(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
    }


def _range(
    stream: store.LogStream,
    base: store.LogBeginning,
    since: datetime | None,
    until: datetime | None,
) -> _Range:
    """Return the range of a log between two times; raise BeforeHistory."""
    name, after, end = stream.application, base.position, stream.sequence
    if since is not None:
        if base.received_at is not None and since < base.received_at:
            raise BeforeHistory(name, position=base.position, moment=base.received_at)
        after = max(after, store.position_at(name, since))
    if until is not None:
        end = min(end, store.position_at(name, until))
    return _Range(name, after, max(after, end))


def _row(stored: StoredEvent) -> tuple[Any, ...]:
    """Return the values of COLUMNS."""
    event, data = stored.event, stored.event.data
    run, failure = event.run, getattr(data, "failure", None)
    counted: tuple[int | None, str | None] = (None, None)
    if isinstance(data, RecordFailed | FailuresCounted):
        counted = (data.count, data.response.value)
    of_run = (None, None, None) if run is None else (run.pipeline, run.checkpoint, run.epoch)
    return (
        stored.application,
        stored.sequence,
        stored.received_at,
        event.occurred_at,
        event.type,
        None if event.instance is None else str(event.instance),
        *of_run,
        None if event.caused_by is None else str(event.caused_by),
        _if(getattr(data, "task", None), str),
        _if(getattr(data, "position", None), int),
        _if(getattr(data, "key", None), str),
        *counted,
        *(_failure(failure) if isinstance(failure, Failure) else _NO_FAILURE),
        event_lines.data_of(event).decode(),
    )


def _if(value: object, type: type[Any]) -> Any:
    return value if isinstance(value, type) else None


def _failure(failure: Failure) -> tuple[Any, ...]:
    return (
        failure.stage,
        failure.exception_class,
        failure.condition,
        failure.field,
        failure.message,
        failure.fingerprint,
        failure.frame,
        failure.attempts,
    )


_NO_FAILURE = (None,) * 8
