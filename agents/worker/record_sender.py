"""Send rows one by one, strictly in order within a task; a failure may stop its task."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from .arrow_reader import Row, Unreadable
from .columns import ENTRY, ERROR, POSITION, RANK, RETRIES, STOPPED, TASK
from .errors import RETRIABLE, SELF_HEALING, Failed, Rules, error_row, failure_from, now_ms
from .kafka_refusals import may_be_of_another
from .placed_rows import Place, PlacedRow, placed_rows, result_schema
from .progress import NO_RANK, Progress, open_progress
from .type_check import refuse_awaitable

Send = Callable[[Row], Any]
#: Opens the sender of rows, once for each Spark partition.
Connect = Callable[[], AbstractContextManager[Send]]

#: The name of a full buffer's failure. Each client has an exception class of its own for it.
FULL_BUFFER = "arrester.FullBuffer"
#: Up to this many sends are awaited at a time, at most one per task.
_IN_FLIGHT = 1_000


@dataclass(frozen=True, kw_only=True)
class SendRecords:
    """The function for `mapInArrow`. Rows are sorted, all rows of a task are in one partition."""

    send: Send | None
    connect: Connect | None
    rules: Rules
    #: The kinds of exceptions that `send` itself raises, if those of a future have other kinds.
    immediate_kinds: Mapping[str, str]
    #: Kinds of failures after which a task continues; None is that of unlisted exceptions.
    tolerated_kinds: frozenset[str | None]
    #: A task continues after up to this many failures.
    tolerated: int
    #: The same for tasks that have failed before.
    tolerated_by_task: Mapping[str | None, int]
    #: Failed attempts at the first record of a task, which is being retried.
    attempts: Mapping[str | None, int] = field(default_factory=dict)
    #: The time from the first attempt at this record to the start of this round.
    since_ms: Mapping[str | None, int] = field(default_factory=dict)
    #: Whether a retriable failure stops its task, because its record will be retried.
    retries: bool = False
    #: errors.outage.*: the number of failures that may be an outage. From then on, each failure
    #: stops its task. None: no limit.
    outage_from: int | None = None
    #: Whether each row has a sender of its own, and is awaited. The work of a client's threads is
    #: then over before the next row.
    one_by_one: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the failures. Raises exceptions of `connect`, which are no record's failures."""
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            return
        schema, batches = result_schema(first), chain([first], batches)
        if RANK not in first.schema.names:
            yield from self._send_all(batches, schema, Progress(None))
            return
        with open_progress() as progress:
            send = self._send_one_by_one if self.one_by_one else self._send_all
            yield from send(batches, schema, progress)

    def _send_all(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        with self._open() as send:
            sender = _PartitionSender(self, send, progress)
            for batch in batches:
                for row in placed_rows(batch):
                    sender.send_row(row)
                yield from sender.take_results(schema)
            sender.finish()
            yield from sender.take_results(schema)
            # A crash while the sender is closed concerns all records.
            progress.at(NO_RANK, settled=False)

    def _send_one_by_one(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        sender = _PartitionSender(self, None, progress)
        for row in chain.from_iterable(map(placed_rows, batches)):
            with self._open() as sender.send:
                sender.send_row(row)
                sender.await_all()
        sender.finish()
        yield from sender.take_results(schema)

    def _open(self) -> AbstractContextManager[Any]:
        return nullcontext(self.send) if self.connect is None else self.connect()


@dataclass
class _TaskState:
    """The progress of one task."""

    #: The place of the task's first record, which may have failed before.
    first: Place
    #: The place of the record being sent, and whether none of its rows has failed.
    place: Place
    ok: bool = True
    #: The row that was sent last and is awaited, with its future.
    awaited: PlacedRow | None = None
    future: Any = None
    #: When the last row was sent.
    began_ms: int = 0
    failures: int = 0
    stopped: bool = False


class _PartitionSender:
    """Send the rows of one Spark partition."""

    def __init__(self, settings: SendRecords, send: Any, progress: Progress) -> None:
        self._settings = settings
        self.send = send
        self._progress = progress
        self._states: dict[str | None, _TaskState] = {}
        #: Tasks with an awaited row, the one that is awaited longest first.
        self._in_flight: OrderedDict[str | None, _TaskState] = OrderedDict()
        #: A row for each record that failed, in this round or in an earlier one.
        self._results: list[Row] = []
        #: The number of failed records.
        self._failures = 0

    def send_row(self, record: PlacedRow) -> None:
        """Send a row after all earlier rows of its task have arrived."""
        state = self._states.setdefault(
            record.task, _TaskState(first=record.place, place=record.place)
        )
        self._await_last(record.task, state)
        if state.stopped:
            return
        if state.place != record.place:
            self._complete(record.task, state)
            state.place, state.ok = record.place, True
        if not state.ok:  # another row of the record has failed
            return
        state.began_ms = now_ms()
        if isinstance(record.row, Unreadable):
            self._fail(record, state, record.row, immediate=False)
            return
        self._record_progress(record)
        try:
            returned = self.send(record.row)
            if inspect.isawaitable(returned) and not hasattr(returned, "result"):
                refuse_awaitable("send", returned)
        except BaseException as exc:  # the author's code may raise anything, SystemExit too
            self._fail(record, state, exc, immediate=True)
            return
        if callable(getattr(returned, "result", None)):
            self._await(record, state, returned)

    def await_all(self) -> None:
        """Wait for all sends in progress."""
        for task, state in list(self._in_flight.items()):
            self._await_last(task, state)

    def finish(self) -> None:
        """Wait for all sends in progress, and report their results."""
        for task, state in self._states.items():
            self._await_last(task, state)
            if not state.stopped:
                self._complete(task, state)

    def take_results(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the results since the last call, if there are any."""
        results, self._results = self._results, []
        if results:
            yield pa.RecordBatch.from_pylist(results, schema=schema)

    def _await(self, record: PlacedRow, state: _TaskState, future: Any) -> None:
        state.awaited, state.future = record, future
        self._in_flight[record.task] = state
        if len(self._in_flight) > _IN_FLIGHT:
            task, oldest = next(iter(self._in_flight.items()))
            self._await_last(task, oldest)

    def _await_last(self, task: str | None, state: _TaskState) -> None:
        """Wait for the last row of a task."""
        record, future = state.awaited, state.future
        if record is None:
            return
        state.awaited = state.future = None
        del self._in_flight[task]
        self._record_progress(record)
        try:
            future.result()
        except BaseException as exc:
            if self._may_be_of_another(exc):
                self._send_alone(record, state)
            else:
                self._fail(record, state, exc, immediate=False)

    def _may_be_of_another(self, exc: BaseException) -> bool:
        """Whether a record of another task, sent at the same time, may be the cause."""
        is_alone = len(self._states) == 1 or self._settings.one_by_one
        return not is_alone and may_be_of_another(failure_from(exc, self._settings.rules))

    def _send_alone(self, record: PlacedRow, state: _TaskState) -> None:
        """Send a row again while nothing else is in progress, so that its failure is its own."""
        for other in self._in_flight.values():
            # A failure of the other record is handled when that record is awaited itself.
            with suppress(BaseException):
                other.future.result()
        try:
            returned = self.send(record.row)
            if callable(getattr(returned, "result", None)):
                returned.result()
        except BaseException as exc:
            self._fail(record, state, exc, immediate=False)

    def _record_progress(self, record: PlacedRow) -> None:
        """Record the row that is being sent, and whether earlier rows need no repetition.

        They may need one if a sender is to be closed, or if a result is not reported yet.
        """
        if record.rank is not None:
            unsettled = (
                self._settings.connect is not None or self._settings.attempts or self._failures
            )
            self._progress.at(record.rank, settled=not (unsettled or self._in_flight))

    def _complete(self, task: str | None, state: _TaskState) -> None:
        """Report the earlier attempts at a record whose rows are all sent, if there were any."""
        earlier = self._earlier_attempts(task, state)
        if state.ok and earlier:
            self._report(task, state.place, error=None, retries=earlier)

    def _earlier_attempts(self, task: str | None, state: _TaskState) -> int:
        """Return how often the current record failed in earlier rounds."""
        return self._settings.attempts.get(task, 0) if state.place == state.first else 0

    def _fail(
        self, record: PlacedRow, state: _TaskState, exc: BaseException, *, immediate: bool
    ) -> None:
        failed, is_full = self._classify(exc, immediate=immediate)
        if failed.kind == SELF_HEALING:
            raise exc
        earlier = self._earlier_attempts(record.task, state)
        state.ok = False
        state.failures += 1
        self._failures += 1
        state.stopped = not self._continues(record.task, state, failed)
        took_ms = now_ms() - state.began_ms
        if earlier:
            took_ms += self._settings.since_ms.get(record.task, 0)
        more_names = [FULL_BUFFER] if is_full else []
        error = error_row(failed, earlier + 1, took_ms=took_ms, more_names=more_names)
        self._report(record.task, record.place, error=error, retries=earlier, stopped=state.stopped)

    def _classify(self, exc: BaseException, *, immediate: bool) -> tuple[Failed, bool]:
        """Return the failure, and whether it means that the sender's own buffer is full."""
        failed = failure_from(exc, self._settings.rules)
        name = (
            self._settings.rules.known_as(failed.cause, self._settings.immediate_kinds)
            if immediate
            else None
        )
        if name is None:
            return failed, False
        return replace(failed, kind=self._settings.immediate_kinds[name]), True

    def _continues(self, task: str | None, state: _TaskState, failed: Failed) -> bool:
        if self._settings.retries and failed.kind == RETRIABLE:
            return False
        outage_from = self._settings.outage_from
        if outage_from is not None and self._failures >= outage_from:
            return False
        allowed = self._settings.tolerated_by_task.get(task, self._settings.tolerated)
        return failed.kind in self._settings.tolerated_kinds and state.failures <= allowed

    def _report(
        self,
        task: str | None,
        place: Place,
        *,
        error: Row | None,
        retries: int,
        stopped: bool = False,
    ) -> None:
        entry, position = place
        place_and_error = {TASK: task, ENTRY: entry, POSITION: position, ERROR: error}
        self._results.append({**place_and_error, RETRIES: retries, STOPPED: stopped})
