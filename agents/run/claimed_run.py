"""A run that owns its checkpoint: its journal, its events and its end."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from uuid import UUID

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.configured_destination import destination_of
from arrester.agents.dead_letters.destinations import Destination
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.decisions.policies import redaction_of
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.journal.entries import Entry
from arrester.agents.journal.exclusive_create import check_exclusive_create
from arrester.agents.journal.fencing import check_journal, claim
from arrester.agents.journal.journal import Journal, Superseded
from arrester.agents.journal.storage import Storage, checkpoint_id, last_committed, last_planned
from arrester.agents.lineage.run_lineage import RunLineage, begin_lineage
from arrester.agents.run.folder_checks import check_folders
from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.run.policy_snapshot import describe_pipeline
from arrester.agents.run.publisher import Publisher
from arrester.agents.run.query import check_source, progress_of
from arrester.agents.run.termination import end_of, ending_entry, superseded
from arrester.agents.runtime.end.script_end import mark_reported
from arrester.agents.runtime.thread_protocol import Outbox, ThreadEnd
from arrester.agents.spark.job_attempts import JobTag
from arrester.agents.spark.job_description import JobDescription
from arrester.agents.spark.jvm.stores.hadoop_storage import storage
from arrester.agents.spark.ship_worker_code import ship
from arrester.agents.spark.sources.kafka_checks import check_sources
from arrester.domain.events import Run
from arrester.domain.identity.uuids import uuid7
from arrester.domain.python_versions import UTC
from arrester.domain.state import drift
from arrester.domain.state.states import PipelinePause, TaskState
from arrester.domain.tracing.spans import decision_spans
from arrester.domain.tracing.tracer import tracer_of

_log = logging.getLogger("arrester.thread")


@dataclass(kw_only=True)
class ClaimedRun:
    """A run that has begun, and must be ended by `end`. Its status is readable without a lock."""

    pipeline: Pipeline
    config: AgentConfig
    files: Storage
    #: The progress of the query, in the checkpoint.
    progress: Storage
    #: The destination of dead letters; None if they are not enabled.
    destination: Destination | None
    #: Whether an earlier run has finished the pass over a static source.
    was_finished: bool
    journal: Journal
    run: Run
    event_factory: EventFactory
    outbox: Outbox
    publisher: Publisher
    meter: FlowMeter
    #: What it does now, also as a description of its Spark jobs.
    jobs: JobDescription
    #: The jobs that a stop request may cancel.
    stoppable: JobTag
    #: Its run events; None: OpenLineage is off.
    lineage: RunLineage | None
    #: The weight of the tasks, and the journal entry that it was computed at.
    _task_weight: tuple[int, int] | None = field(default=None, init=False)

    @property
    def pause(self) -> PipelinePause | None:
        """The pause of the pipeline: no micro-batch and no held record begins."""
        return self.journal.ledger.pause

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
            self.outbox.put(uuid7(at), [self.event_factory.event(part, at)])

    def cancel_evaluation(self) -> None:
        """Cancel a running evaluation, without the lock; nothing is decided yet."""
        try:
            self.stoppable.cancel()
        except Exception:
            _log.debug("the evaluation of %s ended while it was cancelled", self.pipeline.name)

    def end(self, exc: BaseException | None, *, stopped: str | None) -> ThreadEnd:
        """Commit the end of the run and publish it; the journal of a newer run is not touched.

        `stopped` is why it was stopped, None if it was not. The holder of the run lock calls it, or
        `PipelineThread.start` before there is one.
        """
        name = self.pipeline.name
        end = end_of(exc, stopped=stopped)
        try:
            if end.superseded:
                raise Superseded(end.reason)
            ledger = self.journal.ledger
            self.journal.check_owned()
            self.meter.end()
            entry = ending_entry(
                end, exc, event_factory=self.event_factory, ledger=ledger, at=datetime.now(UTC)
            )
            self.publisher.put_ending(self.journal.append(entry))
            self.observe(entry)
        except Superseded as newer:
            if exc is not None and not isinstance(exc, Superseded):
                _log.error("pipeline %r failed before it was superseded", name, exc_info=exc)
            end = superseded(newer)
            self._report_superseded(end)
        except Exception:
            _log.exception("pipeline %r: its end could not be recorded", name)
        else:
            mark_reported(exc)
            mark_reported(end.exception)
        self._end_lineage(end)
        return end

    def observe(self, entry: Entry) -> None:
        """Pass a durable decision to OpenTelemetry and OpenLineage, if they are on."""
        application, now = self.config.application, datetime.now(UTC)
        if self.lineage is not None:
            self.lineage.decided(entry.events, now)
        tracer = tracer_of(application)
        if tracer is not None:
            input = self.jobs.in_progress
            tracer.record(
                decision_spans(
                    application,
                    entry.events,
                    input="end of the run" if input is None else input.input,
                    began=entry.at if input is None else input.since,
                    ended=now,
                )
            )

    def _end_lineage(self, end: ThreadEnd) -> None:
        if self.lineage is not None:
            self.lineage.end(end, at=datetime.now(UTC))

    def _report_superseded(self, end: ThreadEnd) -> None:
        """Report the end without the journal, which belongs to the newer run."""
        _log.warning("%s: %s", self.pipeline.name, end.reason)
        at = datetime.now(UTC)
        self.outbox.put(uuid7(at), [self.event_factory.event(end.event, at)])


def claim_run(
    pipeline: Pipeline,
    checkpoint: str,
    *,
    application: str,
    instance: UUID,
    outbox: Outbox,
    config: AgentConfig,
    uncaught: str,
    adopt: bool = False,
) -> ClaimedRun:
    """Check everything that a run needs, then claim its checkpoint.

    Raises CheckpointUnusable, InvalidValue, DestinationUnusable and others before the run begins.
    """
    spark = pipeline.source.sparkSession
    ship(spark.sparkContext)
    pipeline.sink.store.check(spark)
    policy = describe_pipeline(pipeline, config, uncaught=uncaught)
    destination = _prepared_destination(pipeline, config, checkpoint)
    files, progress = _open_checkpoint(pipeline, checkpoint, adopt=adopt)
    was_finished = check_source(pipeline, files.root, progress, adopt=adopt)
    now = datetime.now(UTC)
    journal, run = claim(
        files,
        application=application,
        pipeline=pipeline.name,
        checkpoint=checkpoint_id(files),
        instance=instance,
        policy=policy,
        now=now,
        committed=last_committed(progress),
        adopt=adopt,
    )
    pipeline = pipeline.at(journal.ledger.checkpoint)
    alone = config.redis_url is None
    return ClaimedRun(
        pipeline=pipeline,
        config=config,
        files=files,
        progress=progress,
        destination=destination,
        was_finished=was_finished,
        journal=journal,
        run=run,
        event_factory=_event_factory(pipeline, config, instance, run),
        outbox=outbox,
        publisher=Publisher(journal, outbox, progress=progress, alone=alone),
        meter=_flow_meter(run, instance, journal, progress, None if alone else outbox),
        jobs=JobDescription(spark, pipeline.name),
        stoppable=JobTag(spark),
        lineage=begin_lineage(pipeline, run, application=application, at=now),
    )


def _prepared_destination(
    pipeline: Pipeline, config: AgentConfig, checkpoint: str
) -> Destination | None:
    """Return the destination of dead letters, which can be written; None if there is none."""
    destination = destination_of(pipeline, config)
    if destination is not None:
        destination.prepare()
    check_folders(pipeline, checkpoint, destination)
    return destination


def _open_checkpoint(
    pipeline: Pipeline, checkpoint: str, *, adopt: bool
) -> tuple[Storage, Storage]:
    """Return the storage of a checkpoint, and of the progress in it; raises CheckpointUnusable.

    Servers of the source are checked before a first run: later they have worked, and their failures
    are retried.
    """
    spark = pipeline.source.sparkSession
    files = storage(spark, checkpoint)
    progress = progress_of(pipeline, files)
    check_exclusive_create(files)
    if not adopt:
        check_journal(files, progress)
    is_first = last_planned(progress) < 0
    if is_first:
        check_sources(pipeline.source)
    pipeline.sink.store.check_start(spark, first=is_first)
    return files, progress


def _flow_meter(
    run: Run, instance: UUID, journal: Journal, progress: Storage, outbox: Outbox | None
) -> FlowMeter:
    """Return the meter of a run; it measures nothing without an outbox."""
    flow = None if outbox is None else outbox.flow
    if flow is not None:
        flow.guarded.add(run.checkpoint)
    return FlowMeter(
        store=flow,
        run=run,
        instance=instance,
        journal=journal,
        progress=progress,
        clock=partial(datetime.now, UTC),
    )


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
        source=config.errors.source,
    )
