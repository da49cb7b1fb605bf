"""`.produce` on the driver: rounds of sends until every record is sent or decided (KIP-210).

In each round the executors send the due records, each task strictly in order. A task stops at a
record for which a handler must be called or a retry must wait. The decisions of a round are durable
before the next one.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import Evaluated
from arrester.agents.decisions.outage import ClassAndFrame, SinkProgress
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.sinks import Producer
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import Coordinates
from arrester.agents.failures.pause_offsets import (
    cursor_after,
    cursor_column,
    cursor_of_task,
    place,
)
from arrester.agents.journal.entries import Cursor
from arrester.agents.sink.crash_isolation import CrashIsolation, in_task_order, is_crash, send
from arrester.agents.sink.stage import SinkStage, UndeliveredRows, with_failures
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.frames.column_names import quoted
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.agents.spark.ship_worker_code import shipped, shipped_rules
from arrester.agents.worker.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    ORDINAL,
    OUTCOME,
    POSITION,
    STOPPED,
    TASK,
)
from arrester.domain.error_policy.classify import Kind
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Response
from arrester.domain.error_policy.retry import Attempts, next_attempt
from arrester.domain.error_policy.tolerance import Tally, count

_log = logging.getLogger("arrester.thread")
#: More records than any micro-batch has.
_UNBOUNDED = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retry:
    """A record to be sent again, with all later records of its task."""

    at: Cursor
    attempts: Attempts
    due_ms: int


@dataclass(slots=True, kw_only=True)
class _Unsent:
    """The records that are still to be sent."""

    #: By task, the place of the first record to send; None: all records.
    starts: dict[str | None, Cursor] | None = None
    retries: dict[str | None, _Retry] = field(default_factory=dict)
    #: By task, the record at which it stopped: later records were not sent.
    stops: dict[str | None, Cursor] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether no record is left to send."""
        return self.starts == {} and not self.retries

    def is_retried(self) -> Column:
        """Return whether a record will be sent again."""
        retried = {task: retry.at for task, retry in self.retries.items()}
        return _compare_with_cursors(retried, lambda at: place() == at)

    def progress(self, decided: Mapping[ClassAndFrame, int]) -> SinkProgress:
        """Return how much of the micro-batch was sent so far."""
        return SinkProgress(
            stopped=_compare_with_cursors(self.stops, lambda stop: place() >= stop),
            not_sent=_compare_with_cursors(self.stops, lambda stop: place() > stop),
            decided=decided,
        )

    def remove(self, tasks: Collection[str | None]) -> None:
        """Send no more records of these tasks."""
        self.starts = {task: at for task, at in (self.starts or {}).items() if task not in tasks}
        self.retries = {task: each for task, each in self.retries.items() if task not in tasks}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSender(SinkStage):
    """Sends the records of a micro-batch or a chunk of held records one by one."""

    def write(
        self,
        evaluated: Evaluated,
        held: Column | None,
        number: int,
        reported: Sequence[Coordinates],
    ) -> Iterator[UndeliveredRows]:
        """Send the records that passed and are not `held`; yield the decision of each round."""
        is_held = F.lit(False) if held is None else held
        passed = evaluated.frame.where(F.col(OUTCOME).isNull() & ~is_held)
        unsent, began_ms = _Unsent(), self.rules.now_ms()
        decided: Counter[ClassAndFrame] = Counter()
        outage_from = self._outage_from(passed)
        isolation = CrashIsolation(policy=self.policy.policy, check=self.check)
        while not unsent.is_done:
            due = self._due_retries(unsent)
            with releasing() as blocks:
                results = self._send_round(passed, unsent.starts, due, outage_from, isolation)
                blocks.append(results)
                stopped = results.where(F.col(STOPPED)).collect()
                unsent = self._unsent_after(unsent, stopped, due, began_ms)
                failed = results.where(~unsent.is_retried())
                pause_offsets: Mapping[str, Cursor] = {}
                if not failed.isEmpty():
                    batch = with_failures(evaluated, is_held, failed, self.number)
                    policy = self.policy.without_retries()
                    undelivered = self.decide(batch, policy, reported, unsent.progress(decided))
                    pause_offsets = undelivered.decision.pause_offsets
                    try:
                        yield undelivered
                    finally:
                        batch.release()
                    decided += self._by_class_and_frame(failed)
            unsent.remove(pause_offsets)
            self.check()

    def _due_retries(self, unsent: _Unsent) -> dict[str | None, _Retry]:
        """Return the retries that are due; wait for the first if no other record is left."""
        if unsent.retries and unsent.starts == {}:
            first_ms = min(retry.due_ms for retry in unsent.retries.values())
            self.wait(max(0, first_ms - self.rules.now_ms()))
        now_ms = self.rules.now_ms()
        return {task: retry for task, retry in unsent.retries.items() if retry.due_ms <= now_ms}

    def _send_round(
        self,
        passed: DataFrame,
        starts: Mapping[str | None, Cursor] | None,
        due: Mapping[str | None, _Retry],
        outage_from: int | None,
        isolation: CrashIsolation,
    ) -> DataFrame:
        """Send the records of a round on executors; return the results in a local checkpoint."""
        rows = passed
        if starts is not None:
            starts = {**starts, **{task: retry.at for task, retry in due.items()}}
            rows = rows.where(_compare_with_cursors(starts, lambda start: place() >= start))
        no_error = F.lit(None).cast(ERROR_TYPE).alias(ERROR)
        author_columns = [quoted(name) for name in self.pipeline.columns]
        rows = rows.select(TASK, ENTRY, POSITION, ORDINAL, no_error, *author_columns)
        sender = self._sender(due, outage_from)
        try:
            if not isolation.has_crashed:
                results = self._send_at_once(rows, sender)
                if results is not None:
                    return results
                isolation.has_crashed = True
            return isolation.send(rows, sender)
        except StepFailed:
            self.check()
            raise
        except BaseException as exc:
            # A job interrupted by a stop request is not a failure.
            self.check()
            raise self.end_of_run(exc) from exc

    def _send_at_once(self, rows: DataFrame, sender: Any) -> DataFrame | None:
        """Send in one job; None if a worker crashes."""
        try:
            return send(in_task_order(rows), sender)
        except Exception as exc:
            is_healing = isinstance(self.end_of_run(exc), SelfHealing)
            if is_healing or not is_crash(rows.sparkSession, exc):
                raise
        name = self.pipeline.name
        _log.info("pipeline %r: send crashed a Python worker; isolating the record", name)
        return None

    def _sender(self, due: Mapping[str | None, _Retry], outage_from: int | None) -> Any:
        """Return the worker's function that sends rows."""
        sink, policy, now_ms = self.pipeline.sink, self.policy.policy, self.rules.now_ms()
        assert isinstance(sink, Producer)

        def tolerated(tally: Tally) -> int:
            return count(policy.tolerance, tally, now_ms=now_ms, records=_UNBOUNDED).tolerated

        classifications = policy.table.classifications.items()
        return shipped("record_sender").SendRecords(
            send=sink.send,
            connect=sink.connect,
            rules=shipped_rules(policy),
            immediate_kinds={
                name: ruling.immediate.value
                for name, ruling in classifications
                if ruling.immediate is not None
            },
            tolerated_kinds=_tolerated_kinds(self.policy),
            tolerated=tolerated(Tally()),
            tolerated_by_task={task: tolerated(run.tally) for task, run in self.rules.runs.items()},
            attempts={task: retry.attempts.made for task, retry in due.items()},
            since_ms={task: now_ms - retry.attempts.started_ms for task, retry in due.items()},
            retries=policy.retry.limit != 0,
            outage_from=outage_from,
        )

    def _unsent_after(
        self,
        unsent: _Unsent,
        stopped: Sequence[Row],
        due: Mapping[str | None, _Retry],
        began_ms: int,
    ) -> _Unsent:
        """Return the unsent records after a round in which tasks `stopped`.

        Each sends its record again, or continues after it. Retries that were not due remain.
        """
        waiting = {task: retry for task, retry in unsent.retries.items() if task not in due}
        continued = {*(unsent.starts or ()), *due}
        stops = {task: at for task, at in unsent.stops.items() if task not in continued}
        starts: dict[str | None, Cursor] = {}
        unsent = _Unsent(starts=starts, retries=waiting, stops=stops)
        retry_policy, now_ms = self.policy.policy.retry, self.rules.now_ms()
        for row in stopped:
            task, error = row[TASK], row[ERROR]
            at = Cursor(entry=row[ENTRY], position=row[POSITION])
            earlier = due.get(task)
            is_retried = earlier is not None and earlier.at == at
            started_ms = earlier.attempts.started_ms if earlier and is_retried else began_ms
            attempts = Attempts(made=error["attempts"], started_ms=started_ms, now_ms=now_ms)
            outcome = next_attempt(retry_policy, attempts, chance=random.randrange)
            unsent.stops[task] = at
            if error["kind"] == Kind.RETRIABLE and outcome is not None:
                due_ms = now_ms + outcome.wait_ms
                unsent.retries[task] = _Retry(at=at, attempts=attempts, due_ms=due_ms)
                record = f"task {task!r}, position {at.position}"
                # The message may quote the record, which is not on the driver to redact it.
                kind = error["exception_class"]
                line = f"{self.pipeline.name}: produce failed at {record}: {kind}"
                log_failure(LogMessage.RETRYING, line)
            else:
                starts[task] = cursor_after(at.entry, at.position)
        return unsent

    def _outage_from(self, passed: DataFrame) -> int | None:
        """Return the number of failures from which on there may be an outage; None: no limit."""
        if self.outage.share is None:
            return None
        return self.outage.at_least(passed.where(F.col(ORDINAL) == 0).count())

    def _by_class_and_frame(self, results: DataFrame) -> Counter[ClassAndFrame]:
        """Return the numbers of failures by class and frame, if the outage guard is on."""
        if self.outage.share is None:
            return Counter()
        error = F.col(ERROR)
        failed = results.where(error.isNotNull())
        counts = failed.groupBy(error["exception_class"], error["frame"]).count().collect()
        return Counter({(name, frame): number for name, frame, number in counts})


def _compare_with_cursors(
    cursors: Mapping[str | None, Cursor], compare: Callable[[Column], Column]
) -> Column:
    """Return each record compared with the cursor of its task; False for tasks without one."""
    of_task = cursor_of_task({task: at for task, at in cursors.items() if task is not None})
    matches = F.coalesce(compare(of_task), F.lit(False))
    if None not in cursors:
        return matches
    return F.when(F.col(TASK).isNull(), compare(cursor_column(cursors[None]))).otherwise(matches)


def _tolerated_kinds(stage: StagePolicy) -> frozenset[str | None]:
    """Return the kinds of failures that executors may skip without the driver.

    If answers depend on the class, there are none: the task stops, and the driver decides.
    """
    if stage.policy.by_class:
        return frozenset()
    if stage.answer is Response.CONTINUE:
        return frozenset({None, Kind.RETRIABLE.value, Kind.OTHER.value})
    if stage.handler is None and stage.policy.tolerance.configured:
        return frozenset({Kind.RETRIABLE.value})
    return frozenset()
