"""Run a record again after its handler answered RETRY, until it passes or is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.error_policy.respond import Decided
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.failed_record import FailedRecord, load
from arrester.agents.failures.failure_set import has_failed
from arrester.agents.failures.pause_offsets import is_record
from arrester.agents.worker.columns import ENTRY, ERROR, RETRIES, ROW, TASK
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Policy
from arrester.domain.error_policy.retry import Attempts
from arrester.domain.events import FinalResponse, RetriesCounted


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A failed record that passed when it was run again."""

    task: str | None
    entry: int
    position: int | None
    evaluated: Evaluated
    #: Failed attempts before it passed, in addition to those counted in its row.
    attempts: int

    @property
    def frame(self) -> DataFrame:
        """The rows that it became."""
        return self.evaluated.frame.withColumn(RETRIES, F.col(RETRIES) + F.lit(self.attempts))

    def is_at(self) -> Column:
        """Return whether a row belongs to this record."""
        return is_record(self.task, self.entry, self.position)


def with_recovered(evaluated: Evaluated, recovered: Sequence[Recovered]) -> Evaluated:
    """Return `evaluated` with the rows of recovered records in place of their failures."""
    frame = evaluated.frame
    for each in recovered:
        frame = frame.where(~each.is_at()).unionByName(each.frame)
    return replace(
        evaluated.with_frame(frame, failed=evaluated.failed - len(recovered)),
        retries=evaluated.retries + sum(r.evaluated.retries + r.attempts for r in recovered),
        blocks=(*evaluated.blocks, *(block for r in recovered for block in r.evaluated.blocks)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRetries:
    """Run failed records again while their handlers answer RETRY and the budget lasts."""

    rules: FailureRules
    policy: Policy
    #: Wait for this many milliseconds; raises if the run is to end, and then nothing is decided.
    wait: Callable[[int], None]

    def retry_until_decided(
        self, each: FailedRecord, failed: DataFrame, *, now_ms: int
    ) -> Recovered | tuple[FailedRecord, FinalResponse]:
        """Return the final result of the record; `failed` contains its row."""
        attempts = Attempts(made=each.problem.attempts, started_ms=now_ms, now_ms=now_ms)
        while True:
            outcome = self.rules.respond_to_record(each, now_ms=now_ms, attempts=attempts)
            if isinstance(outcome, Decided):
                return each, outcome.response
            log_failure(LogMessage.RETRYING, self.rules.log_line(each))
            self.wait(outcome.wait_ms)
            result = self._run(each, failed, attempts=attempts.made)
            if isinstance(result, Recovered):
                return result
            # One budget for the record, even if it now fails in a later step.
            attempt_count = attempts.made + result.problem.attempts
            each = replace(result, problem=replace(result.problem, attempts=attempt_count))
            attempts = Attempts(made=attempt_count, started_ms=now_ms, now_ms=self.rules.now_ms())

    def _run(
        self, each: FailedRecord, failed: DataFrame, *, attempts: int
    ) -> Recovered | FailedRecord:
        row = failed.where(is_record(each.task, each.entry, each.position))
        source = row.select(f"{ROW}.*", ENTRY)
        evaluated = evaluate(source, self.rules.pipeline, policy=self.policy)
        if not evaluated.failed:
            return Recovered(
                task=each.task,
                entry=each.entry,
                position=each.position,
                evaluated=evaluated,
                attempts=attempts,
            )
        try:
            return load(self.rules.pipeline, evaluated.frame.where(has_failed()))[0]
        finally:
            evaluated.release()


def retry_counts(evaluated: Evaluated, held: Column) -> list[RetriesCounted]:
    """Return the number of repeated attempts, without those of failed records."""
    if not evaluated.retries:
        return []
    # A failed record reports the attempts at the step in which it failed.
    reported = F.coalesce(F.col(ERROR)["attempts"] - 1, F.lit(0))
    retries = F.sum(F.col(RETRIES) - reported).alias("retries")
    tasks = evaluated.frame.where(~held).groupBy(TASK).agg(retries)
    rows = tasks.where("retries > 0").collect()
    return [RetriesCounted(task=row[TASK], retries=row["retries"]) for row in rows]
