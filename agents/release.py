"""From the journal to the outbox, strictly in order, and not before Spark has committed."""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from agents.checkpoint import Storage, is_committed, last_committed
from agents.entries import Entry
from agents.held import is_needed
from agents.journal import Journal
from agents.outbox import Outbox

_log = logging.getLogger("arrester.release")


class Release:
    """Puts a journal's entries into the outbox; its caller holds the pipeline's lock.

    The events of a `batch` entry wait for Spark's commit of that micro-batch: until then it may
    be replayed, and decided about further.
    """

    def __init__(self, journal: Journal, outbox: Outbox, *, progress: Storage) -> None:
        self._journal = journal
        #: Where it stands which micro-batches are planned and committed.
        self._progress = progress
        self._outbox = outbox
        #: The last entry put.
        self._through = 0
        #: The batches that entries were put as, until they are confirmed.
        self._batches: dict[int, list[UUID]] = {}
        #: How often the outbox refused; what it did not take is tried again.
        self.failures = 0

    @property
    def waits(self) -> bool:
        """Whether an entry is not put yet."""
        kept = self._journal.kept
        return bool(kept) and kept[-1].number > self._through

    def put_ready(self) -> bool:
        """Put all entries that may be; return whether one still waits."""
        if not self.waits:
            return False
        for entry in self._journal.kept:
            if entry.number <= self._through:
                continue
            if entry.batch is not None and not is_committed(self._progress, entry.batch):
                return True
            if not self._put(entry.number):
                return True
            self._through = entry.number
        return False

    def put_ending(self, entry: Entry) -> None:
        """Put the entry that ends the run, also ahead of one that waits: it says nothing of it."""
        if self.put_ready():
            self._put(entry.number)

    def compact(self, *, now: datetime) -> None:
        """Now and then, delete what is told, confirmed and not needed for a replay."""
        if not self._journal.compaction_due(is_settled=self._is_settled, now=now):
            return
        committed = last_committed(self._progress)
        self._journal.compact(
            is_settled=self._is_settled,
            is_needed=lambda aside: is_needed(self._journal.ledger, aside, committed=committed),
        )
        settled = self._journal.ledger.settled
        self._batches = {number: ids for number, ids in self._batches.items() if number > settled}

    def _is_settled(self, entry: Entry) -> bool:
        put = self._batches.get(entry.number)
        return put is not None and all(self._outbox.is_confirmed(batch) for batch in put)

    def _put(self, number: int) -> bool:
        try:
            told = self._journal.told(number)
            for batch_id, events in told:
                self._outbox.put(batch_id, events)
        except Exception:  # the guest: a full disk must not stop the pipeline
            self.failures += 1
            _log.exception("the events of journal entry %s could not be kept; trying again", number)
            return False
        self._batches[number] = [batch_id for batch_id, _ in told]
        return True
