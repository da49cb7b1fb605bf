"""Process micro-batches and held records: decide, commit the decision, then call the sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace
from pyspark.sql import DataFrame

from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.fast_path import FastPath
from arrester.agents.batch.record_columns import present_task
from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.decisions.end_reasons import RecordFatal, SinkFailed, check_replay
from arrester.agents.decisions.handler_retries import with_recovered
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.policies import StagePolicy, with_overrides
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.held.chunk_size import ChunkSize
from arrester.agents.held.replay_check import PositionsChanged
from arrester.agents.held.schema import HeldRowsMismatch
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import NO_BATCH, Chunk, Cursor, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.run.commit import Committer
from arrester.agents.sink.stage import SinkStage
from arrester.agents.spark.job_attempts import JobTag
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.spark.local_checkpoint import releasing_on_error
from arrester.agents.spark.rows_read import RowsUnread
from arrester.agents.worker.columns import ENTRY, ROW
from arrester.controlplane.domain.error_policy.policy import Policy

#: Clean micro-batches on the slow path after a failure. Failures cluster, and a micro-batch that is
#: done twice costs more than the slow path.
SLOW_PATH_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """A micro-batch, or chunks of held records, without the rows."""

    batch: int | None = None
    chunks: tuple[Chunk, ...] = ()
    #: What earlier decisions about it saved.
    saved_rows: Sequence[SavedRows]
    #: Whether an earlier attempt has made a durable decision.
    is_replayed: bool
    #: Whether a clean result needs an entry, too, before the sink is called.
    needs_entry: bool
    #: The tasks whose records are held without evaluation.
    blocked: tuple[str | None, ...] = ()
    is_large: bool = False
    #: Whether records are likely to fail.
    expects_failures: bool = False


@dataclass(slots=True, kw_only=True)
class Processor:
    """Run micro-batches and chunks of held records of one pipeline on one checkpoint.

    The caller holds the run lock. `check` is called wherever a run may end safely, and raises if it
    should end.
    """

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    judge: Judge
    committer: Committer
    sink_stage: SinkStage
    #: None if the sink may leave part of what it was given.
    fast_path: FastPath | None
    #: errors.decisions=always: a decision is durable before the sink is called.
    always_decides: bool
    #: Clean micro-batches that still take the slow path, because records failed recently.
    slow_batches: int = 0
    #: The same for chunks of held records.
    slow_chunks: int = 0
    #: None if dead letters are not enabled.
    dead_letters: DeadLetterQueue | None
    #: The policies of the author and the configuration, without overrides.
    stages: Mapping[int, StagePolicy]
    #: The policy of the executors.
    policy: Policy
    chunk_size: ChunkSize
    jobs: JobDescription
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
        """Run a Spark micro-batch on the fast or the slow path; the result is the same.

        A replay obeys the decisions made before: skipped records stay skipped and held records stay
        held, without evaluation. The other records passed and are written again.
        """
        self.journal.check_owned()
        self.finish_open_chunks()
        self._refresh_schemas()
        self.begun_batch = max(batch, self.begun_batch)
        with self.jobs.of_batch(batch):
            self._write(source, batch)
        self.last_batch = max(batch, self.last_batch)
        self.awaited_batch = None

    def _refresh_schemas(self) -> None:
        """Ask registries for further schemas. A registry that does not answer changes nothing."""
        changed = [framed.refresh() for framed in self.pipeline.framed.values()]
        if any(changed):
            self.fast_path = FastPath.of(self.pipeline, self.policy)

    def _write(self, source: DataFrame, batch: int) -> None:
        ledger = self._ledger
        # Spark has not committed the micro-batch, but there is a decision about it.
        is_replayed = any(
            entry.kind is EntryKind.BATCH and entry.batch == batch
            for entry in self.journal.unsettled
        )
        blocked = ledger.blocked(batch)
        takes_fast_path = self.fast_path is not None and not (
            self.always_decides or self.slow_batches or is_replayed or blocked
        )
        number = ledger.batch_number(batch)
        if not (takes_fast_path and self._wrote_on_fast_path(source, number)):
            saved_rows = ledger.saved_rows_of_batch(batch)
            clean = self._write_on_slow_path(
                source,
                _Input(
                    batch=batch,
                    saved_rows=saved_rows,
                    is_replayed=is_replayed,
                    needs_entry=self.always_decides and not is_replayed,
                    blocked=() if is_replayed or saved_rows else tuple(blocked),
                    # The fast path does not count: the rows may not fit into memory as objects.
                    is_large=takes_fast_path,
                    expects_failures=self.slow_batches > 0,
                ),
            )
            self.slow_batches = max(0, self.slow_batches - 1) if clean else SLOW_PATH_BATCHES

    def _wrote_on_fast_path(self, source: DataFrame, number: int) -> bool:
        assert self.fast_path is not None
        self.jobs.phase("fast path")
        try:
            with self.stoppable.set():
                return self.fast_path.write(source, number, check=self.check)
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
            chunks = self.held_store.next_chunks(self._ledger, limit=self.chunk_size.records)
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
        is_open = bool(self._ledger.open_chunks)
        self._refresh_schemas()
        with self.jobs.of_held_records():
            self.jobs.phase("read")
            with self.stoppable.set():
                if not self._keep_their_tasks(chunks, is_open=is_open):
                    chunks = chunks[:1]
            if is_open or not self._wrote_chunks_on_fast_path(chunks):
                is_open = bool(self._ledger.open_chunks)
                clean = self._write_on_slow_path(
                    self.held_store.rows(self._ledger, chunks).select(f"{ROW}.*", ENTRY),
                    _Input(
                        chunks=chunks,
                        saved_rows=self._ledger.open_saved_rows,
                        is_replayed=is_open,
                        needs_entry=not is_open,
                        is_large=self.fast_path is not None,
                    ),
                )
                self.slow_chunks = max(0, self.slow_chunks - 1) if clean else SLOW_PATH_BATCHES
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
        if self.fast_path is None or self.always_decides or self.slow_chunks:
            return False
        # It raises if rows do not fit the source: then their task is PAUSED, and no chunk is open.
        rows = self.held_store.rows(self._ledger, chunks).select(f"{ROW}.*")
        self.committer.open(chunks)
        return self._wrote_on_fast_path(rows, self._ledger.chunk_number(chunks[0].after))

    def _write_on_slow_path(self, rows: DataFrame, input: _Input) -> bool:
        """Evaluate, decide, commit, write; return whether no record failed.

        A pause in a chunk ends it before that record.
        """
        evaluated = self._evaluate(rows, input)
        try:
            self.check()
            self.jobs.phase("decide")
            decision = self._decide(evaluated, input)
            if decision.recovered:
                evaluated = with_recovered(evaluated, decision.recovered)
            self.check()
            if self.always_decides and input.is_replayed:
                check_replay(evaluated, decision)
            chunks = self._shortened(input.chunks, decision)
            clean = evaluated.clean and not evaluated.retries
            if input.needs_entry or not clean:
                self.jobs.phase("store decision")
                self.committer.commit(evaluated, decision, batch=input.batch, chunks=chunks)
            if chunks and not any(each.taken for each in chunks):
                return clean
            held, number = held_after(decision.pause_offsets), self._number(input)
            self.jobs.phase("write")
            for rest in self.sink_stage.write(evaluated, held, number, self._stopped_at(input)):
                self.jobs.phase("store decision")
                chunks = self._shortened(chunks, rest.decision)
                self.committer.commit(
                    rest.evaluated, rest.decision, batch=input.batch, chunks=chunks
                )
                self.jobs.phase("write")
                clean = False
            return clean
        finally:
            evaluated.release()

    def _evaluate(self, rows: DataFrame, input: _Input) -> Evaluated:
        saved = input.saved_rows
        marks = self.held_store.decision_marks(saved) if saved else None
        self.jobs.phase("evaluate")
        with self.stoppable.set():
            evaluated = evaluate(
                rows,
                self.pipeline,
                blocked=input.blocked,
                marks=marks,
                policy=self.policy,
                is_large=input.is_large,
                expects_failures=input.expects_failures,
                # A chunk's records are not checked in a replay.
                record_hash=(
                    None if input.batch is None else self.committer.replay_check.record_hash
                ),
            )
            with releasing_on_error(evaluated.blocks):
                if saved and input.batch is not None:
                    check = self.committer.replay_check
                    check.check(evaluated.frame, saved, input.batch, self.held_store.held_rows)
                if not evaluated.failed:
                    return evaluated
                return fail_shared_positions(
                    evaluated, self.pipeline, examples=self.judge.examples_limit
                )

    def _decide(self, evaluated: Evaluated, input: _Input) -> Decision:
        rules = self.judge.rules
        # An earlier attempt may have ended between its decision and its entry.
        rules.discard_undecided()
        if not evaluated.failed:
            return Decision()
        self._check_registries(evaluated)
        decision = self.judge.decide(evaluated.failures, self._stopped_at(input))
        if decision.fatal is not None:
            raise RecordFatal(decision.fatal, decision.outage, redaction=rules.redaction)
        return decision

    def _check_registries(self, evaluated: Evaluated) -> None:
        """Raise SchemaRegistryUnavailable, retried as the source's, if a schema may be missing."""
        for number, framed in self.pipeline.framed.items():
            if framed.unavailable is not None and evaluated.failures.has_failed_at([number]):
                framed.raise_if_unavailable()

    def _shortened(self, chunks: tuple[Chunk, ...], decision: Decision) -> tuple[Chunk, ...]:
        """Return the chunks up to the records at which their tasks stop."""
        ends = decision.pause_offsets
        if not chunks or not ends:
            return chunks
        if len(chunks) == 1:
            # Its rows may have other tasks now: it ends before the first that stops.
            first = min(ends.values(), key=_in_order)
            return self.held_store.shorten(self._ledger, chunks, {0: first})
        by_index = {
            index: ends[each.task]
            for index, each in enumerate(chunks)
            if each.task is not None and each.task in ends
        }
        return self.held_store.shorten(self._ledger, chunks, by_index)

    def _number(self, input: _Input) -> int:
        """Return the sink's number, after all entries about the input."""
        if input.chunks:
            return self._ledger.chunk_number(input.chunks[0].after)
        assert input.batch is not None
        return self._ledger.batch_number(input.batch)

    def _stopped_at(self, input: _Input) -> list[Coordinates]:
        """Return the records that stopped tasks earlier and may fail again."""
        if input.chunks:
            tasks = [self._ledger.task(each.task) for each in input.chunks]
            return [coordinates for task in tasks for coordinates in _stopping_record(task)]
        return stopping_records(self._ledger)

    def apply_overrides(self) -> None:
        """Apply the policy overrides of the journal; nothing is running."""
        stages = with_overrides(self.pipeline, self.stages, self._ledger.overrides)
        self.judge.rules.stages = stages
        if self.dead_letters is not None:
            self.dead_letters.apply_policies(stages)


def _in_order(cursor: Cursor) -> tuple[int, bool, int]:
    """Return a sort key: a position of None precedes all numbers."""
    return cursor.entry, cursor.position is not None, cursor.position or 0


def stopping_records(ledger: Ledger) -> list[Coordinates]:
    """Return the records that killed tasks which run again: in a micro-batch they may fail
    again."""
    running = (task for task in ledger.tasks.values() if not task.blocked)
    return [coordinates for task in running for coordinates in _stopping_record(task)]


def _stopping_record(task: TaskLedger) -> list[Coordinates]:
    """Return the coordinates of the record at which the task stopped, if they are unique.

    Many records may have no position.
    """
    if task.stopped_by is None or task.stopped_by.position is None:
        return []
    return [(task.state.id.key, task.stopped_by.position)]
