"""Write the dead letters of one entry to the destination, with retries of temporary failures."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.dead_letters.destinations import Destination, RejectedLetters, all_rejected
from arrester.agents.dead_letters.pending_files import PendingDeadLetters
from arrester.agents.dead_letters.schema import COLUMNS
from arrester.agents.failure_log import say
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.driver_errors import problem_of
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Policy
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter, next_attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterWriter:
    """Writes the pending dead letters of one run."""

    spark: SparkSession
    kept: PendingDeadLetters
    place: Destination
    now_ms: Callable[[], int]
    #: Raises if the run is to end.
    check: Callable[[], None]
    #: Waits this many milliseconds; raises if the run is to end.
    wait: Callable[[int], None]
    #: Wraps calls that a stop interrupts at once: a broker may take long to answer.
    given_up_on_stop: Callable[[], AbstractContextManager[None]]

    def written(self, letters: DeadLetters, policy: Policy) -> list[RejectedLetters]:
        """Return the rejected dead letters. Retries stay within the policy's limits.

        Attempts that executors repeated are returned too and raise nothing.
        """
        # An earlier run may have ended between the last write and the deletion of the folder.
        if not self.kept.is_waiting(letters):
            return []
        kept = self.kept.read(letters)
        frame = kept if self.place.raw else kept.select(*COLUMNS)
        started_ms, made = self.now_ms(), 0
        failed: list[RejectedLetters] = []
        while True:
            made += 1
            try:
                return [*failed, *self._attempt(frame, letters)]
            except Exception as exc:  # whatever a sink may raise
                # If the run is stopping, the interrupted job is no failure: the next run writes
                # them.
                self.check()
                problem = problem_of(self.spark, exc, attempts=made)
            attempts = Attempts(made=made, started_ms=started_ms, now_ms=self.now_ms())
            wait_ms = _wait_ms(problem, policy, attempts)
            refused = all_rejected(frame, problem)
            if wait_ms is None:
                return refused
            what = f"dead letters for {self.place.name(letters)}, attempt {made}"
            say(Saying.SINK_RETRYING, f"{what}: {problem.exception_class}")
            failed = [replace(each, waiting=0) for each in refused]
            self.wait(wait_ms)

    def _attempt(self, frame: DataFrame, letters: DeadLetters) -> list[RejectedLetters]:
        with self.given_up_on_stop():
            return self.place.write(frame, letters)


def _wait_ms(problem: Problem, policy: Policy, attempts: Attempts) -> int | None:
    """Return the wait before the next attempt in milliseconds, None if there is none."""
    if policy.table.classify(problem.cause).kind is not Kind.RETRIABLE:
        return None
    fate = next_attempt(policy.retry, attempts, chance=random.randrange)
    return fate.wait_ms if isinstance(fate, RetryAfter) else None
