"""One run on a claimed checkpoint: its parts, its held records and tasks, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.configured_destination import destination_of
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.policies import redaction_of
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.held.schema import HeldRowsMismatch
from arrester.agents.journal.exclusive_create import check_exclusive_create
from arrester.agents.journal.fencing import check_journal, claim
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.scratch import Scratch
from arrester.agents.journal.storage import (
    Storage,
    checkpoint_id,
    delete_drafts,
    last_committed,
    last_planned,
)
from arrester.agents.run.commands.dead_letters_of_skips import SkipDeadLetters
from arrester.agents.run.commands.handler import CommandHandler
from arrester.agents.run.commands.record_mender import RecordMender
from arrester.agents.run.commands.redrive import DeadLetterRedriver
from arrester.agents.run.flow_meter import FlowMeter
from arrester.agents.run.folder_checks import check_folders
from arrester.agents.run.policy_snapshot import describe_pipeline
from arrester.agents.run.processor_factory import ProcessorFactory
from arrester.agents.run.publisher import Publisher
from arrester.agents.run.query import check_source, progress_of
from arrester.agents.run.termination import death_of, ending_entry, superseded
from arrester.agents.runtime.script_end import mark_reported
from arrester.agents.runtime.thread_protocol import Outbox, ThreadDeath
from arrester.agents.spark.jvm.hadoop_storage import storage
from arrester.agents.spark.kafka_checks import check_sources
from arrester.agents.spark.ship_worker_code import ship
from arrester.domain.events import Run
from arrester.domain.identity.uuids import uuid7
from arrester.domain.plural import plural
from arrester.domain.python_versions import UTC
from arrester.domain.state import drift
from arrester.domain.state.states import PipelinePause, TaskState

_log = logging.getLogger("arrester.thread")


class Engine:
    """Journal, processor and publisher of one run. The caller holds the run lock."""

    def __init__(
        self,
        pipeline: Pipeline,
        checkpoint: str,
        *,
        application: str,
        instance: UUID,
        outbox: Outbox,
        config: AgentConfig,
        uncaught: str,
        adopt: bool = False,
    ) -> None:
        """Claim the checkpoint. After this the run has begun and must be ended by `end`."""
        spark = pipeline.source.sparkSession
        ship(spark.sparkContext)
        self.pipeline = pipeline
        pipeline.sink.store.check(spark)
        policy = describe_pipeline(pipeline, config, uncaught=uncaught)
        # An unusable dead letter destination is reported before the run begins.
        self.destination = destination_of(pipeline, config)
        if self.destination is not None:
            self.destination.prepare()
        check_folders(pipeline, checkpoint, self.destination)
        self.files, self.progress = _open_checkpoint(pipeline, checkpoint, adopt=adopt)
        is_first = last_planned(self.progress) < 0
        if is_first:
            # Later they have worked, and their failures are retried.
            check_sources(pipeline.source)
        pipeline.sink.store.check_start(spark, first=is_first)
        self._config = config
        self._outbox = outbox
        #: Whether an earlier run has finished the pass over a static source.
        self.was_finished = check_source(pipeline, self.files.root, self.progress, adopt=adopt)
        self.journal, self.run = claim(
            self.files,
            application=application,
            pipeline=pipeline.name,
            checkpoint=checkpoint_id(self.files),
            instance=instance,
            policy=policy,
            now=datetime.now(UTC),
            committed=last_committed(self.progress),
            adopt=adopt,
        )
        self.pipeline = pipeline = pipeline.at(self.journal.ledger.checkpoint)
        self.event_factory = _event_factory(pipeline, config, instance, self.run)
        alone = config.redis_url is None
        self.publisher = Publisher(self.journal, outbox, progress=self.progress, alone=alone)
        flow = None if alone else outbox.flow
        if flow is not None:
            flow.guarded.add(self.run.checkpoint)
        self.meter = FlowMeter(
            store=flow,
            run=self.run,
            instance=instance,
            journal=self.journal,
            progress=self.progress,
            clock=partial(datetime.now, UTC),
        )
        #: The weight of the tasks, and the journal entry that it was computed at.
        self._task_weight: tuple[int, int] | None = None

    def prepare(self, *, check: Callable[[], None], wait: Callable[[int], None]) -> None:
        """Complete the unfinished work of an earlier run and prepare for micro-batches."""
        self._check_last_number()
        self._delete_orphans()
        Scratch(files=self.files, epoch=self.run.epoch).delete_earlier()
        self.pipeline.sink.store.delete_staged(self.pipeline.source.sparkSession)
        delete_drafts(self.progress)
        self.processor = ProcessorFactory(
            pipeline=self.pipeline,
            config=self._config,
            files=self.files,
            journal=self.journal,
            event_factory=self.event_factory,
            destination=self.destination,
            meter=self.meter,
            check=check,
            wait=wait,
        ).processor()
        self.skip_dead_letters = SkipDeadLetters(
            pipeline=self.pipeline,
            journal=self.journal,
            held_store=self.processor.held_store,
            queue=self.processor.dead_letters,
            event_factory=self.event_factory,
            jobs=self.processor.jobs,
        )
        self.redriver = DeadLetterRedriver(
            pipeline=self.pipeline,
            journal=self.journal,
            held_store=self.processor.held_store,
            limits=self.processor.committer.limits,
            event_factory=self.event_factory,
            files=self.files,
            jobs=self.processor.jobs,
        )
        self.commands = CommandHandler(
            processor=self.processor,
            pipeline=self.pipeline,
            journal=self.journal,
            held_store=self.processor.held_store,
            skip_dead_letters=self.skip_dead_letters,
            mender=RecordMender(
                pipeline=self.pipeline,
                journal=self.journal,
                held_store=self.processor.held_store,
                jobs=self.processor.jobs,
            ),
            event_factory=self.event_factory,
            retries=self._config.errors.retry.limit,
        )
        self._log_held()
        self._log_pause()
        if self.processor.dead_letters is not None:
            self.processor.dead_letters.deliver()
        self.read_progress()

    def _check_last_number(self) -> None:
        """Raise if the store of the sink has a later number than this checkpoint has used."""
        # A micro-batch is planned before its number is used.
        latest = last_planned(self.progress) + self.journal.ledger.chunks
        self.pipeline.sink.store.check_last_number(self.pipeline.source.sparkSession, latest)

    def _log_held(self) -> None:
        """Log what happens to held records, whose pipeline may have changed."""
        held = [each.held for each in self.journal.ledger.tasks.values() if each.held]
        if held:
            _log.info(
                "pipeline %r: %s of %s held; when their task runs they pass the present steps, "
                "under the task that held them, with the source's present columns",
                *(self.pipeline.name, plural(sum(held), "record"), plural(len(held), "task")),
            )

    def _log_pause(self) -> None:
        if self.pause is not None:
            by, until = self.pause.actor or "its script", self.pause.until
            end = "it is resumed" if until is None else f"{until:%Y-%m-%d %H:%M:%S} UTC"
            _log.warning(
                "pipeline %r starts PAUSED by %s: no micro-batch begins until %s",
                *(self.pipeline.name, by, end),
            )

    def _delete_orphans(self) -> None:
        try:
            orphans = self.journal.delete_orphans()
        except Superseded:
            raise
        except Exception:  # they only take disk space
            _log.warning(
                "%s: folders of a killed run could not be deleted", self.files.root, exc_info=True
            )
        else:
            if orphans:
                _log.info(
                    "%s: %s folders of a killed run were deleted", self.files.root, len(orphans)
                )

    def read_progress(self) -> None:
        """Read the progress of the query that is about to start."""
        self.processor.last_batch = last_committed(self.progress)
        self.meter.judge(self.processor.last_batch)
        planned = last_planned(self.progress)
        self.processor.awaited_batch = planned if planned > self.processor.last_batch else None

    def cancel_evaluation(self) -> None:
        """Cancel a running evaluation, without the lock; nothing is decided yet."""
        try:
            self.processor.stoppable.cancel()
        except Exception:
            _log.debug("the evaluation of %s ended while it was cancelled", self.pipeline.name)

    def drain(self) -> bool:
        """Store dead letters of skipped records, or run some held records.

        Return whether there may be more of either.
        """
        if self.skip_dead_letters.store():
            return True
        if self.pause is not None:
            return False
        try:
            return self.processor.drain()
        except HeldRowsMismatch as exc:
            if not self.commands.pause_mismatch(exc, datetime.now(UTC)):
                raise
            return True

    @property
    def pause(self) -> PipelinePause | None:
        """The pause of the pipeline: no micro-batch and no held record begins."""
        return self.journal.ledger.pause

    @property
    def holds_rows(self) -> bool:
        """Whether some task holds rows, or skipped ones are not stored as dead letters yet."""
        held = any(each.held for each in list(self.journal.ledger.tasks.values()))
        return held or self.skip_dead_letters.waits

    @property
    def has_work(self) -> bool:
        """Whether held or skipped rows are processed, or are about to be."""
        ledger = self.journal.ledger
        is_draining = bool(ledger.open_chunks or ledger.drainable())
        return is_draining or self.skip_dead_letters.waits

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state."""
        return [each.state for each in list(self.journal.ledger.tasks.values())]

    def task_weight(self) -> int | None:
        """Return the weight of the tasks that are not RUNNING; None while events are
        unpublished."""
        number = self.journal.ledger.number
        if self.publisher.waits:
            return None
        if self._task_weight is None or self._task_weight[0] != number:
            self._task_weight = (number, drift.weight(self.tasks()))
        return self._task_weight[1]

    def report(self) -> None:
        """Report the state of all tasks, after all earlier events."""
        at = datetime.now(UTC)
        for part in drift.report(self.tasks()):
            self._outbox.put(uuid7(at), [self.event_factory.event(part, at)])

    def end(self, exc: BaseException | None, *, stopped: str | None) -> ThreadDeath:
        """Commit the end of the run and publish it; the journal of a newer run is not touched.

        `stopped` is why it was stopped, None if it was not.
        """
        name = self.pipeline.name
        death = death_of(exc, stopped=stopped)
        try:
            if death.superseded:
                raise Superseded(death.reason)
            ledger = self.journal.ledger
            self.journal.check_owned()
            self.meter.end()
            entry = ending_entry(
                death, exc, event_factory=self.event_factory, ledger=ledger, at=datetime.now(UTC)
            )
            self.publisher.put_ending(self.journal.append(entry))
        except Superseded as newer:
            if exc is not None and not isinstance(exc, Superseded):
                _log.error("pipeline %r failed before it was superseded", name, exc_info=exc)
            death = superseded(newer)
            self._report_superseded(death)
        except Exception:
            _log.exception("pipeline %r: its end could not be recorded", name)
        else:
            mark_reported(exc)
            mark_reported(death.exception)
        return death

    def _report_superseded(self, death: ThreadDeath) -> None:
        """Report the end without the journal, which belongs to the newer run."""
        _log.warning("%s: %s", self.pipeline.name, death.reason)
        at = datetime.now(UTC)
        self._outbox.put(uuid7(at), [self.event_factory.event(death.event, at)])


def _open_checkpoint(
    pipeline: Pipeline, checkpoint: str, *, adopt: bool
) -> tuple[Storage, Storage]:
    """Return the storage of a checkpoint, and of the progress in it; raises CheckpointUnusable."""
    files = storage(pipeline.source.sparkSession, checkpoint)
    progress = progress_of(pipeline, files)
    check_exclusive_create(files)
    if not adopt:
        check_journal(files, progress)
    return files, progress


def _event_factory(
    pipeline: Pipeline, config: AgentConfig, instance: UUID, run: Run
) -> EventFactory:
    log = config.errors.log
    return EventFactory(
        pipeline=pipeline,
        instance=instance,
        run=run,
        redaction=redaction_of(pipeline, config),
        log=log.enable,
        log_records=log.include_messages,
        log_configs=log.include_configs,
    )
