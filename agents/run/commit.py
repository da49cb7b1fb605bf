"""A decision becomes one durable entry: what is put aside, its dead letters, and its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.dead_letters.queue import LetterBox
from arrester.agents.dead_letters.schema import Said
from arrester.agents.decisions.events import Teller
from arrester.agents.decisions.handler_retries import helpful_retries
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.rules import Fates
from arrester.agents.failures.aggregate_on_driver import skipped
from arrester.agents.failures.failure_set import has_failed
from arrester.agents.failures.pause_offsets import cut_of, must_hold
from arrester.agents.held.limits import HeldBounds, HeldTooMuch
from arrester.agents.held.store import Shelf
from arrester.agents.journal.entries import Chunk, DeadLetters, Entry, Held, Kind, Skipped
from arrester.agents.journal.journal import Journal
from arrester.controlplane.domain.events import RecordsDeadLettered, RecordsHeld

#: So many skipped records are told in the entry; where there are more, they are in a folder.
IN_ENTRY: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _PutAside:
    """What does not go to the sink."""

    #: The folder with the rows, where there is one.
    name: str | None = None
    held: tuple[Held, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Makes the entries of one run about micro-batches and chunks."""

    journal: Journal
    teller: Teller
    fates: Fates
    shelf: Shelf
    #: Where dead letters go; None when they are not enabled.
    letters: LetterBox | None
    bounds: HeldBounds
    clock: Callable[[], datetime]

    def commit(
        self,
        evaluated: Evaluated,
        decision: Decision,
        *,
        batch: int | None = None,
        chunk: Chunk | None = None,
    ) -> None:
        """Put aside what does not go to the sink, and make the decision one durable entry.

        What is decided about a micro-batch after its sink has failed adds to what was before.
        """
        at, order = self.clock(), None if batch is None else self._order(batch)
        aside = self._put_aside(evaluated, decision, order=order)
        try:
            self.bounds.check(self.journal.ledger, aside.name, aside.held)
        except HeldTooMuch:
            # No entry names it: every further attempt would leave one more.
            if aside.name is not None:
                self.journal.drop(aside.name)
            raise
        letters, lettered = self._dead_letters(evaluated, decision, at)
        told = self.teller.decided(decision, at, lambda key: self.journal.ledger.task(key).blame)
        told += [self.teller.event(each, at) for each in lettered]
        told += [
            self.teller.event(each, at)
            for each in helpful_retries(evaluated, cut_of(decision.cuts))
        ]
        for each in aside.held:
            count = self.journal.ledger.task(each.task).held + each.count
            told.append(self.teller.event(RecordsHeld(task=each.task, held=count), at))
        self.journal.append(
            Entry(
                kind=Kind.BATCH if chunk is None else Kind.DRAIN,
                at=at,
                epoch=self.teller.run.epoch,
                events=tuple(told),
                batch=batch,
                order=order,
                aside=aside.name,
                held=aside.held,
                skipped=aside.skipped,
                chunk=chunk,
                dead_letters=letters,
            )
        )
        self.fates.keep()
        if letters is not None and self.letters is not None:
            self.letters.deliver(letters)

    def _order(self, batch: int) -> int:
        """Return the place of the rows that a micro-batch holds: the same for all its entries."""
        before = self.journal.ledger.asides_of_batch(batch)
        return before[0].entry if before else self.journal.next_number

    def _put_aside(
        self, evaluated: Evaluated, decision: Decision, *, order: int | None
    ) -> _PutAside:
        """Write what does not go to the sink; `order` is None for a chunk."""
        cut = cut_of(decision.cuts)
        if evaluated.clean:
            return _PutAside()
        if order is not None and (decision.cuts or evaluated.held):
            name, held = self.shelf.put(evaluated.frame, cut, order=order)
            return _PutAside(name=name, held=tuple(held))
        failures = evaluated.failures
        if failures.few and evaluated.failed <= IN_ENTRY:
            return _PutAside(skipped=skipped(failures.listed, decision.cuts))
        number = self.journal.next_number if order is None else order
        left_out = failures.in_one(failures.records)
        return _PutAside(name=self.shelf.put_skipped(left_out, cut, order=number))

    def _dead_letters(
        self, evaluated: Evaluated, decision: Decision, at: datetime
    ) -> tuple[DeadLetters | None, list[RecordsDeadLettered]]:
        skipped_any = len(decision.examples) + len(decision.rest)
        if self.letters is None or not skipped_any:
            return None, []
        frame = evaluated.frame.where(has_failed() & ~must_hold(cut_of(decision.cuts)))
        said = Said(name=self._letters_name(), at=at)
        return self.letters.put(frame, decision.examples, said)

    def _letters_name(self) -> str:
        """Return the name of the next entry's folder of dead letters: nobody else has it."""
        ledger = self.journal.ledger
        return f"{ledger.checkpoint}-{self.journal.next_number:020d}-{self.teller.run.epoch}"

    def drained(self, chunk: Chunk) -> None:
        """Write down that the chunk's sink has returned."""
        at = self.clock()
        left = self.journal.ledger.task(chunk.task).held - chunk.taken
        told = self.teller.event(RecordsHeld(task=chunk.task, held=left), at)
        epoch = self.teller.run.epoch
        self.journal.append(Entry(kind=Kind.DRAINED, at=at, epoch=epoch, events=(told,)))
