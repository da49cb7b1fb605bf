"""Process micro-batches and held records: choose their path, and run them in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace
from pyspark.sql import DataFrame

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.batch.record_columns import present_task
from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.decisions.end_reasons import SinkFailed
from arrester.agents.decisions.policies import StagePolicy, with_overrides
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.held.chunk_size import ChunkSize
from arrester.agents.held.next_chunks import next_chunks
from arrester.agents.held.replay_check import PositionsChanged
from arrester.agents.held.schema import HeldRowsMismatch
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import NO_BATCH, Chunk, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.ledger import Ledger
from arrester.agents.run.micro_batch.commit import Committer
from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.run.micro_batch.slow_path_writer import Input, SlowPathWriter, Written
from arrester.agents.run.micro_batch.staged_writer import NotWritten, StagedWriter
from arrester.agents.spark.job_attempts import JobTag
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.spark.sources.rows_read import RowsUnread
from arrester.agents.spark.sources.source_reads import Reads, UncountedReads
from arrester.agents.worker.columns import ENTRY, ROW
from arrester.domain.durations import Phase
from arrester.domain.error_policy.policy import Policy

#: Clean micro-batches on the slow path after a failure. Failures cluster, and a micro-batch that is
#: done twice costs more than the slow path.
SLOW_PATH_BATCHES = 8


@dataclass(slots=True, kw_only=True)
class Processor:
    """Run micro-batches and chunks of held records of one pipeline on one checkpoint.

    `check` is called wherever a run may end safely, and raises if it
    should end.
    """

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    committer: Committer
    slow_path: SlowPathWriter
    #: The path of micro-batches without failures; None if the sink may leave part of its rows.
    fast_path: FastPath | None
    #: The staged path; None if the sink cannot stage, or for some steps.
    staged: StagedWriter | None
    #: Clean micro-batches that still take the slow path, because records failed recently.
    slow_batches: int = 0
    #: The same for chunks of held records.
    slow_chunks: int = 0
    #: The dead letters of the run; None if they are not enabled.
    dead_letters: DeadLetterQueue | None
    #: The policies of the author and the configuration, without overrides.
    stages: Mapping[int, StagePolicy]
    #: The policy of the executors.
    policy: Policy
    chunk_size: ChunkSize
    jobs: JobDescription
    meter: FlowMeter
    #: The jobs that a stop request may cancel.
    stoppable: JobTag
    check: Callable[[], None]
    #: The last Spark micro-batch for which the sink has returned.
    last_batch: int = NO_BATCH
    #: The last Spark micro-batch for which this run may have called the sink.
    begun_batch: int = NO_BATCH
    #: Planned by Spark but not committed; it runs before held records.
    awaited_batch: int | None = None
    #: Held records per second in the last chunk; None if none of a RUNNING task is left.
    drained_per_second: float | None = None
    #: The journal's number when no task had held rows to run.
    _idle_at: int = -1

    @property
    def last_begun(self) -> int:
        """The last micro-batch that may have reached the sink, and may be repeated."""
        awaited = self.awaited_batch
        return self.begun_batch if awaited is None else max(self.begun_batch, awaited)

    @property
    def _ledger(self) -> Ledger:
        return self.journal.ledger

    def process(self, source: DataFrame, batch: int) -> None:
        """Run a Spark micro-batch on a fast path or the slow path; the result is the same.

        A replay obeys the decisions made before: skipped records stay skipped and held records stay
        held, without evaluation. The other records passed and are written again.
        """
        self.journal.check_owned()
        self.slow_path.judge.rules.forget_answers()
        self.meter.settle(batch - 1)
        self.finish_open_chunks()
        self.refresh_schemas()
        self.begun_batch = max(batch, self.begun_batch)
        began = time.monotonic()
        with self.jobs.of_batch(batch):
            records = self._write(source, batch)
        seconds = self.jobs.times.seconds
        if not self.pipeline.source.isStreaming:
            # Spark measures streams only.
            seconds = {**seconds, Phase.TOTAL: time.monotonic() - began}
        self.meter.wrote(batch, records, seconds)
        self.last_batch = max(batch, self.last_batch)
        self.awaited_batch = None

    def refresh_schemas(self) -> None:
        """Ask registries for further schemas. A registry that does not answer changes nothing."""
        changed = [framed.refresh() for framed in self.pipeline.framed.values()]
        if any(changed):
            self.fast_path = FastPath.of(self.pipeline, self.policy)
            self.staged = StagedWriter.of(self.slow_path)

    def _write(self, source: DataFrame, batch: int) -> Callable[[], int]:
        """Write a micro-batch, and return how to get the number of its records."""
        ledger = self._ledger
        blocked = tuple(ledger.blocked(batch))
        is_healthy = not (self.slow_batches or self._is_decided(batch))
        was_tried = stops_tasks = False
        if self.staged is not None and is_healthy:
            was_tried = True
            staged = self.staged.write(source, batch=batch, blocked=blocked)
            if isinstance(staged, Written):
                return lambda: staged.records
            stops_tasks = staged is NotWritten.STOPS_TASKS
        elif self.fast_path is not None and is_healthy and not self._needs_decision(blocked):
            was_tried = True
            reads = self.fast_path.reads(source) if self.meter.is_on else UncountedReads(source)
            if self._wrote_on_fast_path(reads, ledger.batch_number(batch)):
                return reads.count
        # The staged path may have decided.
        is_replayed, saved_rows = self._is_decided(batch), ledger.saved_rows_of_batch(batch)
        written = self.slow_path.write(
            source,
            Input(
                batch=batch,
                saved_rows=saved_rows,
                is_replayed=is_replayed,
                needs_entry=self.slow_path.always_decides and not is_replayed,
                blocked=() if is_replayed or saved_rows else blocked,
                # Neither fast path stores: the rows may not fit into memory as objects.
                is_large=was_tried,
                expects_failures=self.slow_batches > 0,
            ),
        )
        if not stops_tasks:
            # After a stop, the staged path writes the next micro-batch without the stopped tasks.
            clean = written.clean
            self.slow_batches = max(0, self.slow_batches - 1) if clean else SLOW_PATH_BATCHES
        return lambda: written.records

    def _needs_decision(self, blocked: Sequence[str | None]) -> bool:
        """Whether there is a decision about each micro-batch."""
        return bool(blocked) or self.slow_path.always_decides

    def _is_decided(self, batch: int) -> bool:
        """Whether Spark has not committed the micro-batch, but there is a decision about it."""
        return any(
            entry.kind is EntryKind.BATCH and entry.batch == batch
            for entry in self.journal.unsettled
        )

    def _wrote_on_fast_path(self, reads: Reads, number: int) -> bool:
        assert self.fast_path is not None
        self.jobs.phase("fast path")
        try:
            with self.stoppable.set(), reads.watched():
                return self.fast_path.write(reads.frame, number, check=self.check)
        except RowsUnread as exc:
            raise SinkFailed(exc) from exc

    def drain(self) -> bool:
        """Run the next held records of the RUNNING tasks; return False if there are none."""
        if self.awaited_batch is not None:
            return False
        if self.finish_open_chunks():
            return True
        # Called many times a second: without a new journal entry the answer is the same.
        if self._idle_at == self._ledger.number:
            return False
        if not self._ledger.drainable():
            self._idle_at, self.drained_per_second = self._ledger.number, None
            return False
        self.journal.check_owned()
        with self.jobs.of_held_records(), self.stoppable.set():
            self.jobs.phase("read")
            chunks = next_chunks(self.held_store, self._ledger, limit=self.chunk_size.records)
        began = time.monotonic()
        taken = self._run_chunks(tuple(replace(each, after=self.last_batch) for each in chunks))
        seconds = time.monotonic() - began
        self.drained_per_second = taken / seconds
        self.chunk_size.adapt(taken, seconds=seconds)
        return True

    def finish_open_chunks(self) -> bool:
        """Write the chunks for which the sink did not return, under their number; return False if
        there are none."""
        chunks = self._ledger.open_chunks
        if not chunks:
            return False
        self.journal.check_owned()
        self._run_chunks(chunks)
        return True

    def _run_chunks(self, chunks: tuple[Chunk, ...]) -> int:
        """Give held records to the steps and the sink; return the number of those taken."""
        self.slow_path.judge.rules.forget_answers()
        is_open = bool(self._ledger.open_chunks)
        self.refresh_schemas()
        with self.jobs.of_held_records():
            self.jobs.phase("read")
            with self.stoppable.set():
                if not self._keep_their_tasks(chunks, is_open=is_open):
                    chunks = chunks[:1]
            if is_open or not self._wrote_chunks_on_fast_path(chunks):
                is_open = bool(self._ledger.open_chunks)
                written = self.slow_path.write(
                    self.held_store.rows(self._ledger, chunks).select(f"{ROW}.*", ENTRY),
                    Input(
                        chunks=chunks,
                        saved_rows=self._ledger.open_saved_rows,
                        is_replayed=is_open,
                        needs_entry=not is_open,
                        is_large=self.fast_path is not None,
                    ),
                )
                self.slow_chunks = (
                    max(0, self.slow_chunks - 1) if written.clean else SLOW_PATH_BATCHES
                )
        with self.meter.draining():
            self.committer.drained()
        return sum(each.taken for each in chunks)

    def _keep_their_tasks(self, chunks: tuple[Chunk, ...], *, is_open: bool) -> bool:
        """Check that all rows are there; return whether several chunks can run together.

        If the source's task expression or columns changed, the rows of one task may stop another
        one, or the rows of one do not fit. Then each task runs by itself. Raises PositionsChanged
        if the chunks are open: the sink may have written them together.
        """
        key = partial(present_task, pipeline=self.pipeline)
        try:
            is_same = self.held_store.check_rows(self._ledger, chunks, key)
        except HeldRowsMismatch:
            if len(chunks) == 1 or is_open:
                raise
            return False
        if is_open and not is_same:
            raise PositionsChanged(
                f"held records of {len(chunks)} tasks were being written when the last run ended, "
                "and task= gives some of them another task now: start once with the former task="
            )
        return is_same

    def _wrote_chunks_on_fast_path(self, chunks: tuple[Chunk, ...]) -> bool:
        if self.fast_path is None or self.slow_path.always_decides or self.slow_chunks:
            return False
        # `rows` raises if rows do not fit the source: their task is PAUSED, and no chunk is open.
        rows = self.held_store.rows(self._ledger, chunks).select(f"{ROW}.*")
        self.committer.open(chunks)
        return self._wrote_on_fast_path(
            UncountedReads(rows), self._ledger.chunk_number(chunks[0].after)
        )

    def apply_overrides(self) -> None:
        """Apply the policy overrides of the journal; nothing is running."""
        stages = with_overrides(self.pipeline, self.stages, self._ledger.overrides)
        self.slow_path.judge.rules.stages = stages
        if self.dead_letters is not None:
            self.dead_letters.apply_policies(stages)
