"""Publish journal entries to the outbox, in order and only after Spark's commit."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from arrester.agents.held.journal_counts import needed_by
from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage, is_committed, last_committed
from arrester.agents.runtime.thread_protocol import Outbox
from arrester.domain.events import Event
from arrester.domain.tracing.ids import of_decision
from arrester.domain.tracing.tracer import tracer_of

_log = logging.getLogger("arrester.release")

#: Entries that are put at a time; micro-batches and commands wait meanwhile.
SLICE = 100
#: The end of a run puts at most this many slices; the next run puts the rest.
_SLICES_AT_END = 50
#: The wait before a refused put is tried again, doubled up to the maximum; logged once a minute.
_WAIT_SECONDS, _WAIT_SECONDS_MAX, _LOG_SECONDS = 0.05, 5.0, 60.0
#: Entries that report the start or the end of a run.
_OF_RUNS = (EntryKind.RUN, EntryKind.STOPPED, EntryKind.DIED)


class Publisher:
    """Put the entries of a journal into the outbox.

    The events of a `batch` entry wait for Spark's commit of that micro-batch: until then it may be
    replayed, and further decisions may follow. With `alone`, no server confirms: an entry counts as
    published when the outbox has stored it.
    """

    def __init__(
        self,
        journal: Journal,
        outbox: Outbox,
        *,
        progress: Storage,
        alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        #: Reports which micro-batches are planned and committed.
        self._progress = progress
        self._outbox = outbox
        self._alone = alone
        self._clock = clock
        #: The last entry put.
        self._last_put = 0
        #: Entries put ahead of an earlier one, and the last entry at that time.
        self._ahead: set[int] = set()
        self._put_ahead_at = 0
        #: The batches of the entries, until they are confirmed.
        self._batches: dict[int, list[UUID]] = {}
        #: How often the outbox refused a put; refused entries are tried again.
        self.failures = 0
        self._refused_in_row = 0
        self._not_before = self._log_again_at = clock()

    @property
    def waits(self) -> bool:
        """Whether an entry is not put yet."""
        unsettled = self._journal.unsettled
        return bool(unsettled) and unsettled[-1].number > self._last_put

    def publish(self, *, now: datetime) -> bool:
        """Put the entries that may be put, and compact; return whether none is left."""
        waits = self.put_ready()
        self.compact(now=now)
        return not waits

    def put_ready(self) -> bool:
        """Put a slice of the entries that may be put; return whether one still waits."""
        if not self.waits or self._clock() < self._not_before:
            return self.waits
        for entry in self._entries_to_put(SLICE):
            if entry.batch is not None and not is_committed(self._progress, entry.batch):
                self._put_ahead()
                return True
            if entry.number not in self._ahead and not self._put(entry.number):
                return True
            self._last_put = entry.number
        return self.waits

    def put_ending(self, entry: Entry) -> None:
        """Put the entry that ends the run, even ahead of a waiting one, which it does not
        depend on."""
        self._not_before = self._clock()
        for _ in range(_SLICES_AT_END):
            last_put = self._last_put
            if not self.put_ready():
                return
            if self._last_put == last_put:
                break
        self._put(entry.number)

    def compact(self, *, now: datetime) -> None:
        """Periodically delete entries that are published, confirmed and not needed for a replay."""
        if not self._journal.compaction_due(is_settled=self._is_settled, now=now):
            return
        committed = last_committed(self._progress)
        self._journal.compact(
            is_settled=self._is_settled,
            is_needed=needed_by(self._journal.ledger, committed=committed),
        )
        settled = self._journal.ledger.settled
        self._batches = {number: ids for number, ids in self._batches.items() if number > settled}
        self._ahead = {number for number in self._ahead if number > settled}

    def _entries_to_put(self, most: int | None = None) -> Sequence[Entry]:
        unsettled = self._journal.unsettled
        first = bisect_right(unsettled, self._last_put, key=lambda entry: entry.number)
        return unsettled[first:] if most is None else unsettled[first : first + most]

    def _put_ahead(self) -> None:
        """Put entries that report the start or end of a run ahead of a waiting entry.

        The sink of a waiting entry may be tried for hours, and meanwhile the server would show the
        earlier run as the last one. If the waiting entries contain task states, nothing is put
        ahead: the server would ignore the states of a run older than its newest one.
        """
        if self._put_ahead_at == self._journal.next_number:
            return
        self._put_ahead_at = self._journal.next_number
        for entry in self._entries_to_put():
            if entry.kind not in _OF_RUNS:
                if self._journal.changes_tasks(entry.number):
                    return
            elif entry.number not in self._ahead and self._put(entry.number):
                self._ahead.add(entry.number)

    def _is_settled(self, entry: Entry) -> bool:
        if (batch_ids := self._batches.get(entry.number)) is None:
            return False
        if entry.kind is EntryKind.DRAIN and self._journal.ledger.open_chunks:
            # What it decided is counted when the chunks are written.
            return False
        is_received = self._outbox.is_stored if self._alone else self._outbox.is_confirmed
        return all(is_received(batch) for batch in batch_ids)

    def _put(self, number: int) -> bool:
        try:
            batches = self._journal.event_batches(number)
            for batch_id, events in batches:
                self._outbox.put(batch_id, events)
        except Exception:  # a full disk must not stop the pipeline
            self._delay_next_put(number)
            return False
        self._refused_in_row = 0
        self._batches[number] = [batch_id for batch_id, _ in batches]
        self._log_put(number, batches)
        return True

    def _log_put(self, number: int, batches: Sequence[tuple[UUID, Sequence[Event]]]) -> None:
        """Log which batches have the events of an entry, and the trace of its decision."""
        application = self._journal.ledger.application
        ids: dict[str, object] = {"event_batches": [str(batch_id) for batch_id, _ in batches]}
        first = next((event for _, events in batches for event in events), None)
        if first is not None and first.run is not None and tracer_of(application) is not None:
            ids["trace_id"] = of_decision(application, first.run, first.occurred_at).trace_hex
        _log.debug("the events of journal entry %s are in the outbox", number, extra=ids)

    def _delay_next_put(self, number: int) -> None:
        """Log once a minute that an entry was refused; let the next attempt wait."""
        now = self._clock()
        if not self._refused_in_row or now >= self._log_again_at:
            message = (
                "the events of journal entry %s could not be stored; trying again (failure %s)"
            )
            _log.exception(message, number, self.failures + 1)
            self._log_again_at = now + _LOG_SECONDS
        seconds = _WAIT_SECONDS * 2 ** min(self._refused_in_row, 10)
        self._not_before = now + min(seconds, _WAIT_SECONDS_MAX)
        self._refused_in_row += 1
        self.failures += 1
