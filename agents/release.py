"""From the journal to the outbox, strictly in order, and not before Spark has committed."""

from __future__ import annotations

from agents.checkpoint import Storage, is_committed, last_committed
from agents.entries import Entry
from agents.held import is_needed
from agents.journal import Journal
from agents.outbox import Outbox


class Release:
    """Puts a journal's entries into the outbox; its caller holds the pipeline's lock.

    The events of a `batch` entry wait for Spark's commit of that micro-batch: until then it may
    be replayed, and decided about further.
    """

    def __init__(self, journal: Journal, files: Storage, outbox: Outbox) -> None:
        self._journal = journal
        self._files = files
        self._outbox = outbox
        #: The last entry put.
        self._through = 0

    def put_ready(self) -> bool:
        """Put all entries that may be; return whether one still waits for its commit."""
        for entry in self._journal.kept:
            if entry.number <= self._through:
                continue
            if entry.batch is not None and not is_committed(self._files, entry.batch):
                return True
            self._put(entry)
            self._through = entry.number
        return False

    def put_ending(self, entry: Entry) -> None:
        """Put the entry that ends the run, also ahead of one that waits: it says nothing of it."""
        if self.put_ready():
            self._put(entry)

    def compact(self) -> None:
        """Delete what is told, confirmed and not needed for a replay."""
        committed = last_committed(self._files)

        def is_settled(entry: Entry) -> bool:
            done = entry.number <= self._through
            told = self._journal.told(entry)
            return done and all(self._outbox.is_confirmed(batch) for batch, _ in told)

        self._journal.compact(
            is_settled=is_settled,
            is_needed=lambda aside: is_needed(self._journal.ledger, aside, committed=committed),
        )

    def _put(self, entry: Entry) -> None:
        for batch_id, events in self._journal.told(entry):
            self._outbox.put(batch_id, events)
