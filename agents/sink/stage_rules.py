"""The rules of stage produce: decide about records that fail at the sink (KIP-210).

A decision made after the sink's failure is added to the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.fatal import RecordFatal, SinkFailed
from arrester.agents.decisions.handler_retries import HandlerRetries
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.outage import SinkProgress
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import Responder, SelfHealing
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.aggregate_in_spark import Coordinates
from arrester.agents.failures.failed_record import produce_number
from arrester.agents.spark.errors import problem_of_job
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.outage import OutagePolicy
from arrester.controlplane.domain.error_policy.retry import RetryPolicy
from arrester.controlplane.domain.events import Response


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeliveredRows:
    """Records that the sink rejected, failed at stage produce, and the decision about them."""

    evaluated: Evaluated
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRules:
    """Decide about the records that fail at the sink of one pipeline, in one run."""

    responder: Responder
    examples_limit: int
    #: errors.outage.*
    outage: OutagePolicy
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Wait for this many milliseconds; raises if the run is to end.
    wait: Callable[[int], None]

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of this sink."""
        return self.responder.pipeline

    @property
    def number(self) -> int:
        """The step number of stage produce."""
        return produce_number(self.pipeline)

    @property
    def stage(self) -> StagePolicy:
        """The policy of this stage."""
        return self.responder.stages[self.number]

    def decided(
        self,
        left: Evaluated,
        stage: StagePolicy,
        blamed: Sequence[Coordinates],
        tried: SinkProgress,
        *,
        raised: BaseException | None = None,
    ) -> UndeliveredRows:
        """Decide about the records of `left` that failed at this stage."""
        if not left.failed and raised is not None:
            raise SinkFailed(raised) from raised
        responder = replace(self.responder, stages={**self.responder.stages, self.number: stage})
        again = HandlerRetries(responder=responder, policy=stage.policy, wait=self.wait)
        judge = Judge(
            responder=responder,
            again=again,
            examples_limit=self.examples_limit,
            outage=self.outage,
            tried=tried,
        )
        try:
            decision = judge.decide(left.failures, blamed) if left.failed else Decision()
            if decision.fatal is not None:
                redaction = self.responder.redaction
                raise RecordFatal(decision.fatal, decision.outage, redaction=redaction) from raised
        except BaseException:
            left.release()
            raise
        return UndeliveredRows(evaluated=left, decision=decision)

    def failed(self, raised: BaseException) -> SinkFailed | SelfHealing:
        """Return the exception that ends a run whose sends failed as a job: no record caused it."""
        problem = problem_of_job(self.pipeline.source.sparkSession, raised)
        ruling = self.stage.policy.table.classify(problem.cause)
        if ruling.kind is Kind.SELF_HEALING:
            return SelfHealing(problem, ruling.reason)
        return SinkFailed(raised)

    def spent(self) -> StagePolicy:
        """Return the policy for failures whose retry budget is used."""
        policy = msgspec.structs.replace(self.stage.policy, retry=RetryPolicy())
        return replace(self.stage, policy=policy)

    def ending(self) -> StageRules:
        """Return the stage with outages that end the run, regardless of the settings.

        Used for a sink that may have left something under the number at which it failed. Held
        records are written under other numbers; only a replay, under the same one, writes each
        record once.
        """
        outage = msgspec.structs.replace(self.outage, response=Response.FAIL)
        return replace(self, outage=outage)
