"""Send rows one by one, strictly in order within a task; a failure may stop its task."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from .arrow_reader import Unreadable
from .columns import ENTRY, ERROR, POSITION, PREFIX, RANK, RETRIES, STOPPED, TASK
from .error_text import described, text, unicode
from .progress import NOWHERE, Progress, written_down
from .retries import RETRIABLE, SELF_HEALING, Failed, Rules, failure_from, now_ms

Row = dict[str, Any]
Send = Callable[[Row], Any]
#: Opens the sender of rows, once for each Spark partition.
Connect = Callable[[], AbstractContextManager[Send]]

#: The place of a record in its task: by entry, then by position.
Place = tuple[int, "int | None"]

#: Identifies a full buffer, whatever class reports it.
FULL_BUFFER = "arrester.FullBuffer"
#: Up to this many sends are awaited at a time, at most one per task.
_IN_FLIGHT = 1_000


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row and its coordinates."""

    task: str | None
    entry: int
    position: int | None
    row: Row | Unreadable
    #: Its number, while a crashing record is searched.
    rank: int | None = None

    @property
    def place(self) -> Place:
        """The place of its record in the task."""
        return self.entry, self.position


@dataclass(frozen=True, kw_only=True)
class SendRecords:
    """The function for `mapInArrow`; its rows are sorted, all rows of a task in one partition."""

    send: Send | None
    connect: Connect | None
    rules: Rules
    #: Kinds of exceptions raised by `send` itself, if those of a future have other meanings.
    immediate: Mapping[str, str]
    #: Kinds of failures after which a task continues; None is a kind that no table has.
    goes_on: frozenset[str | None]
    #: A task continues after up to this many failures.
    allowed: int
    #: The same for tasks that have failed before.
    left: Mapping[str | None, int]
    #: Failed attempts at the first record of a task, which is retried.
    made: Mapping[str | None, int] = field(default_factory=dict)
    #: The time since its first attempt when this round began.
    since_ms: Mapping[str | None, int] = field(default_factory=dict)
    #: Whether a retriable failure stops its task, because it will be retried.
    retries: bool = False
    #: errors.outage.*: the number of failures that may be an outage, after which each stops its
    #: task; None: no limit.
    outage_from: int | None = None
    #: Each row has a sender of its own, and is awaited: work of a client's threads is over before
    #: the next row.
    singly: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the failures. An exception of `connect` is raised: it is no record's failure."""
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            return
        schema, batches = _result_schema(first), chain([first], batches)
        if RANK not in first.schema.names:
            yield from self._sent(batches, schema, Progress(None))
            return
        with written_down() as progress:
            yield from (self._sent_singly if self.singly else self._sent)(batches, schema, progress)

    def _sent(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        with self._opened() as send:
            run = _Run(self, send, progress)
            for batch in batches:
                for record in _records(batch):
                    run.offer(record)
                if run.told:
                    yield run.taken(schema)
            run.finish()
            if run.told:
                yield run.taken(schema)
            # Closing the sender concerns all of them.
            progress.at(NOWHERE, settled=False)

    def _sent_singly(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        run = _Run(self, None, progress)
        for record in chain.from_iterable(map(_records, batches)):
            with self._opened() as run.send:
                run.offer(record)
                run.land()
        run.finish()
        if run.told:
            yield run.taken(schema)

    def _opened(self) -> AbstractContextManager[Any]:
        return nullcontext(self.send) if self.connect is None else self.connect()


@dataclass
class _Lane:
    """The progress of one task."""

    #: The place of its first record, which may have failed before.
    first: Place
    #: The place of the record being sent, and whether none of its rows has failed.
    place: Place
    well: bool = True
    #: The row that was sent last and is awaited, with its future.
    waiting: Record | None = None
    future: Any = None
    #: When it was sent.
    began_ms: int = 0
    failures: int = 0
    stopped: bool = False


class _Run:
    """One Spark partition."""

    def __init__(self, by: SendRecords, send: Any, progress: Progress) -> None:
        self._by = by
        self.send = send
        self._progress = progress
        self._lanes: dict[str | None, _Lane] = {}
        #: Lanes that wait, the one that has waited longest first.
        self._flying: OrderedDict[str | None, _Lane] = OrderedDict()
        #: A row for each record that failed, or was sent after an earlier failure.
        self.told: list[Row] = []
        #: Records that failed.
        self._failures = 0

    def offer(self, record: Record) -> None:
        """Send a row after everything before it in its task has arrived."""
        lane = self._lanes.setdefault(record.task, _Lane(first=record.place, place=record.place))
        self._land(record.task, lane)
        if lane.stopped:
            return
        if lane.place != record.place:
            self._complete(record.task, lane)
            lane.place, lane.well = record.place, True
        if not lane.well:  # another row of it has failed
            return
        if isinstance(record.row, Unreadable):
            lane.began_ms = now_ms()
            self._fail(record, lane, record.row, immediate=False)
            return
        lane.began_ms = now_ms()
        self._at_work(record)
        try:
            answer = self.send(record.row)
        except BaseException as exc:  # the author's code may raise anything, SystemExit too
            self._fail(record, lane, exc, immediate=True)
            return
        if callable(getattr(answer, "result", None)):
            self._await(record, lane, answer)

    def land(self) -> None:
        """Wait for all sends in progress."""
        for task, lane in list(self._flying.items()):
            self._land(task, lane)

    def finish(self) -> None:
        """Wait for all sends in progress, and report their results."""
        for task, lane in self._lanes.items():
            self._land(task, lane)
            if not lane.stopped:
                self._complete(task, lane)

    def taken(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the unreported results, once."""
        told, self.told = self.told, []
        return pa.RecordBatch.from_pylist(told, schema=schema)

    def _await(self, record: Record, lane: _Lane, future: Any) -> None:
        lane.waiting, lane.future = record, future
        self._flying[record.task] = lane
        if len(self._flying) > _IN_FLIGHT:
            task, oldest = next(iter(self._flying.items()))
            self._land(task, oldest)

    def _land(self, task: str | None, lane: _Lane) -> None:
        """Wait for the row that was sent last."""
        record, future = lane.waiting, lane.future
        if record is None:
            return
        lane.waiting = lane.future = None
        del self._flying[task]
        self._at_work(record)
        try:
            future.result()
        except BaseException as exc:
            self._fail(record, lane, exc, immediate=False)

    def _at_work(self, record: Record) -> None:
        """Record which record is being sent; what opens a sender may also have to close it."""
        if record.rank is not None:
            open_ended = self._by.connect is not None or self._by.made or self._failures
            self._progress.at(record.rank, settled=not (open_ended or self._flying))

    def _complete(self, task: str | None, lane: _Lane) -> None:
        """All rows of a record are sent: report the retries, if there were any."""
        made = self._made(task, lane)
        if lane.well and made:
            self._tell(task, lane.place, error=None, retries=made)

    def _made(self, task: str | None, lane: _Lane) -> int:
        """Return how often the current record failed in earlier rounds."""
        return self._by.made.get(task, 0) if lane.place == lane.first else 0

    def _fail(self, record: Record, lane: _Lane, exc: BaseException, *, immediate: bool) -> None:
        failed, full = self._failed(exc, immediate=immediate)
        if failed.kind == SELF_HEALING:
            raise exc
        made = self._made(record.task, lane)
        lane.well = False
        lane.failures += 1
        self._failures += 1
        lane.stopped = not self._goes_on(record.task, lane, failed)
        took_ms = now_ms() - lane.began_ms
        if made:
            took_ms += self._by.since_ms.get(record.task, 0)
        error = _error(failed, made + 1, full=full) | {"took_ms": took_ms}
        self._tell(record.task, record.place, error=error, retries=made, stopped=lane.stopped)

    def _failed(self, exc: BaseException, *, immediate: bool) -> tuple[Failed, bool]:
        """Return the failure, and whether it means that the sender's own buffer is full."""
        failed = failure_from(exc, self._by.rules)
        known = self._by.rules.known_as(failed.cause, self._by.immediate) if immediate else None
        if known is None:
            return failed, False
        return replace(failed, kind=self._by.immediate[known]), True

    def _goes_on(self, task: str | None, lane: _Lane, failed: Failed) -> bool:
        if self._by.retries and failed.kind == RETRIABLE:
            return False
        outage_from = self._by.outage_from
        if outage_from is not None and self._failures >= outage_from:
            return False
        allowed = self._by.left.get(task, self._by.allowed)
        return failed.kind in self._by.goes_on and lane.failures <= allowed

    def _tell(
        self,
        task: str | None,
        place: Place,
        *,
        error: Row | None,
        retries: int,
        stopped: bool = False,
    ) -> None:
        entry, position = place
        told = {TASK: task, ENTRY: entry, POSITION: position, ERROR: error}
        self.told.append({**told, RETRIES: retries, STOPPED: stopped})


def _error(failed: Failed, attempts: int, *, full: bool) -> Row:
    """Return a failure as ERROR_TYPE has it; the lane knows when it began."""
    condition = failed.cause.condition
    names = [unicode(name) for name in failed.cause.names]
    if full:
        names = [FULL_BUFFER, *names]
    return described(failed.error) | {
        "names": names,
        "condition": None if condition is None else unicode(condition),
        "kind": failed.kind,
        "attempts": attempts,
    }


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    """Yield the rows of a batch."""
    columns = {
        name: batch.column(batch.schema.get_field_index(name)).to_pylist()
        for name in (TASK, ENTRY, POSITION)
    }
    at = batch.schema.get_field_index(RANK)
    ranks = [None] * batch.num_rows if at < 0 else batch.column(at).to_pylist()
    for task, entry, position, rank, row in zip(
        *columns.values(), ranks, _rows(batch), strict=True
    ):
        yield Record(task=task, entry=entry, position=position, row=row, rank=rank)


def _rows(batch: pa.RecordBatch) -> list[Row | Unreadable]:
    """Return the author's columns as dicts; an unreadable row has the reason."""
    theirs = batch.select([name for name in batch.schema.names if not name.startswith(PREFIX)])
    try:
        return list(theirs.to_pylist())
    except Exception:  # text that is not UTF-8, a date after 9999
        return [_row(theirs.slice(number, 1)) for number in range(theirs.num_rows)]


def _row(one: pa.RecordBatch) -> Row | Unreadable:
    try:
        [row] = one.to_pylist()
    except Exception as exc:
        return Unreadable(f"the row cannot be read: {text(exc)}")
    return dict(row)


def _result_schema(batch: pa.RecordBatch) -> pa.Schema:
    """Return the schema of the result; ERROR's type comes with a column of NULLs."""
    known = [batch.schema.field(name) for name in (TASK, ENTRY, POSITION, ERROR)]
    return pa.schema([*known, pa.field(RETRIES, pa.int64()), pa.field(STOPPED, pa.bool_())])
