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
from arrester.agents.decisions.outage import Alike, SinkProgress
from arrester.agents.decisions.policies import StagePolicy
from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.definition.sinks import Producer
from arrester.agents.executor.columns import (
    ENTRY,
    ERROR,
    ERROR_TYPE,
    FATE,
    ORDINAL,
    POSITION,
    RETRIES,
    STOPPED,
    TASK,
)
from arrester.agents.failure_log import say
from arrester.agents.failures.aggregate_in_spark import Coordinates
from arrester.agents.failures.pause_offsets import pause_offset_of, place
from arrester.agents.held.store import after
from arrester.agents.journal.entries import Cursor
from arrester.agents.sink.crash_isolation import CrashIsolation, is_crash
from arrester.agents.sink.outcome import some_failed
from arrester.agents.sink.stage_rules import StageRules, UndeliveredRows
from arrester.agents.spark.errors import StepFailed
from arrester.agents.spark.local_checkpoint import checkpointed, releasing
from arrester.agents.spark.ship_executor import shipped, shipped_rules
from arrester.controlplane.domain.error_policy.classify import Kind
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.policy import Answer
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter, next_attempt
from arrester.controlplane.domain.error_policy.tolerance import Tally, count

_RESULT = (
    f"{TASK} string, {ENTRY} int, {POSITION} bigint, {ERROR} {ERROR_TYPE.simpleString()}, "
    f"{RETRIES} bigint, {STOPPED} boolean"
)
_log = logging.getLogger("arrester.thread")
#: More failures than any micro-batch has records.
_MANY = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """A record to be sent again, with all later records of its task."""

    at: Cursor
    attempts: Attempts
    due_ms: int


@dataclass(slots=True, kw_only=True)
class _Plan:
    """The places from which tasks are still to be sent; None: all records."""

    starts: dict[str | None, Cursor] | None = None
    again: dict[str | None, _Again] = field(default_factory=dict)
    #: The stops of tasks that were not sent completely; later records were not sent.
    stops: dict[str | None, Cursor] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.starts == {} and not self.again

    def stopped_but(self, due: Collection[str | None]) -> dict[str | None, Cursor]:
        """Return the stops of tasks that do not continue in the next round."""
        going = {*(self.starts or ()), *due}
        return {task: at for task, at in self.stops.items() if task not in going}

    def tried(self, before: Mapping[Alike, int]) -> SinkProgress:
        """Return how much of the micro-batch was tried so far."""
        return SinkProgress(
            stopped=_matches(self.stops, lambda stop: place() >= stop),
            untried=_matches(self.stops, lambda stop: place() > stop),
            before=before,
        )

    def leave_out(self, tasks: Collection[str | None]) -> None:
        """Stop sending records of stopped tasks."""
        self.starts = {task: at for task, at in (self.starts or {}).items() if task not in tasks}
        self.again = {task: each for task, each in self.again.items() if task not in tasks}


