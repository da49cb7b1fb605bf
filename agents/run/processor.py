"""Process micro-batches and held records: decide, commit the decision, then call the sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

from msgspec.structs import replace
from pyspark.sql import DataFrame

from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.fast_path import FastPath
from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.destinations import Destination
from arrester.agents.dead_letters.queue import DeadLetterQueue, open_dead_letter_queue
from arrester.agents.decisions.events import EventFactory
from arrester.agents.decisions.fatal import RecordFatal, must_obey
from arrester.agents.decisions.handler_retries import HandlerRetries, with_recovered
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.policies import commanded, redaction_of, stage_policies
from arrester.agents.decisions.rules import Responder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stages import stages_of
from arrester.agents.executor.columns import ENTRY, ROW
from arrester.agents.failures.aggregate_in_spark import Coordinates
from arrester.agents.failures.pause_offsets import held_after
from arrester.agents.held.limits import HeldLimits
from arrester.agents.held.schema import RowSchemas
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import NO_BATCH, Chunk
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.scratch import Scratch
from arrester.agents.journal.state import Ledger, TaskLedger
from arrester.agents.journal.storage import Storage
from arrester.agents.run.commit import Committer
from arrester.agents.run.path_selection import SLOW_PATH_BATCHES, PathSelection
from arrester.agents.sink.probe import SinkProbes
from arrester.agents.sink.stage import SinkStage
from arrester.controlplane.domain.error_policy.policy import StageKind

Clock = Callable[[], datetime]


class Processor:
    """Run micro-batches and chunks of held records of one pipeline on one checkpoint.

    The caller holds the run lock. `check` is called wherever a run may end safely, and raises if it
    should end.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        journal: Journal,
        event_factory: EventFactory,
        config: AgentConfig,
        root: str,
        clock: Clock,
        check: Callable[[], None],
        wait: Callable[[int], None],
        place: Destination | None,
        files: Storage,
    ) -> None:
        self._pipeline = pipeline
        self._spark = pipeline.source.sparkSession
        self._journal = journal
        self._teller = event_factory
        self._clock = clock
        self._check = check
        self._chunk_records = config.errors.held_chunk_records
        self._shelf = HeldStore(
            spark=self._spark, root=root, schema=pipeline.source.schema, types=RowSchemas(files)
        )
        self._tag = f"arrester-{pipeline.name}-{uuid4().hex[:8]}"
        #: The policy of the executors.
        self._policy = config.errors.policy(StageKind.PROCESS)
        self._stages = stage_policies(pipeline, config)
        responder = self._fates = Responder(
            application=config.application,
            pipeline=pipeline,
            stages=commanded(pipeline, self._stages, journal.ledger.overrides),
            clock=clock,
            scope=config.errors.scope,
            described=stages_of(pipeline),
            settings=config.shown,
            redaction=redaction_of(pipeline, config),
        )
        self._judge = Judge(
            responder=responder,
            again=HandlerRetries(responder=responder, policy=self._policy, wait=wait),
            examples_limit=config.errors.examples_limit,
            outage=config.errors.outage,
        )
        self._sink_stage = SinkStage(
            responder=responder,
            examples_limit=config.errors.examples_limit,
            outage=config.errors.outage,
            check=check,
            wait=wait,
            probes=SinkProbes(
                pipeline=pipeline,
                scratch=Scratch(files=files, epoch=event_factory.run.epoch),
                given_up_on_stop=self._given_up_on_stop,
            ),
        )
        self._letters: DeadLetterQueue | None = None
        if place is not None:
            self._letters = open_dead_letter_queue(
                place,
                responder=responder,
                files=files,
                journal=journal,
                event_factory=event_factory,
                config=config,
                check=check,
                wait=wait,
                given_up_on_stop=self._given_up_on_stop,
            )
        self._commits = Committer(
            journal=journal,
            event_factory=event_factory,
            responder=responder,
            held_store=self._shelf,
            letters=self._letters,
            bounds=HeldLimits(self._spark, root, config.errors),
            clock=clock,
        )
        #: errors.decisions=always: each micro-batch has an entry before its sink is called.
        self._always = config.errors.always_decisions
        self._ways = PathSelection(
            pipeline=pipeline,
            journal=journal,
            fast_path=FastPath.of(pipeline, self._policy),
            always_decides=self._always,
            # A record that killed a task is likely to fail again.
            careful=SLOW_PATH_BATCHES if self._dead_before() else 0,
        )
        #: The last Spark micro-batch for which the sink has returned.
        self.last_batch = NO_BATCH
        #: The last Spark micro-batch for which this run may have called the sink.
        self.begun_batch = NO_BATCH
        #: The journal's number when no task had held rows to run.
        self._idle_at = -1

    @property
    def _ledger(self) -> Ledger:
        return self._journal.ledger

    def process(self, source: DataFrame, batch: int) -> None:
        """Run a Spark micro-batch on the fast or the slow path; the result is the same.

        A replay obeys the decisions made before: skipped records stay skipped and held records stay
        held, without evaluation. The other records passed and are written again.
        """
        self._journal.check_owned()
        self.finish_open_chunk()
        number = self._ledger.batch_number(batch)
        self.begun_batch = max(batch, self.begun_batch)
        if self._ways.takes_slow_path(batch):
            self._write_on_slow_path(source, batch)
        elif not self._wrote_on_fast_path(source, number):
            # The slow path does not know the size: the rows may not fit into memory as objects.
            self._write_on_slow_path(source, batch, is_large=True)
        self.last_batch = max(batch, self.last_batch)

    def _wrote_on_fast_path(self, source: DataFrame, number: int) -> bool:
        with self._given_up_on_stop():
            return self._ways.wrote_on_fast_path(source, number, check=self._check)

    def _write_on_slow_path(self, source: DataFrame, batch: int, *, is_large: bool = False) -> None:
        """Evaluate, decide, commit, write."""
        before = self._ledger.saved_rows_of_batch(batch)
        replayed = self._ways.is_decided(batch)
        with self._given_up_on_stop():
            evaluated = evaluate(
                source,
                self._pipeline,
                blocked=() if replayed or before else self._ledger.blocked(batch),
                marks=self._shelf.marks(before),
                policy=self._policy,
                is_large=is_large,
                fails=self._ways.fails,
            )
        try:
            with self._given_up_on_stop():
                evaluated = self._blaming_shared(evaluated)
            self._check()
            decision = self._decided(evaluated, self._dead_before())
            evaluated = with_recovered(evaluated, decision.recovered)
            self._check()
            if self._always and replayed:
                must_obey(evaluated, decision)
            clean = evaluated.clean and not evaluated.retries
            if not clean or (self._always and not replayed):
                self._commits.commit(evaluated, decision, batch=batch)
            number, dead = self._ledger.batch_number(batch), self._dead_before()
            held = held_after(decision.pause_offsets)
            for left in self._sink_stage.write(evaluated, held, number, dead):
                self._commits.commit(left.evaluated, left.decision, batch=batch)
                clean = False
        finally:
            evaluated.release()
        self._ways.done_on_slow_path(clean=clean)

    def take_policies(self) -> None:
        """Apply the policy overrides of the journal; nothing is running."""
        answers = self._ledger.overrides
        self._fates.stages = commanded(self._pipeline, self._stages, answers)
        if self._letters is not None:
            self._letters.follow(self._fates.stages)

    def give_up(self) -> None:
        """Cancel a running evaluation: nothing is decided yet, and attempts may wait long."""
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    @contextmanager
    def _given_up_on_stop(self) -> Iterator[None]:
        self._spark.sparkContext.addJobTag(self._tag)
        try:
            yield
        finally:
            self._spark.sparkContext.removeJobTag(self._tag)

    def drain(self) -> bool:
        """Run the next chunk of held records of a RUNNING task; return False if there is none."""
        if self.finish_open_chunk():
            return True
        # Called many times a second: without a new journal entry the answer is the same.
        if self._idle_at == self._ledger.number:
            return False
        task = self._ledger.drainable()
        if task is None:
            self._idle_at = self._ledger.number
            return False
        self._journal.check_owned()
        key, limit = task.state.id.key, self._chunk_records
        with self._given_up_on_stop():
            chunk = self._shelf.next_chunk(self._ledger, key, limit=limit)
        self._run_chunk(replace(chunk, after=self.last_batch))
        return True

    def finish_open_chunk(self) -> bool:
        """Write the chunk for which the sink did not return, under its number; return False if
        there is none."""
        chunk = self._ledger.open_chunk
        if chunk is None:
            return False
        self._journal.check_owned()
        self._run_chunk(chunk)
        return True

    def _run_chunk(self, chunk: Chunk) -> None:
        """Evaluate, decide, commit, write. A pause in the chunk ends it before that record."""
        replayed = self._ledger.open_chunk is not None
        rows = self._shelf.rows(self._ledger, chunk).select(f"{ROW}.*", ENTRY)
        marks = self._shelf.marks(self._ledger.open_saved_rows)
        with self._given_up_on_stop():
            evaluated = evaluate(rows, self._pipeline, marks=marks, policy=self._policy)
        try:
            with self._given_up_on_stop():
                evaluated = self._blaming_shared(evaluated)
            self._check()
            decision = self._decided(evaluated, self._blamed_of(chunk))
            evaluated = with_recovered(evaluated, decision.recovered)
            self._check()
            if self._always and replayed:
                must_obey(evaluated, decision)
            chunk = self._cut(chunk, decision)
            if self._ledger.open_chunk is None or evaluated.failed or evaluated.retries:
                self._commits.commit(evaluated, decision, chunk=chunk)
            if chunk.taken:
                number, dead = self._ledger.chunk_number(chunk.after), self._blamed_of(chunk)
                held = held_after(decision.pause_offsets)
                for left in self._sink_stage.write(evaluated, held, number, dead):
                    chunk = self._cut(chunk, left.decision)
                    self._commits.commit(left.evaluated, left.decision, chunk=chunk)
        finally:
            evaluated.release()
        self._commits.drained(chunk)

    def _cut(self, chunk: Chunk, decision: Decision) -> Chunk:
        """Return the chunk up to the record at which its task stops."""
        for cut in decision.pause_offsets.values():
            chunk = self._shelf.shorten_chunk(self._ledger, chunk, cut)
        return chunk

    def _blamed_of(self, chunk: Chunk) -> list[Coordinates]:
        return _blamed(self._ledger.task(chunk.task))

    def _blaming_shared(self, evaluated: Evaluated) -> Evaluated:
        return fail_shared_positions(evaluated, self._pipeline, examples=self._judge.examples_limit)

    def _decided(self, evaluated: Evaluated, blamed: Sequence[Coordinates]) -> Decision:
        # An earlier attempt may have ended between its decision and its entry.
        self._judge.responder.forget_undecided()
        if not evaluated.failed:
            return Decision()
        decision = self._judge.decide(evaluated.failures, blamed)
        if decision.fatal is not None:
            raise RecordFatal(decision.fatal, decision.outage, redaction=self._fates.redaction)
        return decision

    def _dead_before(self) -> list[Coordinates]:
        """Return the records that killed tasks: in a micro-batch they may fail again."""
        return [
            where
            for task in self._ledger.tasks.values()
            if not task.blocked
            for where in _blamed(task)
        ]

    @property
    def held_store(self) -> HeldStore:
        """The store of held rows."""
        return self._shelf

    @property
    def letters(self) -> DeadLetterQueue | None:
        """The dead letter queue; None if it is not enabled."""
        return self._letters


def _blamed(task: TaskLedger) -> list[Coordinates]:
    """Return the coordinates of the record at which the task stopped, if they are unique.

    Many records may have no position.
    """
    if task.stopped_by is None or task.stopped_by.position is None:
        return []
    return [(task.state.id.key, task.stopped_by.position)]
