"""Retry a failed source from the checkpoint, within budgets. No record is isolated."""

from __future__ import annotations

import random
from datetime import datetime

from arrester.agents.decisions.end_reasons import reason_of
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.error_policy.respond import FailedAttempt, TaskRun, respond
from arrester.agents.failure_log import log_failure
from arrester.agents.spark.jvm.exceptions.causes import cause_of
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Policy, StageKind
from arrester.domain.error_policy.retry import Attempts, RetryAfter
from arrester.domain.errors import ArresterError
from arrester.domain.state.uncaught_policy import ReplacementPolicy, backoff_ms


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
        restarts: ReplacementPolicy = ReplacementPolicy(),  # noqa: B008 (frozen)
    ) -> None:
        self._policy = policy
        self._pipeline = pipeline
        self._restarts = restarts
        #: The times of these restarts.
        self._restarted_ms: list[int] = []
        self._attempts = 0
        self._started_ms = 0
        #: A failure within a micro-batch, and the wait that was decided there.
        self._decided: tuple[BaseException, int | None] | None = None

    def reset(self) -> None:
        """Reset the count: a micro-batch, or a chunk of held records, is done."""
        self._attempts = 0

    def decide(self, exc: BaseException, *, at: datetime) -> int | None:
        """Return the wait for a failure within a micro-batch; `wait_ms` returns it once more."""
        wait_ms = self.wait_ms(exc, at=at)
        self._decided = exc, wait_ms
        return wait_ms

    def wait_ms(self, exc: BaseException, *, at: datetime) -> int | None:
        """Return the wait before the query is started again; None if the run ends by `exc`."""
        decided, self._decided = self._decided, None
        if decided is not None and decided[0] is exc:
            return decided[1]
        now_ms = int(at.timestamp() * 1_000)
        if self._is_self_healing(exc):
            return self._restart_ms(exc, now_ms)
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return None
        if not self._attempts:
            self._started_ms = now_ms
        self._attempts += 1
        attempts = Attempts(made=self._attempts, started_ms=self._started_ms, now_ms=now_ms)
        failure = FailedAttempt(
            stage=StageKind.SOURCE, cause=cause_of(exc), attempts=attempts, position=None
        )
        outcome = respond(failure, self._policy, TaskRun(), chance=random.randrange)
        if not isinstance(outcome, RetryAfter):
            return None
        message = (
            f"the source of {self._pipeline} failed (attempt {self._attempts}): {reason_of(exc)}"
        )
        log_failure(LogMessage.SOURCE_RETRYING, message)
        return outcome.wait_ms

    def _is_self_healing(self, exc: BaseException) -> bool:
        if isinstance(exc, SelfHealing):
            return True
        if isinstance(exc, ArresterError) or not isinstance(exc, Exception):
            return False
        return self._policy.table.classify(cause_of(exc)).kind is Kind.SELF_HEALING

    def _restart_ms(self, exc: BaseException, now_ms: int) -> int | None:
        window = self._restarts.window_ms
        self._restarted_ms = [at_ms for at_ms in self._restarted_ms if now_ms - at_ms < window]
        if len(self._restarted_ms) >= self._restarts.limit:
            return None
        self._restarted_ms.append(now_ms)
        message = f"{self._pipeline} was ended by a self-healing failure: {reason_of(exc)}"
        log_failure(LogMessage.SOURCE_RETRYING, message)
        return backoff_ms(len(self._restarted_ms), self._restarts)
