"""A run that is ready for micro-batches, held records and commands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pyspark.sql import DataFrame

from arrester.agents.held.schema import HeldRowsMismatch
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.journal.scratch import Scratch
from arrester.agents.journal.storage import delete_drafts, last_committed, last_planned
from arrester.agents.run.claimed_run import ClaimedRun
from arrester.agents.run.commands.dead_letters_of_skips import SkipDeadLetters
from arrester.agents.run.commands.handler import CommandHandler
from arrester.agents.run.commands.record_mender import RecordMender
from arrester.agents.run.commands.record_tester import RecordTester
from arrester.agents.run.commands.redrive import DeadLetterRedriver
from arrester.agents.run.micro_batch.processor import Processor
from arrester.agents.run.micro_batch.processor_factory import ProcessorFactory
from arrester.agents.run.run_lock import HeldLock
from arrester.agents.runtime.thread_protocol import (
    PipelineCommand,
    PolicyCommand,
    TaskCommand,
)
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC

_log = logging.getLogger("arrester.thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A claimed run with what processes its micro-batches, held records and commands.

    Methods with a HeldLock change it: its own, and `save` of its redriver. All else is read without
    the lock.
    """

    claimed: ClaimedRun
    processor: Processor
    skip_dead_letters: SkipDeadLetters
    redriver: DeadLetterRedriver
    commands: CommandHandler

    @property
    def holds_rows(self) -> bool:
        """Whether some task holds rows, or skipped ones are not stored as dead letters yet."""
        held = any(each.held for each in list(self.claimed.journal.ledger.tasks.values()))
        return held or self.skip_dead_letters.waits

    @property
    def has_work(self) -> bool:
        """Whether held or skipped rows are processed, or are about to be."""
        ledger = self.claimed.journal.ledger
        is_draining = bool(ledger.open_chunks or ledger.drainable())
        return is_draining or self.skip_dead_letters.waits

    def read_progress(self, _: HeldLock) -> None:
        """Read the progress of the query that is about to start."""
        progress, processor = self.claimed.progress, self.processor
        processor.last_batch = last_committed(progress)
        self.claimed.meter.judge(processor.last_batch)
        planned = last_planned(progress)
        processor.awaited_batch = planned if planned > processor.last_batch else None

    def process(self, _: HeldLock, frame: DataFrame, batch: int) -> None:
        """Run a Spark micro-batch."""
        self.processor.process(frame, batch)

    def drain(self, _: HeldLock) -> bool:
        """Store dead letters of skipped records, or run some held records.

        Return whether there may be more of either.
        """
        if self.skip_dead_letters.store():
            return True
        if self.claimed.pause is not None:
            return False
        try:
            return self.processor.drain()
        except HeldRowsMismatch as exc:
            if not self.commands.pause_mismatch(exc, datetime.now(UTC)):
                raise
            return True

    def apply(
        self, _: HeldLock, command: TaskCommand | PolicyCommand | PipelineCommand
    ) -> CommandAnswer:
        """Apply or refuse a command; a repeated command gets the first answer."""
        return self.commands.apply(command)

    def refuse(self, _: HeldLock, command: UUID, reason: str) -> CommandAnswer:
        """Refuse a command."""
        self.claimed.journal.check_owned()
        return self.commands.refuse(command, reason)

    def end_pause(self, _: HeldLock) -> None:
        """Resume the pipeline if the time of its pause is over."""
        self.commands.end_pause(datetime.now(UTC))

    def publish(self, _: HeldLock) -> bool:
        """Put the events of committed entries into the outbox; return whether none is left."""
        return self.claimed.publisher.publish(now=datetime.now(UTC))


def open_run(
    claimed: ClaimedRun, *, check: Callable[[], None], wait: Callable[[int], None]
) -> OpenRun:
    """Complete the unfinished work of an earlier run, and prepare for micro-batches.

    `check` raises if the run should end; `wait` waits for some milliseconds and raises likewise.
    """
    _delete_leftovers(claimed)
    processor = ProcessorFactory(claimed=claimed, check=check, wait=wait).processor()
    opened = _with_commands(claimed, processor)
    _log_held(claimed)
    _log_pause(claimed)
    if processor.dead_letters is not None:
        processor.dead_letters.deliver()
    return opened


def _with_commands(claimed: ClaimedRun, processor: Processor) -> OpenRun:
    """Return the run with the parts that share the stores of a processor."""
    skip_dead_letters = SkipDeadLetters(
        pipeline=claimed.pipeline,
        journal=claimed.journal,
        held_store=processor.held_store,
        queue=processor.dead_letters,
        event_factory=claimed.event_factory,
        jobs=claimed.jobs,
    )
    mender = _mender(claimed, processor)
    return OpenRun(
        claimed=claimed,
        processor=processor,
        skip_dead_letters=skip_dead_letters,
        redriver=DeadLetterRedriver(
            pipeline=claimed.pipeline,
            journal=claimed.journal,
            held_store=processor.held_store,
            limits=processor.committer.limits,
            event_factory=claimed.event_factory,
            files=claimed.files,
            jobs=claimed.jobs,
        ),
        commands=CommandHandler(
            processor=processor,
            pipeline=claimed.pipeline,
            journal=claimed.journal,
            held_store=processor.held_store,
            skip_dead_letters=skip_dead_letters,
            mender=mender,
            tester=RecordTester(
                processor=processor,
                mender=mender,
                redaction=claimed.event_factory.redaction,
            ),
            event_factory=claimed.event_factory,
            retries=claimed.config.errors.retry.limit,
        ),
    )


def _mender(claimed: ClaimedRun, processor: Processor) -> RecordMender:
    return RecordMender(
        pipeline=claimed.pipeline,
        journal=claimed.journal,
        held_store=processor.held_store,
        jobs=claimed.jobs,
    )


def _delete_leftovers(claimed: ClaimedRun) -> None:
    """Delete what a killed run has left, unless the store of the sink has a later number."""
    spark, store = claimed.pipeline.source.sparkSession, claimed.pipeline.sink.store
    # A micro-batch is planned before its number is used.
    latest = last_planned(claimed.progress) + claimed.journal.ledger.chunks
    store.check_last_number(spark, latest)
    _delete_orphans(claimed)
    Scratch(files=claimed.files, epoch=claimed.run.epoch).delete_earlier()
    store.delete_staged(spark)
    delete_drafts(claimed.progress)


def _delete_orphans(claimed: ClaimedRun) -> None:
    root = claimed.files.root
    try:
        orphans = claimed.journal.delete_orphans()
    except Superseded:
        raise
    except Exception:  # they only take disk space
        _log.warning("%s: folders of a killed run could not be deleted", root, exc_info=True)
    else:
        if orphans:
            _log.info("%s: %s folders of a killed run were deleted", root, len(orphans))


def _log_held(claimed: ClaimedRun) -> None:
    """Log what happens to held records, whose pipeline may have changed."""
    held = [each.held for each in claimed.journal.ledger.tasks.values() if each.held]
    if held:
        _log.info(
            "pipeline %r: %s of %s held; when their task runs they pass the present steps, "
            "under the task that held them, with the source's present columns",
            *(claimed.pipeline.name, plural(sum(held), "record"), plural(len(held), "task")),
        )


def _log_pause(claimed: ClaimedRun) -> None:
    pause = claimed.pause
    if pause is not None:
        by, until = pause.actor or "its script", pause.until
        end = "it is resumed" if until is None else f"{until:%Y-%m-%d %H:%M:%S} UTC"
        _log.warning(
            "pipeline %r starts PAUSED by %s: no micro-batch begins until %s",
            *(claimed.pipeline.name, by, end),
        )
