"""Retry a failed source from the checkpoint, within budgets. No record is isolated."""

from __future__ import annotations

import random
from datetime import datetime

from arrester.agents.decisions.end_reasons import reason_of
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.failure_log import say
from arrester.agents.spark.query_errors import cause_of
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Policy, StageKind
from arrester.controlplane.domain.error_policy.respond import FailedAttempt, TaskRun, respond
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter
from arrester.controlplane.domain.errors import ArresterError
from arrester.controlplane.domain.state.uncaught_policy import ReplacementPolicy, backoff_ms


class SourceRetries:
    """The attempts at a run's source since a micro-batch, or held records, last succeeded.

    Failures that the platform repairs (a killed task, a fenced producer) restart the query too, as
    a thread is replaced: with its waits, and a limit per hour, regardless of successes in between
    (KIP-210).
    """

    def __init__(
        self,
        policy: Policy,
        pipeline: str,
        *,
        healing: ReplacementPolicy = ReplacementPolicy(),  # noqa: B008 (frozen)
    ) -> None:
        self._policy = policy
        self._pipeline = pipeline
        self._healing = healing
        #: The times of these restarts.
        self._healed_ms: list[int] = []
        self._made = 0
        self._started_ms = 0

    def went_well(self) -> None:
        """Reset the count: a micro-batch, or a chunk of held records, is done."""
        self._made = 0

    def wait_ms(self, exc: BaseException, *, at: datetime) -> int | None:
        """Return the wait before the query is started again; None if the run ends by `exc`."""
        now_ms = int(at.timestamp() * 1_000)
        if self._heals(exc):
            return self._healing_ms(exc, now_ms)
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return None
        if not self._made:
            self._started_ms = now_ms
        self._made += 1
        attempts = Attempts(made=self._made, started_ms=self._started_ms, now_ms=now_ms)
        failure = FailedAttempt(
            stage=StageKind.SOURCE, cause=cause_of(exc), attempts=attempts, position=None
        )
        fate = respond(failure, self._policy, TaskRun(), chance=random.randrange)
        if not isinstance(fate, RetryAfter):
            return None
        what = f"the source of {self._pipeline} failed (attempt {self._made}): {reason_of(exc)}"
        say(Saying.SOURCE_RETRYING, what)
        return fate.wait_ms

    def _heals(self, exc: BaseException) -> bool:
        if isinstance(exc, SelfHealing):
            return True
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return False
        return self._policy.table.classify(cause_of(exc)).kind is Kind.SELF_HEALING

    def _healing_ms(self, exc: BaseException, now_ms: int) -> int | None:
        window = self._healing.window_ms
        self._healed_ms = [each for each in self._healed_ms if now_ms - each < window]
        if len(self._healed_ms) >= self._healing.limit:
            return None
        self._healed_ms.append(now_ms)
        what = f"{self._pipeline} was ended by what heals itself: {reason_of(exc)}"
        say(Saying.SOURCE_RETRYING, what)
        return backoff_ms(len(self._healed_ms), self._healing)
