"""Build the processor of a run from its pipeline, configuration and journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from pyspark.sql import SparkSession

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.decisions.handler_retries import HandlerRetries
from arrester.agents.decisions.judge import Judge
from arrester.agents.decisions.policies import StagePolicy, stage_policies, with_overrides
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.definition.sinks import Producer
from arrester.agents.definition.stages import stages_of
from arrester.agents.failures.payload import UnmatchedRules
from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.held.chunk_size import ChunkSize
from arrester.agents.held.limits import HeldLimits
from arrester.agents.held.replay_check import ReplayCheck
from arrester.agents.held.schema import RowSchemas
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.scratch import Scratch
from arrester.agents.run.claimed_run import ClaimedRun
from arrester.agents.run.micro_batch.commit import Committer
from arrester.agents.run.micro_batch.processor import SLOW_PATH_BATCHES, Processor
from arrester.agents.run.micro_batch.slow_path_writer import SlowPathWriter, stopping_records
from arrester.agents.run.micro_batch.staged_writer import StagedWriter
from arrester.agents.sink.batch_writer import BatchWriter
from arrester.agents.sink.record_sender import RecordSender
from arrester.agents.sink.stage import SinkStage
from arrester.agents.spark.sources.kafka_source import may_lose_records
from arrester.domain.error_policy.policy import Policy, StageKind
from arrester.domain.python_versions import UTC

_clock = partial(datetime.now, UTC)


@dataclass(kw_only=True)
class ProcessorFactory:
    """Build the processor of one run, and the parts that it shares with others."""

    claimed: ClaimedRun
    #: Raises if the run should end.
    check: Callable[[], None]
    #: Wait for this many milliseconds.
    wait: Callable[[int], None]

    def processor(self) -> Processor:
        """Return the processor."""
        errors, policy = self.claimed.config.errors, self._executor_policy
        committer, jobs = self._committer(), self.claimed.jobs
        slow_path = SlowPathWriter(
            pipeline=self.claimed.pipeline,
            journal=self.claimed.journal,
            held_store=self._held_store,
            judge=Judge(
                rules=self._rules,
                retries=HandlerRetries(rules=self._rules, policy=policy, wait=self.wait),
                examples_limit=errors.examples_limit,
                outage=errors.outage,
            ),
            committer=committer,
            sink_stage=self._sink_stage(),
            always_decides=errors.always_decisions,
            policy=policy,
            counts_records=self.claimed.meter.is_on,
            jobs=jobs,
            stoppable=self.claimed.stoppable,
            check=self.check,
        )
        return Processor(
            pipeline=self.claimed.pipeline,
            journal=self.claimed.journal,
            held_store=self._held_store,
            dead_letters=self._dead_letters,
            stages=self._stages,
            policy=policy,
            chunk_size=ChunkSize(records=errors.held_chunk_records),
            jobs=jobs,
            meter=self.claimed.meter,
            stoppable=self.claimed.stoppable,
            check=self.check,
            committer=committer,
            slow_path=slow_path,
            staged=StagedWriter.of(slow_path),
            fast_path=FastPath.of(self.claimed.pipeline, policy),
            # A record that killed a task is likely to fail again.
            slow_batches=SLOW_PATH_BATCHES if stopping_records(self.claimed.journal.ledger) else 0,
        )

    @property
    def _spark(self) -> SparkSession:
        return self.claimed.pipeline.source.sparkSession

    @cached_property
    def _stages(self) -> dict[int, StagePolicy]:
        return stage_policies(self.claimed.pipeline, self.claimed.config)

    @property
    def _executor_policy(self) -> Policy:
        return self.claimed.config.errors.policy(StageKind.PROCESS)

    @cached_property
    def _rules(self) -> FailureRules:
        pipeline, redaction = self.claimed.pipeline, self.claimed.event_factory.redaction
        return FailureRules(
            application=self.claimed.config.application,
            pipeline=pipeline,
            stages=with_overrides(pipeline, self._stages, self.claimed.journal.ledger.overrides),
            clock=_clock,
            scope=self.claimed.config.errors.scope,
            described=stages_of(pipeline),
            settings=self.claimed.config.shown,
            redaction=redaction,
            unmatched=UnmatchedRules(pipeline.name, redaction.drop, pipeline.source.schema),
        )

    @cached_property
    def _held_store(self) -> HeldStore:
        return HeldStore(
            spark=self._spark,
            root=self.claimed.files.root,
            schema=self.claimed.pipeline.source.schema,
            schemas=RowSchemas(self.claimed.files),
        )

    @cached_property
    def _dead_letters(self) -> DeadLetterQueue | None:
        if self.claimed.destination is None:
            return None
        return DeadLetterQueue(
            self.claimed.destination,
            rules=self._rules,
            files=self.claimed.files,
            journal=self.claimed.journal,
            event_factory=self.claimed.event_factory,
            config=self.claimed.config,
            check=self.check,
            wait=self.wait,
            cancelled_on_stop=self.claimed.stoppable.set,
        )

    def _sink_stage(self) -> SinkStage:
        errors = self.claimed.config.errors
        sink_stage = (
            RecordSender if isinstance(self.claimed.pipeline.sink, Producer) else BatchWriter
        )
        return sink_stage(
            rules=self._rules,
            examples_limit=errors.examples_limit,
            outage=errors.outage,
            check=self.check,
            wait=self.wait,
            scratch=Scratch(files=self.claimed.files, epoch=self.claimed.event_factory.run.epoch),
            cancelled_on_stop=self.claimed.stoppable.set,
        )

    def _committer(self) -> Committer:
        return Committer(
            journal=self.claimed.journal,
            event_factory=self.claimed.event_factory,
            rules=self._rules,
            held_store=self._held_store,
            dead_letters=self._dead_letters,
            limits=HeldLimits(self._spark, self.claimed.files.root, self.claimed.config.errors),
            replay_check=ReplayCheck(
                RecordHash(self.claimed.pipeline.source),
                may_lose_records=may_lose_records(self.claimed.pipeline.source),
            ),
            observe=self.claimed.observe,
            clock=_clock,
        )
