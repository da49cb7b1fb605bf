"""The parts of one run on a claimed checkpoint, and the entry that ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from pyspark.sql import DataFrame

from arrester.agents.config import AgentConfig
from arrester.agents.dead_letters.kafka import destination_of
from arrester.agents.decisions.events import EventFactory
from arrester.agents.decisions.policies import redaction_of
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.held.schema import HeldRowsMisfit
from arrester.agents.journal.epoch_claim import claim
from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.outbox import Outbox
from arrester.agents.journal.scratch import Scratch
from arrester.agents.journal.storage import checkpoint_id, last_committed, last_planned
from arrester.agents.run.policy_command import PolicyCommand, PolicyOverrides
from arrester.agents.run.policy_snapshot import described
from arrester.agents.run.processor import Processor
from arrester.agents.run.publisher import Publisher
from arrester.agents.run.query import progress_of
from arrester.agents.run.resume_command import CommandOutcome, ResumeHandler, ResumeRequest
from arrester.agents.run.termination import ThreadDeath, death_of, ending_entry, superseded
from arrester.agents.spark.hadoop import storage
from arrester.agents.spark.ship_executor import ship
from arrester.controlplane.domain.events import ThreadDied
from arrester.controlplane.domain.identity.uuids import uuid7
from arrester.controlplane.domain.state import drift
from arrester.controlplane.domain.state.states import TaskState

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
    ) -> None:
        """Claim the checkpoint. After this the run has begun and must be ended by `end`."""
        spark = pipeline.source.sparkSession
        ship(spark.sparkContext)
        self.pipeline = pipeline
        pipeline.sink.check(spark)
        policy = described(pipeline, config, uncaught=uncaught)
        # An unusable dead letter destination is reported before the run begins.
        self._place = destination_of(pipeline, config)
        if self._place is not None:
            self._place.prepare()
        self.files = storage(spark, checkpoint)
        self.progress = progress_of(pipeline, self.files)
        self._config = config
        self._outbox = outbox
        self.journal, self.run = claim(
            self.files,
            application=application,
            pipeline=pipeline.name,
            checkpoint=checkpoint_id(self.files),
            instance=instance,
            policy=policy,
            now=now(),
        )
        self.event_factory = EventFactory(
            pipeline=pipeline,
            instance=instance,
            run=self.run,
            redaction=redaction_of(pipeline, config),
            log=config.errors.log.enable,
            log_records=config.errors.log.include_messages,
            log_configs=config.errors.log.include_configs,
        )
        alone = config.redis_url is None
        self.release = Publisher(self.journal, outbox, progress=self.progress, alone=alone)
        #: The weight of the tasks, and the journal entry that it was computed at.
        self._weighed: tuple[int, int] | None = None
        #: Planned by Spark but not committed; it runs before held records.
        self.awaited_batch: int | None = None

    def prepare(self, *, check: Callable[[], None], wait: Callable[[int], None]) -> None:
        """Complete the unfinished work of an earlier run and prepare for micro-batches."""
        self._tidy()
        Scratch(files=self.files, epoch=self.run.epoch).tidy()
        self.processor = Processor(
            self.pipeline,
            journal=self.journal,
            event_factory=self.event_factory,
            config=self._config,
            root=self.files.root,
            clock=now,
            check=check,
            wait=wait,
            place=self._place,
            files=self.files,
        )
        self.resumer = ResumeHandler(
            pipeline=self.pipeline,
            journal=self.journal,
            held_store=self.processor.held_store,
            letters=self.processor.letters,
            event_factory=self.event_factory,
        )
        self._policies = PolicyOverrides(
            pipeline=self.pipeline,
            journal=self.journal,
            event_factory=self.event_factory,
            retries=self._config.errors.retry.limit,
        )
        if self.processor.letters is not None:
            self.processor.letters.deliver()
        self.look_at_progress()

    def _tidy(self) -> None:
        try:
            orphans = self.journal.delete_orphans()
        except Superseded:
            raise
        except Exception:  # they only take room
            _log.warning(
                "%s: folders of a killed run could not be deleted", self.files.root, exc_info=True
            )
        else:
            if orphans:
                _log.info(
                    "%s: %s folders of a killed run were deleted", self.files.root, len(orphans)
                )

    def look_at_progress(self) -> None:
        """Read the progress of the query that is about to start."""
        self.processor.last_batch = last_committed(self.progress)
        planned = last_planned(self.progress)
        self.awaited_batch = planned if planned > self.processor.last_batch else None

    def process(self, frame: DataFrame, batch: int) -> None:
        """Run a micro-batch."""
        self.processor.process(frame, batch)
        self.awaited_batch = None

    def resume(self, requested: ResumeRequest) -> CommandOutcome:
        """Apply a command to a task. A micro-batch that may already be written is not changed."""
        # Rows of a chunk that may be written must not be skipped as well.
        self.processor.finish_open_chunk()
        begun, awaited = self.processor.begun_batch, self.awaited_batch
        after = begun if awaited is None else max(begun, awaited)
        return self.resumer.resume(requested, now(), after=after)

    def set_policy(self, requested: PolicyCommand) -> CommandOutcome:
        """Apply a policy override from the next micro-batch, or chunk of held records, on."""
        outcome = self._policies.set(requested, now())
        self.processor.take_policies()
        return outcome

    def give_up(self) -> None:
        """Cancel a running evaluation, without the lock; nothing is decided yet."""
        try:
            self.processor.give_up()
        except Exception:
            _log.debug("the evaluation of %s ended while it was given up", self.pipeline.name)

    def drain(self) -> bool:
        """Run some held records; return whether there may be more."""
        if self.awaited_batch is not None:
            return False
        try:
            return self.processor.drain()
        except HeldRowsMisfit as exc:
            if not self.resumer.hold(exc, now()):
                raise
            return True

    def put_ready(self) -> bool:
        """Publish the entries that may be published, and compact; return whether none is left."""
        waits = self.release.put_ready()
        self.release.compact(now=now())
        return not waits

    @property
    def holds_rows(self) -> bool:
        """Whether some task holds rows."""
        return any(each.held for each in list(self.journal.ledger.tasks.values()))

    @property
    def has_work(self) -> bool:
        """Whether held rows are running, or are about to run."""
        ledger = self.journal.ledger
        return ledger.open_chunk is not None or ledger.drainable() is not None

    def tasks(self) -> list[TaskState]:
        """Return the tasks that ever failed or changed state."""
        return [each.state for each in list(self.journal.ledger.tasks.values())]

    def standing(self) -> int | None:
        """Return the weight of the tasks that are not RUNNING; None while events are
        unpublished."""
        number = self.journal.ledger.number
        if self.release.waits:
            return None
        if self._weighed is None or self._weighed[0] != number:
            self._weighed = (number, drift.weight(self.tasks()))
        return self._weighed[1]

    def report(self) -> None:
        """Report the state of all tasks, after all earlier events."""
        at = now()
        for part in drift.report(self.tasks()):
            self._outbox.put(uuid7(at), [self.event_factory.event(part, at)])

    def end(self, exc: BaseException | None, *, stopped: bool) -> ThreadDeath:
        """Commit the end of the run and publish it; the journal of a newer run is not touched."""
        name = self.pipeline.name
        death = death_of(name, exc, stopped=stopped)
        try:
            if death.superseded:
                raise Superseded(death.reason)
            ledger = self.journal.ledger
            self.journal.check_owned()
            entry = ending_entry(
                death, exc, event_factory=self.event_factory, ledger=ledger, at=now()
            )
            self.release.put_ending(self.journal.append(entry))
        except Superseded as newer:
            if exc is not None and not isinstance(exc, Superseded):
                _log.error("pipeline %r failed before it was superseded", name, exc_info=exc)
            death = superseded(name, newer)
            self._tell_superseded(death)
        except Exception:
            _log.exception("pipeline %r: its end could not be recorded", name)
        return death

    def _tell_superseded(self, death: ThreadDeath) -> None:
        """Report the end without the journal, which belongs to the newer run."""
        _log.warning("%s: %s", self.pipeline.name, death.reason)
        at = now()
        data = ThreadDied(reason=death.reason, superseded=True)
        self._outbox.put(uuid7(at), [self.event_factory.event(data, at)])


def now() -> datetime:
    """Return the agent's clock."""
    return datetime.now(UTC)
