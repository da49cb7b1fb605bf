"""Dead letters of held records that a command skips.

The journal entry of the command names them; they are stored later, so that its answer does not wait
for Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.dead_letters.rows import SKIP, DeadLetterContext
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failure_set import fits_driver
from arrester.agents.held.chunk_bounds import CHUNK
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import (
    Chunk,
    Entry,
    EntryKind,
    UnstoredDeadLetters,
)
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.frames.local_frame import local_frame
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.worker.columns import ERROR, ERROR_TYPE, OUTCOME, POSITION, ROW, TASK
from arrester.domain.python_versions import UTC

_EPOCH = datetime.fromtimestamp(0, UTC)
_SKIPPED_CHUNK, _HAS_FAILED = "__arrester_skipped_chunk", "__arrester_has_failed"
_FAILED_POSITION = "__arrester_failed_position"
_SKIPS = T.StructType(
    [
        T.StructField(_SKIPPED_CHUNK, T.IntegerType()),
        T.StructField(_HAS_FAILED, T.BooleanType()),
        T.StructField(_FAILED_POSITION, T.LongType()),
        T.StructField(OUTCOME, T.IntegerType()),
        T.StructField(ERROR, ERROR_TYPE),
        T.StructField(
            SKIP,
            T.StructType(
                [
                    T.StructField("reason", T.StringType()),
                    T.StructField("actor", T.StringType()),
                    T.StructField("micros", T.LongType()),
                ]
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipDeadLetters:
    """The dead letters of one run's skips."""

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    #: The dead letters of the run; None if they are not enabled.
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
        )

    @property
    def waits(self) -> bool:
        """Whether skipped records wait until their dead letters are stored."""
        return self.queue is not None and bool(self.journal.ledger.unstored_dead_letters)

    def store(self) -> bool:
        """Store the dead letters of the skipped records that wait, and write them to the
        destination.

        Return False if there are none.
        """
        skips = self._next_skips()
        if not skips or self.queue is None:
            return False
        self.journal.check_owned()
        epoch, last = self.event_factory.run.epoch, skips[-1]
        chunks = [each.chunk for each in skips]
        with self.jobs.of_held_records():
            rows = self.held_store.skipped_rows(self.journal.ledger, chunks)
            dead_letters, events = self.queue.store(
                self._with_skips(rows, skips),
                (),
                DeadLetterContext(name=last.name, at=last.at),
                few=fits_driver(sum(chunk.taken for chunk in chunks)),
                # A superseded run may still write to a folder of its own.
                folder=f"{last.name}.{epoch}",
            )
        commands = {each.chunk.task: each.command for each in skips}
        at = datetime.now(UTC)
        self.journal.append(
            Entry(
                kind=EntryKind.DEAD_LETTERS,
                at=at,
                epoch=epoch,
                events=tuple(
                    self.event_factory.event(each, at, caused_by=commands[each.task])
                    for each in events
                ),
                dead_letters=dead_letters,
            )
        )
        self.queue.deliver(dead_letters)
        return True

    def _next_skips(self) -> list[UnstoredDeadLetters]:
        """Return the skips that wait, in order, up to the second one of a task."""
        skips: list[UnstoredDeadLetters] = []
        tasks: set[str | None] = set()
        for each in self.journal.ledger.unstored_dead_letters.values():
            if each.chunk.task in tasks:
                break
            tasks.add(each.chunk.task)
            skips.append(each)
        return skips

    def _with_skips(self, rows: DataFrame, skips: Sequence[UnstoredDeadLetters]) -> DataFrame:
        """Add to each row its skip, and to the record that had stopped its task the failure."""
        by_chunk = F.broadcast(
            local_frame(
                rows.sparkSession,
                [(index, *self._failure(each), _skip(each)) for index, each in enumerate(skips)],
                _SKIPS,
            )
        )
        is_failed = F.col(_HAS_FAILED) & F.col(POSITION).eqNullSafe(F.col(_FAILED_POSITION))
        return rows.join(by_chunk, F.col(CHUNK) == F.col(_SKIPPED_CHUNK)).select(
            ROW,
            TASK,
            POSITION,
            F.when(is_failed, F.col(OUTCOME)).alias(OUTCOME),
            F.when(is_failed, F.col(ERROR)).alias(ERROR),
            F.struct(
                F.col(SKIP)["reason"].alias("reason"),
                F.col(SKIP)["actor"].alias("actor"),
                F.timestamp_micros(F.col(SKIP)["micros"]).alias("at"),
            ).alias(SKIP),
        )

    def _failure(self, skip: UnstoredDeadLetters) -> tuple[object, ...]:
        """Return whether a record had stopped the task, its position, its step and its error."""
        stopped_by, stages = skip.stopped_by, self.pipeline.stages
        if stopped_by is None:
            return False, None, None, None
        failure = stopped_by.failure
        number = stages.index(failure.stage) if failure.stage in stages else None
        error = {
            "exception_class": failure.exception_class,
            "message": failure.message,
            "stack": None if stopped_by.body is None else stopped_by.body.stack,
            "frame": failure.frame,
            "condition": failure.condition,
            "attempts": failure.attempts,
        }
        return True, stopped_by.position, number, error


def _skip(skip: UnstoredDeadLetters) -> dict[str, object]:
    micros = (skip.at - _EPOCH) // timedelta(microseconds=1)
    return {"reason": skip.reason, "actor": skip.actor, "micros": micros}
