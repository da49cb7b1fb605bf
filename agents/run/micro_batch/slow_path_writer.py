"""The slow path of a micro-batch or of held records: evaluate, decide, commit, then write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame

from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.decisions.end_reasons import RecordFatal, check_replay
from arrester.agents.decisions.handler_retries import with_recovered
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Chunk, Cursor
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.run.micro_batch.commit import Committer
from arrester.agents.sink.stage import SinkStage
from arrester.agents.spark.frames.local_checkpoint import releasing_on_error
from arrester.agents.spark.job_attempts import JobTag
from arrester.agents.spark.job_description import JobDescription
from arrester.domain.error_policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
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


class Written(NamedTuple):
    """An input that is decided and written."""

    #: Whether no record failed or was retried.
    clean: bool
    #: The number of records of a micro-batch, if they are counted.
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPathWriter:
    """Writes inputs of one run on the slow path.

    `check` is called wherever the run may end safely, and raises if it should end.
    """

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    judge: Judge
    committer: Committer
    sink_stage: SinkStage
    #: errors.decisions=always: a decision is durable before the sink is called.
    always_decides: bool
    #: The policy of the executors.
    policy: Policy
    #: Whether the records of micro-batches are to be counted.
    counts_records: bool
    jobs: JobDescription
    #: The jobs that a stop request may cancel.
    stoppable: JobTag
    check: Callable[[], None]

    def write(self, rows: DataFrame, input: Input) -> Written:
        """Evaluate, decide, commit, write.

        A pause in a chunk ends it before that record.
        """
        evaluated = self._evaluate(rows, input)
        records = evaluated.records
        try:
            self.check()
            self.jobs.phase("decide")
            decision = self.decide(evaluated, input)
            if decision.recovered:
                evaluated = with_recovered(evaluated, decision.recovered)
            self.check()
            if self.always_decides and input.is_replayed:
                check_replay(evaluated, decision)
            self.judge.log(decision)
            chunks = self._shortened(input.chunks, decision)
            clean = not (evaluated.failed or evaluated.retries)
            if input.needs_entry or not clean or evaluated.held:
                self.jobs.phase("store decision")
                self.committer.commit(evaluated, decision, batch=input.batch, chunks=chunks)
            if chunks and not any(each.taken for each in chunks):
                return Written(clean, records)
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
            return Written(clean, records)
        finally:
            evaluated.release()

    def _evaluate(self, rows: DataFrame, input: Input) -> Evaluated:
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
                counts_records=self.counts_records and input.batch is not None,
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
                return self.with_shared_positions(evaluated)

    def with_shared_positions(self, evaluated: Evaluated) -> Evaluated:
        """Return the batch with all records failed that share the position of a failed one."""
        limit = self.judge.examples_limit
        return fail_shared_positions(evaluated, self.pipeline, examples=limit)

    def decide(self, evaluated: Evaluated, input: Input) -> Decision:
        """Return the decision about the failed records, not committed yet; raises RecordFatal."""
        rules = self.judge.rules
        # An earlier attempt may have ended between its decision and its entry.
        rules.discard_undecided()
        if not evaluated.failed:
            return Decision()
        self.check_registries(evaluated)
        decision = self.judge.decide(evaluated.failures, self._stopped_at(input))
        if decision.fatal is not None:
            self.judge.log(decision)
            raise RecordFatal(decision.fatal, decision.outage, redaction=rules.redaction)
        return decision

    def check_registries(self, evaluated: Evaluated) -> None:
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
            # The chunk's rows may have other tasks now: it ends before the first that stops.
            first = min(ends.values(), key=_in_order)
            return self.held_store.shorten(self.journal.ledger, chunks, {0: first})
        by_index = {
            index: ends[each.task]
            for index, each in enumerate(chunks)
            if each.task is not None and each.task in ends
        }
        return self.held_store.shorten(self.journal.ledger, chunks, by_index)

    def _number(self, input: Input) -> int:
        """Return the sink's number, after all entries about the input."""
        if input.chunks:
            return self.journal.ledger.chunk_number(input.chunks[0].after)
        assert input.batch is not None
        return self.journal.ledger.batch_number(input.batch)

    def _stopped_at(self, input: Input) -> list[Coordinates]:
        """Return the records that stopped tasks earlier and may fail again."""
        if input.chunks:
            tasks = [self.journal.ledger.task(each.task) for each in input.chunks]
            return [coordinates for task in tasks for coordinates in _stopping_record(task)]
        return stopping_records(self.journal.ledger)


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