@dataclass(slots=True, kw_only=True)
class RecordSender:
    """Send one micro-batch or one chunk of held records."""

    rules: StageRules
    producer: Producer
    #: Set after a worker crashed: repeats the rounds in parts.
    _apart: CrashIsolation | None = None

    def run(
        self, evaluated: Evaluated, held: Column, blamed: Sequence[Coordinates]
    ) -> Iterator[UndeliveredRows]:
        """Send the records that passed and are not `held`; yield the decision of each round."""
        passed = evaluated.frame.where(F.col(FATE).isNull() & ~held)
        plan, began_ms = _Plan(), self.rules.responder.now_ms()
        decided: Counter[Alike] = Counter()
        outage_from = self._outage_from(passed)
        while not plan.over:
            due = self._due(plan)
            with releasing() as kept:
                told = self._round(passed, plan.starts, due, outage_from)
                kept.append(told)
                # A task whose retry is not due waits for another round.
                waiting = {task: again for task, again in plan.again.items() if task not in due}
                stopped = told.where(F.col(STOPPED)).collect()
                before = plan.stopped_but(due)
                plan = self._after(stopped, due, began_ms)
                plan.stops |= before
                found = told.where(~_is_at({task: each.at for task, each in plan.again.items()}))
                pause_offsets: Mapping[str, Cursor] = {}
                if not found.isEmpty():
                    left = some_failed(evaluated, held, found, self.rules.number)
                    tried = plan.tried(decided)
                    out = self.rules.decided(left, self.rules.spent(), blamed, tried)
                    pause_offsets = out.decision.pause_offsets
                    try:
                        yield out
                    finally:
                        left.release()
                    decided += self._alike(found)
                plan.again |= waiting
            plan.leave_out(pause_offsets)
            self.rules.check()

    def _due(self, plan: _Plan) -> dict[str | None, _Again]:
        """Return the records whose retry is due; wait for the first if nothing else is left."""
        if plan.again and plan.starts == {}:
            first = min(each.due_ms for each in plan.again.values())
            self.rules.wait(max(0, first - self.rules.responder.now_ms()))
        now_ms = self.rules.responder.now_ms()
        return {task: each for task, each in plan.again.items() if each.due_ms <= now_ms}

    def _round(
        self,
        passed: DataFrame,
        starts: Mapping[str | None, Cursor] | None,
        due: Mapping[str | None, _Again],
        outage_from: int | None,
    ) -> DataFrame:
        """Send on the executors; return the failures, in a local checkpoint because it runs
        once."""
        rows = passed
        if starts is not None:
            rows = rows.where(_is_from({**starts, **{t: each.at for t, each in due.items()}}))
        columns = [TASK, ENTRY, POSITION, ORDINAL]
        theirs = [f"`{name.replace('`', '``')}`" for name in self.rules.pipeline.columns]
        error = F.lit(None).cast(ERROR_TYPE).alias(ERROR)
        rows = rows.select(*columns, error, *theirs)
        producing = self._producing(due, outage_from)
        try:
            if self._apart is None:
                told = self._sent_at_once(rows, producing)
                if told is not None:
                    return told
                self._apart = self._parts()
            return self._apart.sent(rows, producing)
        except StepFailed:
            self.rules.check()
            raise
        except BaseException as exc:
            # A job interrupted by a stop request is not a failure.
            self.rules.check()
            raise self.rules.failed(exc) from exc

    def _sent_at_once(self, rows: DataFrame, producing: Any) -> DataFrame | None:
        """Send in one job; None if a worker crashes."""
        try:
            return _sent(_in_order(rows), producing)
        except Exception as exc:
            ended = self.rules.failed(exc)
            if isinstance(ended, SelfHealing) or not is_crash(rows.sparkSession, exc):
                raise
        name = self.rules.pipeline.name
        _log.info("pipeline %r: send crashed a Python worker; isolating the record", name)
        return None

    def _parts(self) -> CrashIsolation:
        policy = self.rules.stage.policy
        return CrashIsolation(
            policy=policy,
            schema=_RESULT,
            in_order=_in_order,
            send=_sent,
            check=self.rules.check,
        )

    def _producing(self, due: Mapping[str | None, _Again], outage_from: int | None) -> Any:
        stage, responder = self.rules.stage, self.rules.responder
        tolerance, now_ms = stage.policy.tolerance, responder.now_ms()
        tallies = {task: run.tally for task, run in responder.runs.items()}
        left = {
            task: count(tolerance, tally, now_ms=now_ms, records=_MANY).tolerated
            for task, tally in tallies.items()
        }
        fresh = count(tolerance, Tally(), now_ms=now_ms, records=_MANY).tolerated
        rulings = stage.policy.table.rulings.items()
        return shipped("record_sender").SendRecords(
            send=self.producer.send,
            connect=self.producer.connect,
            rules=shipped_rules(stage.policy),
            immediate={
                name: ruling.immediate.value
                for name, ruling in rulings
                if ruling.immediate is not None
            },
            goes_on=_gone_on_after(stage),
            allowed=fresh,
            left=left,
            made={task: each.attempts.made for task, each in due.items()},
            since_ms={task: now_ms - each.attempts.started_ms for task, each in due.items()},
            retries=stage.policy.retry.limit != 0,
            outage_from=outage_from,
        )

    def _after(
        self, stopped: Sequence[Row], due: Mapping[str | None, _Again], began_ms: int
    ) -> _Plan:
        """Return what is left to send after tasks stopped: the record again, or the later ones."""
        plan = _Plan(starts={})
        retry, now_ms = self.rules.stage.policy.retry, self.rules.responder.now_ms()
        for row in stopped:
            task, error = row[TASK], row[ERROR]
            at = Cursor(entry=row[ENTRY], position=row[POSITION])
            known = due.get(task)
            first = known is None or known.at != at
            started_ms = began_ms if known is None or first else known.attempts.started_ms
            attempts = Attempts(made=error["attempts"], started_ms=started_ms, now_ms=now_ms)
            fate = next_attempt(retry, attempts, chance=random.randrange)
            plan.stops[task] = at
            if error["kind"] == Kind.RETRIABLE and isinstance(fate, RetryAfter):
                due_ms = now_ms + fate.wait_ms
                plan.again[task] = _Again(at=at, attempts=attempts, due_ms=due_ms)
                place = f"task {task!r}, position {at.position}"
                say(Saying.RETRYING, f"{self.rules.pipeline.name}: produce at {place}")
            else:
                plan.starts = {**(plan.starts or {}), task: after(at.entry, at.position)}
        return plan

    def _outage_from(self, passed: DataFrame) -> int | None:
        """Return how many failures may be an outage; None if there is no limit."""
        outage = self.rules.outage
        if outage.share is None:
            return None
        return outage.at_least(passed.where(F.col(ORDINAL) == 0).count())

    def _alike(self, found: DataFrame) -> Counter[Alike]:
        """Count failures by group, if the outage guard is on."""
        if self.rules.outage.share is None:
            return Counter()
        error = F.col(ERROR)
        failed = found.where(error.isNotNull())
        counts = failed.groupBy(error["exception_class"], error["frame"]).count().collect()
        return Counter({(kind, frame): number for kind, frame, number in counts})


