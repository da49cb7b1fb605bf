"""Commit a decision as one journal entry: saved rows, dead letters and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.dead_letters.rows import DeadLetterContext
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.handler_retries import retry_counts
from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.failures.aggregate import skipped_coordinates
from arrester.agents.failures.failure_set import has_failed
from arrester.agents.failures.pause_offsets import is_held, pause_offset_of
from arrester.agents.held.journal_counts import records_held, records_left
from arrester.agents.held.limits import HeldLimitExceeded, HeldLimits
from arrester.agents.held.replay_check import ReplayCheck
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import (
    Chunk,
    Cursor,
    DeadLetters,
    Entry,
    EntryKind,
    HeldCount,
    RecordsChecksum,
    SkippedRecords,
)
from arrester.agents.journal.journal import Journal
from arrester.domain.events import Event, EventData, RecordsDeadLettered, RecordsHeld

#: Up to this many skipped records are listed in the entry; more are saved in a folder.
IN_ENTRY: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnwrittenRows:
    """Rows that are not written to the sink."""

    #: The folder of the rows, if there is one.
    name: str | None = None
    held: tuple[HeldCount, ...] = ()
    skipped: tuple[SkippedRecords, ...] = ()
    #: A replay of the micro-batch is checked by it.
    checksum: RecordsChecksum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Write the journal entries of one run about micro-batches and chunks."""

    journal: Journal
    event_factory: EventFactory
    rules: FailureRules
    held_store: HeldStore
    #: The dead letters of the run; None if they are not enabled.
    dead_letters: DeadLetterQueue | None
    limits: HeldLimits
    replay_check: ReplayCheck
    #: Is given each entry that is durable, for tools that report it elsewhere.
    observe: Callable[[Entry], None]
    clock: Callable[[], datetime]

    def commit(
        self,
        evaluated: Evaluated,
        decision: Decision,
        *,
        batch: int | None = None,
        chunks: tuple[Chunk, ...] = (),
    ) -> None:
        """Save the rows that are not written, then write the decision as one journal entry.

        A decision about a micro-batch made after its sink failed is added to the earlier ones.
        """
        at = self.clock()
        held = is_held(pause_offset_of(decision.pause_offsets))
        saved = self._save(evaluated, decision, held, batch=batch)
        dead_letters, dead_letter_events = self._dead_letters(evaluated, decision, held, at)
        counts: list[EventData] = [
            *dead_letter_events,
            *retry_counts(evaluated, held),
            *self._held_counts(saved),
        ]
        entry = self.journal.append(
            Entry(
                kind=EntryKind.DRAIN if chunks else EntryKind.BATCH,
                at=at,
                epoch=self.event_factory.run.epoch,
                events=self._events(decision, counts, at),
                batch=batch,
                order=None if batch is None else self._order(batch),
                row_folder=saved.name,
                held=saved.held,
                skipped=saved.skipped,
                checksum=saved.checksum,
                chunks=chunks,
                dead_letters=dead_letters,
            )
        )
        self.observe(entry)
        self.rules.save()
        if dead_letters is not None and self.dead_letters is not None:
            self.dead_letters.deliver(dead_letters)

    def _held_counts(self, saved: _UnwrittenRows) -> list[RecordsHeld]:
        ledger = self.journal.ledger
        return [records_held(ledger.task(each.task), each) for each in saved.held]

    def _events(
        self, decision: Decision, counts: Sequence[EventData], at: datetime
    ) -> tuple[Event, ...]:
        ledger = self.journal.ledger
        decision_events = self.event_factory.decision_events(
            decision, at, lambda key: ledger.task(key).stopped_by
        )
        return (*decision_events, *(self.event_factory.event(each, at) for each in counts))

    def _order(self, batch: int) -> int:
        """Return the order of the rows that a micro-batch holds; all its entries share it."""
        earlier = self.journal.ledger.saved_rows_of_batch(batch)
        return earlier[0].entry if earlier else self.journal.next_number

    def _save(
        self, evaluated: Evaluated, decision: Decision, held: Column, *, batch: int | None
    ) -> _UnwrittenRows:
        """Save the rows that are not written; `batch` is None for held records."""
        if evaluated.clean:
            return _UnwrittenRows()
        if batch is not None and (decision.pause_offsets or evaluated.held):
            return self._save_held(evaluated.frame, decision.pause_offsets, batch=batch)
        failures = evaluated.failures
        checksum = None if batch is None else self._checksum(evaluated)
        if failures.is_small and evaluated.failed <= IN_ENTRY:
            skipped = skipped_coordinates(failures.on_driver, decision.pause_offsets)
            return _UnwrittenRows(skipped=skipped, checksum=checksum)
        order = self.journal.next_number if batch is None else self._order(batch)
        name = self.held_store.save_skipped(failures.records.where(~held), order=order)
        return _UnwrittenRows(name=name, checksum=checksum)

    def _save_held(
        self, frame: DataFrame, pause_offsets: Mapping[str, Cursor], *, batch: int
    ) -> _UnwrittenRows:
        """Save the held and the skipped records of a micro-batch."""
        check = self.replay_check
        name, held, values = self.held_store.save(
            frame, pause_offsets, order=self._order(batch), aggregates=check.aggregates
        )
        checksum = check.of_values(values)
        saved = _UnwrittenRows(name=name, held=tuple(held), checksum=checksum)
        self._check_limits(saved)
        return saved

    def _checksum(self, evaluated: Evaluated) -> RecordsChecksum:
        """Return what a replay without held records is checked by."""
        hashes = evaluated.failures.record_hashes
        if hashes is not None:
            return self.replay_check.of_hashes(hashes, count=evaluated.failed)
        return self.replay_check.of(evaluated.frame, has_failed())

    def _check_limits(self, saved: _UnwrittenRows) -> None:
        try:
            self.limits.check(self.journal.ledger, saved.name, saved.held)
        except HeldLimitExceeded:
            # No entry names this folder: each further attempt would leave another one.
            if saved.name is not None:
                self.journal.delete_rows(saved.name)
            raise

    def _dead_letters(
        self, evaluated: Evaluated, decision: Decision, held: Column, at: datetime
    ) -> tuple[DeadLetters | None, list[RecordsDeadLettered]]:
        """Store the dead letters of the skipped records, under a unique name."""
        if self.dead_letters is None or not (decision.examples or decision.counted):
            return None, []
        number, epoch = self.journal.next_number, self.event_factory.run.epoch
        context = DeadLetterContext(
            name=f"{self.journal.ledger.checkpoint}-{number:020d}-{epoch}", at=at
        )
        frame = evaluated.frame.where(has_failed() & ~held)
        return self.dead_letters.store(
            frame,
            decision.examples,
            context,
            few=evaluated.failures.is_small,
            on_driver=evaluated.on_driver,
        )

    def open(self, chunks: tuple[Chunk, ...]) -> None:
        """Record that chunks are about to be written, without a decision about their records."""
        epoch = self.event_factory.run.epoch
        self.journal.append(
            Entry(kind=EntryKind.DRAIN, at=self.clock(), epoch=epoch, chunks=chunks)
        )

    def drained(self) -> None:
        """Record that the sink returned for the open chunks."""
        at, ledger = self.clock(), self.journal.ledger
        held_rows = ledger.held_rows([chunk.task for chunk in ledger.open_chunks])
        redrives = ledger.redrives
        held = (
            records_left(ledger.task(each.task), each, held_rows[each.task], redrives=redrives)
            for each in ledger.open_chunks
        )
        events = tuple(self.event_factory.event(each, at) for each in held)
        epoch = self.event_factory.run.epoch
        self.journal.append(Entry(kind=EntryKind.DRAINED, at=at, epoch=epoch, events=events))
