"""One run's work on micro-batches and held records: decide, make it durable, then call the sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import uuid4

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from agents.again import Again, helpful_retries, with_cured
from agents.bounds import HeldBounds
from agents.checkpoint import Storage
from agents.config import AgentConfig
from agents.deadletters import LetterBox, letter_box
from agents.decisions import Coordinates, Decision, Judge
from agents.entries import NO_BATCH, Chunk, DeadLetters, Entry, Held, Kind
from agents.fatal import RecordFatal, SinkFailed, must_obey
from agents.fates import Fates
from agents.held import Shelf, cut_of, must_hold
from agents.journal import Journal
from agents.ledger import Ledger, TaskLedger
from agents.letter_frames import Said
from agents.letter_places import Place
from agents.microbatch import Evaluated, evaluate
from agents.onepass import OnePass
from agents.pipeline import Pipeline
from agents.policies import redaction_of, stage_policies
from agents.shared import blaming_shared
from agents.stages import stages_of
from agents.telling import Teller
from agents.ways import CAREFUL_BATCHES, Ways
from agents.worker.columns import ENTRY, FATE, ORDINAL, ROW, SOURCE
from controlplane.domain.events import RecordsDeadLettered, RecordsHeld
from controlplane.domain.policy import StageKind

Clock = Callable[[], datetime]


class Processor:
    """Runs micro-batches and chunks of held records of one pipeline, at one checkpoint.

    Its caller holds the pipeline's lock. `check` is called where a run may end without harm, and
    raises when it should.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        journal: Journal,
        teller: Teller,
        config: AgentConfig,
        root: str,
        clock: Clock,
        check: Callable[[], None],
        wait: Callable[[int], None],
        place: Place | None,
        files: Storage,
    ) -> None:
        self._pipeline = pipeline
        self._spark = pipeline.source.sparkSession
        self._journal = journal
        self._teller = teller
        self._clock = clock
        self._check = check
        self._chunk_records = config.errors.held_chunk_records
        self._bounds = HeldBounds(self._spark, root, config.errors)
        self._shelf = Shelf(spark=self._spark, root=root, schema=pipeline.source.schema)
        self._tag = f"arrester-{pipeline.name}-{uuid4().hex[:8]}"
        #: What the executors go by.
        self._policy = config.errors.policy(StageKind.PROCESS)
        fates = Fates(
            application=config.application,
            pipeline=pipeline,
            stages=stage_policies(pipeline, config),
            clock=clock,
            scope=config.errors.scope,
            described=stages_of(pipeline),
            settings=config.shown,
        )
        self._judge = Judge(
            fates=fates,
            again=Again(fates=fates, policy=self._policy, wait=wait),
            examples_limit=config.errors.examples_limit,
            outage=config.errors.outage,
            redaction=redaction_of(pipeline, config),
        )
        self._letters: LetterBox | None = None
        if place is not None:
            self._letters = letter_box(
                place, fates=fates, files=files, journal=journal, teller=teller, config=config
            )
        #: errors.decisions=always: each micro-batch leaves an entry before its sink is called.
        self._always = config.errors.always_decisions
        self._ways = Ways(
            pipeline=pipeline,
            journal=journal,
            one_pass=OnePass.of(pipeline, self._policy),
            always_decides=self._always,
            # A record that a task died of is likely to fail again.
            careful=CAREFUL_BATCHES if self._dead_before() else 0,
        )
        #: The last Spark micro-batch whose sink has returned.
        self.last_batch = NO_BATCH
        #: The journal's number when no task had held rows to run.
        self._idle_at = -1

    @property
    def _ledger(self) -> Ledger:
        return self._journal.ledger

    def process(self, source: DataFrame, batch: int) -> None:
        """Run a Spark micro-batch, in one pass or with care: what comes of it is the same.

        A replay of a batch that was decided about before obeys: what was skipped is skipped and
        what was held is held, unevaluated; the rest passed then and goes to the sink again.
        """
        self._journal.check_owned()
        self.finish_open_chunk()
        number = self._ledger.batch_number(batch)
        if self._ways.takes_care(batch) or not self._wrote_in_one_pass(source, number):
            self._with_care(source, batch)
        self.last_batch = max(batch, self.last_batch)

    def _wrote_in_one_pass(self, source: DataFrame, number: int) -> bool:
        with self._given_up_on_stop():
            return self._ways.wrote_in_one_pass(source, number, check=self._check)

    def _with_care(self, source: DataFrame, batch: int) -> None:
        before = self._ledger.asides_of_batch(batch)
        replayed = self._ways.is_decided(batch)
        with self._given_up_on_stop():
            evaluated = evaluate(
                source,
                self._pipeline,
                blocked=() if before else self._ledger.blocked(),
                marks=self._shelf.marks(before),
                policy=self._policy,
            )
            evaluated = blaming_shared(evaluated)
        self._check()
        decision = self._decided(evaluated, self._dead_before())
        evaluated = with_cured(evaluated, decision.cured)
        self._check()
        if self._always and replayed:
            must_obey(evaluated, decision)
        clean = evaluated.clean and not evaluated.retries
        if not clean or (self._always and not replayed):
            order = before[0].entry if before else self._journal.next_number
            self._commit(evaluated, decision, batch=batch, order=order)
        self._write(evaluated, decision, self._ledger.batch_number(batch))
        evaluated.release()
        self._ways.done_with_care(clean=clean)

    def give_up(self) -> None:
        """End an evaluation that is at work: nothing is decided yet, and attempts may wait long."""
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    @contextmanager
    def _given_up_on_stop(self) -> Iterator[None]:
        self._spark.sparkContext.addJobTag(self._tag)
        try:
            yield
        finally:
            self._spark.sparkContext.removeJobTag(self._tag)

    def drain(self) -> bool:
        """Run the next chunk of held records of a task that runs; False where there is none."""
        if self.finish_open_chunk():
            return True
        # Asked many times a second: with nothing new in the journal the answer is the same.
        if self._idle_at == self._ledger.number:
            return False
        task = self._ledger.drainable()
        if task is None:
            self._idle_at = self._ledger.number
            return False
        self._journal.check_owned()
        chunk = self._shelf.next_chunk(self._ledger, task.state.id.key, limit=self._chunk_records)
        self._run_chunk(replace(chunk, after=self.last_batch))
        return True

    def finish_open_chunk(self) -> bool:
        """Write the chunk whose sink did not return, under its number; False: there is none."""
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
        marks = self._shelf.marks(self._ledger.open_asides)
        with self._given_up_on_stop():
            evaluated = evaluate(rows, self._pipeline, marks=marks, policy=self._policy)
            evaluated = blaming_shared(evaluated)
        self._check()
        decision = self._decided(evaluated, _blamed(self._ledger.task(chunk.task)))
        evaluated = with_cured(evaluated, decision.cured)
        self._check()
        if self._always and replayed:
            must_obey(evaluated, decision)
        for cut in decision.cuts.values():
            chunk = self._shelf.cut_chunk(self._ledger, chunk, cut)
        if self._ledger.open_chunk is None or evaluated.failed or evaluated.retries:
            self._commit(evaluated, decision, chunk=chunk)
        if chunk.taken:
            self._write(evaluated, decision, self._ledger.chunk_number(chunk.after))
        evaluated.release()
        self._drained(chunk)

    def _drained(self, chunk: Chunk) -> None:
        at = self._clock()
        left = self._ledger.task(chunk.task).held - chunk.taken
        told = self._teller.event(RecordsHeld(task=chunk.task, held=left), at)
        epoch = self._teller.run.epoch
        self._journal.append(Entry(kind=Kind.DRAINED, at=at, epoch=epoch, events=(told,)))

    def _decided(self, evaluated: Evaluated, blamed: Sequence[Coordinates]) -> Decision:
        if not evaluated.failed:
            return Decision()
        decision = self._judge.decide(evaluated.frame, blamed)
        if decision.fatal is not None:
            raise RecordFatal(decision.fatal, decision.outage)
        return decision

    def _dead_before(self) -> list[Coordinates]:
        """Return the records that tasks died of: in a micro-batch they may fail again."""
        return [
            where
            for task in self._ledger.tasks.values()
            if not task.blocked
            for where in _blamed(task)
        ]

    def _commit(
        self,
        evaluated: Evaluated,
        decision: Decision,
        *,
        batch: int | None = None,
        order: int | None = None,
        chunk: Chunk | None = None,
    ) -> None:
        """Put aside what does not go to the sink, and make the decision one durable entry."""
        at = self._clock()
        aside, held = self._put_aside(evaluated, decision, order=order)
        self._bounds.check(self._ledger, aside, held)
        letters, lettered = self._dead_letters(evaluated, decision, at)
        told = self._teller.decided(decision, at, lambda key: self._ledger.task(key).blame)
        told += [self._teller.event(each, at) for each in lettered]
        told += [
            self._teller.event(each, at)
            for each in helpful_retries(evaluated, cut_of(decision.cuts))
        ]
        for each in held:
            count = self._ledger.task(each.task).held + each.count
            told.append(self._teller.event(RecordsHeld(task=each.task, held=count), at))
        self._journal.append(
            Entry(
                kind=Kind.BATCH if chunk is None else Kind.DRAIN,
                at=at,
                epoch=self._teller.run.epoch,
                events=tuple(told),
                batch=batch,
                order=order,
                aside=aside,
                held=tuple(held),
                chunk=chunk,
                dead_letters=letters,
            )
        )
        if letters is not None and self._letters is not None:
            self._letters.deliver(letters)

    def _put_aside(
        self, evaluated: Evaluated, decision: Decision, *, order: int | None
    ) -> tuple[str | None, list[Held]]:
        """Write what does not go to the sink; `order` is None for a chunk."""
        cut = cut_of(decision.cuts)
        if evaluated.clean:
            return None, []
        if order is not None and (decision.cuts or evaluated.held):
            return self._shelf.put(evaluated.frame, cut, order=order)
        number = self._journal.next_number if order is None else order
        return self._shelf.put_skipped(evaluated.frame, cut, order=number), []

    def _dead_letters(
        self, evaluated: Evaluated, decision: Decision, at: datetime
    ) -> tuple[DeadLetters | None, list[RecordsDeadLettered]]:
        skipped_any = len(decision.examples) + len(decision.rest)
        if self._letters is None or not skipped_any:
            return None, []
        skipped = (F.col(FATE) >= SOURCE) & (F.col(ORDINAL) == 0)
        frame = evaluated.frame.where(skipped & ~must_hold(cut_of(decision.cuts)))
        said = Said(name=self.letters_name(), at=at)
        return self._letters.put(frame, decision.examples, said)

    def letters_name(self) -> str:
        """Return the name of the next entry's folder of dead letters: nobody else has it."""
        ledger = self._ledger
        return f"{ledger.checkpoint}-{self._journal.next_number:020d}-{self._teller.run.epoch}"

    def _write(self, evaluated: Evaluated, decision: Decision, number: int) -> None:
        held = must_hold(cut_of(decision.cuts)) if decision.cuts else None
        passed = evaluated.passed(self._pipeline, held)
        try:
            self._pipeline.sink(passed, number)
        except BaseException as exc:  # SystemExit would hang the query for ever
            raise SinkFailed(exc) from exc

    @property
    def shelf(self) -> Shelf:
        """Where held rows are."""
        return self._shelf

    @property
    def letters(self) -> LetterBox | None:
        """Where dead letters go; None when they are not enabled."""
        return self._letters


def _blamed(task: TaskLedger) -> list[Coordinates]:
    """Return where the record is that the task was held or died at, if it can be told from others.

    Many records may have no position.
    """
    if task.blame is None or task.blame.position is None:
        return []
    return [(task.state.id.key, task.blame.position)]