def _in_order(rows: DataFrame, parts: int | None = None) -> DataFrame:
    """Return the rows sorted, all rows of a task in one of `parts` partitions; None: Spark's
    number."""
    by = [F.col(TASK)] if parts is None else [parts, F.col(TASK)]
    return rows.repartition(*by).sortWithinPartitions(ENTRY, POSITION, TASK, ORDINAL)


def _sent(rows: DataFrame, producing: Any) -> DataFrame:
    return checkpointed(rows.mapInArrow(producing, _RESULT))


def _is_from(starts: Mapping[str | None, Cursor]) -> Column:
    """Return whether a record is at or after the start of its task; other tasks have no start."""
    return _matches(starts, lambda start: place() >= start)


def _is_at(places: Mapping[str | None, Cursor]) -> Column:
    """Return whether a record is the one named for its task."""
    return _matches(places, lambda where: place() == where)


def _matches(places: Mapping[str | None, Cursor], compare: Callable[[Column], Column]) -> Column:
    """Compare each record with the place named for its task; False for tasks without one."""
    named = pause_offset_of({task: at for task, at in places.items() if task is not None})
    found = F.coalesce(compare(named), F.lit(False))
    if None not in places:
        return found
    at = places[None]
    whole = F.struct(
        F.lit(at.entry).alias("entry"), F.lit(at.position).cast("long").alias("position")
    )
    return F.when(F.col(TASK).isNull(), compare(whole)).otherwise(found)


def _gone_on_after(stage: StagePolicy) -> frozenset[str | None]:
    """Return the kinds of failures that executors may leave out without the driver.

    Where answers depend on the class, the driver decides: the task stops at its failed record.
    """
    if stage.policy.by_class:
        return frozenset()
    if stage.answer is Answer.CONTINUE:
        return frozenset({None, Kind.RETRIABLE.value, Kind.OTHER.value})
    if stage.handler is None and stage.policy.tolerance.configured:
        return frozenset({Kind.RETRIABLE.value})
    return frozenset()
