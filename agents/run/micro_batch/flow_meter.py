"""What flows through one run: each record is counted once, when its micro-batch is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import Storage, last_committed
from arrester.agents.spark.query_progress import Progress
from arrester.agents.transport.flow_store import FlowStore, Measured, Pending, Waits, minute_of
from arrester.domain.durations import Phase, key_of
from arrester.domain.events import (
    FailuresCounted,
    FinalResponse,
    FlowMeasured,
    RecordFailed,
    Run,
)

_log = logging.getLogger("arrester.thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMeter:
    """Counts what flows through one run.

    The counts of a micro-batch wait in the spool until Spark has committed it, those of held
    records until the journal entry about them exists: until then they may be repeated. What a
    killed run left is judged by the next one.
    """

    #: The counts of the run; None: no server receives them, and nothing is counted.
    store: FlowStore | None
    run: Run
    instance: UUID
    journal: Journal
    #: Spark's planned and committed micro-batches.
    progress: Storage
    clock: Callable[[], datetime]

    @property
    def is_on(self) -> bool:
        """Whether records are to be counted."""
        return self.store is not None

    def judge(self, committed: int) -> None:
        """Count what was committed before the query starts; what is repeated is counted then."""
        if self.store is None:
            return
        waiting = self.store.pending(self.run.checkpoint)
        counts = [each for each in waiting if self._is_committed(each, committed)]
        self.store.settle(counts, repeated=[each for each in waiting if each not in counts])

    def settle(self, committed: int) -> None:
        """Count this run's micro-batches up to a number, which Spark has committed."""
        if self.store is not None:
            waiting = [each for each in self._waiting() if each.number <= committed]
            self.store.settle(waiting)

    def reported(self, progress: Progress) -> None:
        """Count what Spark reports to be committed, and how long the trigger took."""
        if self.store is None:
            return
        self.settle(progress.committed)
        if not progress.is_batch:
            return
        times = {Phase.TOTAL: progress.total, Phase.SOURCE: progress.source}
        flow = FlowMeasured(
            minute=minute_of(progress.ended_at),
            durations={key_of(phase, taken): 1 for phase, taken in times.items()},
            last_batch_at=progress.ended_at,
            backlog=progress.backlog.size,
            backlog_unit=progress.backlog.unit,
            watermark=progress.watermark,
        )
        self.store.add(Measured(instance=self.instance, run=self.run, flow=flow))

    def end(self) -> None:
        """Count what is committed at the end of the run, whose query has stopped."""
        try:
            if self._waiting():
                self.settle(last_committed(self.progress))
        except Exception:  # the next run counts it
            _log.debug("%s: its last flow is counted later", self.run.pipeline, exc_info=True)

    def wrote(self, batch: int, records: Callable[[], int], seconds: Mapping[Phase, float]) -> None:
        """Count a micro-batch for which the sink has returned."""
        if self.store is None:
            return
        try:
            flow = self._flow_of(batch, records(), seconds)
        except Exception:  # a count must not repeat what is written
            message = "pipeline %r: what flowed in batch %s is not counted"
            _log.warning(message, self.run.pipeline, batch, exc_info=True)
        else:
            self.store.add_pending(self._pending(Waits.BATCH, batch, flow))

    def _flow_of(self, batch: int, records: int, seconds: Mapping[Phase, float]) -> FlowMeasured:
        at, decided = self.clock(), self._entries(EntryKind.BATCH, batch)
        failed, skipped = _failures(decided)
        held = sum(each.count for entry in decided for each in entry.held)
        return FlowMeasured(
            minute=minute_of(at),
            micro_batches=1,
            # A source may have lost records that an earlier attempt had decided.
            records_in=max(records, skipped + held),
            records_out=max(0, records - skipped - held),
            failed=failed,
            skipped=skipped,
            held=held,
            durations={key_of(phase, taken * 1_000): 1 for phase, taken in seconds.items()},
            last_batch_at=at,
        )

    @contextmanager
    def draining(self) -> Iterator[None]:
        """Count the open chunks of held records, whose journal entry the block appends."""
        taken = sum(each.taken for each in self.journal.ledger.open_chunks)
        failed, skipped = _failures(self._entries(EntryKind.DRAIN)) if self.is_on else (0, 0)
        with self._of_entry(
            FlowMeasured(
                minute=minute_of(self.clock()),
                records_out=max(0, taken - skipped),
                failed=failed,
                skipped=min(taken, skipped),
                drained=taken,
            )
        ):
            yield

    @contextmanager
    def skipping(self, records: int) -> Iterator[None]:
        """Count held records that a command skips, whose journal entry the block appends."""
        now = minute_of(self.clock())
        with self._of_entry(FlowMeasured(minute=now, skipped=records, drained=records)):
            yield

    @contextmanager
    def _of_entry(self, flow: FlowMeasured) -> Iterator[None]:
        if self.store is None or not (flow.drained or flow.failed):
            yield
            return
        pending = self._pending(Waits.ENTRY, self.journal.next_number, flow)
        self.store.add_pending(pending)
        yield
        self.store.settle([pending])

    def _pending(self, waits: Waits, number: int, flow: FlowMeasured) -> Pending:
        measured = Measured(instance=self.instance, run=self.run, flow=flow)
        return Pending(waits=waits, number=number, measured=measured)

    def _waiting(self) -> list[Pending]:
        """Return the micro-batches of this run that are not known to be committed."""
        if self.store is None:
            return []
        return [
            each
            for each in self.store.pending(self.run.checkpoint)
            if each.waits is Waits.BATCH and each.epoch == self.run.epoch
        ]

    def _entries(self, kind: EntryKind, batch: int | None = None) -> list[Entry]:
        """Return the complete entries about a micro-batch, or about the open chunks."""
        numbers: list[int] = []
        for entry in reversed(self.journal.unsettled):
            if entry.kind is EntryKind.DRAINED and kind is EntryKind.DRAIN:
                break
            if entry.kind is kind and entry.batch == batch:
                numbers.append(entry.number)
        found = (self.journal.entry(number) for number in numbers)
        return [entry for entry in found if entry is not None]

    def _is_committed(self, pending: Pending, committed: int) -> bool:
        """Whether the commit that counts wait for was made, by the run that counted."""
        epoch, number = pending.epoch, pending.number
        if pending.waits is Waits.ENTRY:
            return self.journal.is_of_run(number, epoch)
        later = self.journal.committed_before(epoch + 1) if epoch + 1 < self.run.epoch else None
        return number <= (committed if later is None else later)


def _failures(entries: list[Entry]) -> tuple[int, int]:
    """Return how many records failed for the first time, and how many are skipped."""
    failed = skipped = 0
    for entry in entries:
        for event in entry.events:
            data = event.data
            if isinstance(data, RecordFailed):
                failed += data.count
                skipped += data.response is FinalResponse.CONTINUE
            elif isinstance(data, FailuresCounted):
                failed += data.count
                skipped += data.count if data.response is FinalResponse.CONTINUE else 0
    return failed, skipped
