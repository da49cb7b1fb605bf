"""Dead letters of held records that a command skips.

The journal entry of the command names them; they are stored later, so that its answer does not wait
for Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.dead_letters.rows import DeadLetterContext
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failure_set import fits_driver
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import (
    Chunk,
    Entry,
    EntryKind,
    StoppingRecord,
    UnstoredDeadLetters,
)
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.worker.columns import ERROR, ERROR_TYPE, OUTCOME, POSITION, ROW, TASK
from arrester.controlplane.domain.python_versions import UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipDeadLetters:
    """The dead letters of one run's skips. The caller holds the run lock."""

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    #: None if dead letters are not enabled.
    queue: DeadLetterQueue | None
    event_factory: EventFactory
    jobs: JobDescription

    def of(
        self, task: TaskLedger, chunk: Chunk, requested: TaskCommand, at: datetime
    ) -> UnstoredDeadLetters | None:
        """Return what the entry of a command has about the records that it skips."""
        if self.queue is None:
            return None
        checkpoint, number = self.journal.ledger.checkpoint, self.journal.next_number
        return UnstoredDeadLetters(
            name=f"{checkpoint}-{number:020d}-{self.event_factory.run.epoch}",
            chunk=chunk,
            at=at,
            command=requested.command,
            reason=requested.reason,
            actor=requested.actor,
            stopped_by=task.stopped_by,
            only_failed=requested.target is None,
        )

    @property
    def waits(self) -> bool:
        """Whether skipped records wait until their dead letters are stored."""
        return self.queue is not None and bool(self.journal.ledger.unstored_dead_letters)

    def store(self) -> bool:
        """Store the dead letters of the first skipped records, and write them to the destination.

        Return False if there are none.
        """
        unstored = next(iter(self.journal.ledger.unstored_dead_letters.values()), None)
        if unstored is None or self.queue is None:
            return False
        self.journal.check_owned()
        failed = unstored.stopped_by
        context = DeadLetterContext(
            name=unstored.name,
            at=unstored.at,
            reason=unstored.reason,
            actor=unstored.actor,
            # The error condition belongs to the failed record, not to others skipped with it.
            condition=failed.failure.condition if failed and unstored.only_failed else None,
        )
        with self.jobs.of_held_records():
            rows = self.held_store.skipped_rows(self.journal.ledger, unstored.chunk)
            dead_letters, events = self.queue.store(
                self._with_error(rows, failed),
                (),
                context,
                few=fits_driver(unstored.chunk.taken),
                # A superseded run may still write to a folder of its own.
                folder=f"{unstored.name}.{self.event_factory.run.epoch}",
            )
        at = datetime.now(UTC)
        self.journal.append(
            Entry(
                kind=EntryKind.DEAD_LETTERS,
                at=at,
                epoch=self.event_factory.run.epoch,
                events=tuple(
                    self.event_factory.event(each, at, caused_by=unstored.command)
                    for each in events
                ),
                dead_letters=dead_letters,
            )
        )
        self.queue.deliver(dead_letters)
        return True

    def _with_error(self, rows: DataFrame, stopped_by: StoppingRecord | None) -> DataFrame:
        """Add the failure that paused the task to its record only."""
        if stopped_by is None:
            no_error = F.lit(None).cast(ERROR_TYPE).alias(ERROR)
            return rows.select(
                ROW, TASK, POSITION, F.lit(None).cast("int").alias(OUTCOME), no_error
            )
        failure = stopped_by.failure
        stages = self.pipeline.stages
        number = stages.index(failure.stage) if failure.stage in stages else None
        values = {
            "exception_class": failure.exception_class,
            "message": failure.message,
            "stack": None if stopped_by.body is None else stopped_by.body.stack,
            "frame": failure.frame,
            "names": None,
            "condition": failure.condition,
            "kind": None,
            "attempts": failure.attempts,
            "took_ms": None,
        }
        error = F.struct(*[F.lit(value).alias(name) for name, value in values.items()])
        failed = F.col(POSITION).eqNullSafe(F.lit(stopped_by.position))
        return rows.select(
            ROW,
            TASK,
            POSITION,
            F.when(failed, F.lit(number).cast("int")).alias(OUTCOME),
            F.when(failed, error.cast(ERROR_TYPE)).alias(ERROR),
        )
