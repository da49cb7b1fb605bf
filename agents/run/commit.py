"""Commit a decision as one journal entry: saved rows, dead letters and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.dead_letters.schema import DeadLetterContext
from arrester.agents.decisions.events import EventFactory
from arrester.agents.decisions.handler_retries import useful_retries
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.rules import Responder
from arrester.agents.failures.aggregate_on_driver import skipped
from arrester.agents.failures.failure_set import has_failed
from arrester.agents.failures.pause_offsets import must_hold, pause_offset_of
from arrester.agents.held.limits import HeldLimitExceeded, HeldLimits
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Chunk, DeadLetters, Entry, Held, Kind, Skipped
from arrester.agents.journal.journal import Journal
from arrester.controlplane.domain.events import RecordsDeadLettered, RecordsHeld

#: Up to this many skipped records are listed in the entry; more are saved in a folder.
IN_ENTRY: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """Rows that are not written to the sink."""

    #: The folder of the rows, if there is one.
    name: str | None = None
    held: tuple[Held, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Write the journal entries of one run about micro-batches and chunks."""

    journal: Journal
    event_factory: EventFactory
    responder: Responder
    held_store: HeldStore
    #: The dead letter queue; None if it is not enabled.
    letters: DeadLetterQueue | None
    bounds: HeldLimits
    clock: Callable[[], datetime]

    def commit(
        self,
        evaluated: Evaluated,
        decision: Decision,
        *,
        batch: int | None = None,
        chunk: Chunk | None = None,
    ) -> None:
        """Save the rows that are not written, then write the decision as one journal entry.

        A decision about a micro-batch made after its sink failed is added to the earlier ones.
        """
        at, order = self.clock(), None if batch is None else self._order(batch)
        saved = self._save(evaluated, decision, order=order)
        try:
            self.bounds.check(self.journal.ledger, saved.name, saved.held)
        except HeldLimitExceeded:
            # No entry names this folder: each further attempt would leave another one.
            if saved.name is not None:
                self.journal.delete_rows(saved.name)
            raise
        letters, lettered = self._dead_letters(evaluated, decision, at)
        told = self.event_factory.decided(
            decision, at, lambda key: self.journal.ledger.task(key).stopped_by
        )
        told += [self.event_factory.event(each, at) for each in lettered]
        told += [
            self.event_factory.event(each, at)
            for each in useful_retries(evaluated, pause_offset_of(decision.pause_offsets))
        ]
        for each in saved.held:
            count = self.journal.ledger.task(each.task).held + each.count
            told.append(self.event_factory.event(RecordsHeld(task=each.task, held=count), at))
        self.journal.append(
            Entry(
                kind=Kind.BATCH if chunk is None else Kind.DRAIN,
                at=at,
                epoch=self.event_factory.run.epoch,
                events=tuple(told),
                batch=batch,
                order=order,
                row_folder=saved.name,
                held=saved.held,
                skipped=saved.skipped,
                chunk=chunk,
                dead_letters=letters,
            )
        )
        self.responder.keep()
        if letters is not None and self.letters is not None:
            self.letters.deliver(letters)

    def _order(self, batch: int) -> int:
        """Return the folder of the rows that a micro-batch holds; all its entries share it."""
        before = self.journal.ledger.saved_rows_of_batch(batch)
        return before[0].entry if before else self.journal.next_number

    def _save(self, evaluated: Evaluated, decision: Decision, *, order: int | None) -> _Saved:
        """Save the rows that are not written; `order` is None for a chunk."""
        cut = pause_offset_of(decision.pause_offsets)
        if evaluated.clean:
            return _Saved()
        if order is not None and (decision.pause_offsets or evaluated.held):
            name, held = self.held_store.put(evaluated.frame, cut, order=order)
            return _Saved(name=name, held=tuple(held))
        failures = evaluated.failures
        if failures.few and evaluated.failed <= IN_ENTRY:
            return _Saved(skipped=skipped(failures.listed, decision.pause_offsets))
        number = self.journal.next_number if order is None else order
        left_out = failures.in_one(failures.records)
        return _Saved(name=self.held_store.put_skipped(left_out, cut, order=number))

    def _dead_letters(
        self, evaluated: Evaluated, decision: Decision, at: datetime
    ) -> tuple[DeadLetters | None, list[RecordsDeadLettered]]:
        skipped_any = len(decision.examples) + len(decision.rest)
        if self.letters is None or not skipped_any:
            return None, []
        frame = evaluated.frame.where(
            has_failed() & ~must_hold(pause_offset_of(decision.pause_offsets))
        )
        said = DeadLetterContext(name=self._letters_name(), at=at)
        return self.letters.put(frame, decision.examples, said)

    def _letters_name(self) -> str:
        """Return a unique name for the folder of the next entry's dead letters."""
        ledger = self.journal.ledger
        return f"{ledger.checkpoint}-{self.journal.next_number:020d}-{self.event_factory.run.epoch}"

    def drained(self, chunk: Chunk) -> None:
        """Record that the sink returned for the chunk."""
        at = self.clock()
        left = self.journal.ledger.task(chunk.task).held - chunk.taken
        told = self.event_factory.event(RecordsHeld(task=chunk.task, held=left), at)
        epoch = self.event_factory.run.epoch
        self.journal.append(Entry(kind=Kind.DRAINED, at=at, epoch=epoch, events=(told,)))
