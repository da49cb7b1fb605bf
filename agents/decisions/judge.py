"""Decide about the failed records of a micro-batch: call handlers, stop tasks, count exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from arrester.agents.decisions.constant_answers import ConstantAnswers
from arrester.agents.decisions.handler_retries import HandlerRetries, Recovered
from arrester.agents.decisions.outage import Outage, SinkProgress, detect_outage
from arrester.agents.decisions.rules import Responder
from arrester.agents.executor.columns import TASK
from arrester.agents.failure_log import say
from arrester.agents.failures.aggregate_in_spark import Coordinates, CountedFailures, StoppedTask
from arrester.agents.failures.failed_record import FailedRecord, produce_number
from arrester.agents.failures.failure_set import Failures
from arrester.agents.failures.pause_offsets import pause_offset_of, place
from arrester.agents.journal.entries import Cursor
from arrester.agents.spark.local_checkpoint import releasing
from arrester.agents.stop_signal import StopRequested
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.error_policy.outage import OutagePolicy
from arrester.controlplane.domain.events import Response

#: Failed records that are brought to the driver at a time when a handler must be called.
_PAGE = 200
#: With more paused tasks than this, the filter for them costs more than it saves.
_CUTS_IN_A_PAGE = 1_000
_RANK = "__arrester_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about a micro-batch or chunk."""

    #: By task: the place at which it stops, PAUSED or DEAD.
    pause_offsets: Mapping[str, Cursor] = field(default_factory=dict)
    #: The first record answered FAIL; then nothing else is decided.
    fatal: FailedRecord | None = None
    #: The outage, if too many records failed alike.
    outage: Outage | None = None
    paused: Sequence[FailedRecord] = ()
    #: The records that killed their task only (errors.failure.scope=task); also in `pause_offsets`.
    died: Sequence[FailedRecord] = ()
    #: Further records at which tasks stop.
    halted: Sequence[StoppedTask] = ()
    examples: Sequence[FailedRecord] = ()
    rest: Sequence[CountedFailures] = ()
    #: Records that failed, were retried by their handler, and passed.
    recovered: Sequence[Recovered] = ()


@dataclass(slots=True, kw_only=True)
class _Asked:
    """The answers of the handlers, called or declared."""

    pause_offsets: dict[str, Cursor] = field(default_factory=dict)
    #: The tasks that die at their stop.
    dead: set[str] = field(default_factory=set)
    fatal: FailedRecord | None = None
    recovered: list[Recovered] = field(default_factory=list)
    #: Attempts of records that took more than their rows count.
    attempts: dict[Coordinates, int] = field(default_factory=dict)

    def with_attempts(self, each: FailedRecord) -> FailedRecord:
        """Return the record with all of its attempts."""
        attempts = self.attempts.get((each.task, each.position), each.problem.attempts)
        return replace(each, problem=replace(each.problem, attempts=attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Decide about the failed records of a micro-batch or chunk."""

    responder: Responder
    again: HandlerRetries
    examples_limit: int
    outage: OutagePolicy = field(default_factory=OutagePolicy)
    #: How far the sink got, if the records failed there.
    tried: SinkProgress | None = None

    def decide(self, failures: Failures, blamed: Sequence[Coordinates]) -> Decision:
        """Return the decision about the failed records of a micro-batch or chunk.

        `blamed` are the coordinates of records reported before. They are always among the examples,
        so that they are not counted twice.
        """
        # Rows of recovered records, until a decision owns them.
        with releasing() as kept:
            decision = self._decided(failures, blamed, kept)
            if decision.recovered:
                kept.clear()
        return decision

    def _decided(
        self, failures: Failures, blamed: Sequence[Coordinates], kept: list[DataFrame]
    ) -> Decision:
        outage = detect_outage(failures, self.responder.pipeline, self.outage, self.tried)
        if outage is not None:
            say(Saying.OUTAGE, str(outage))
            if outage.response is Response.FAIL:
                return self._redacted(Decision(fatal=outage.example, outage=outage))
        asked = self._asked(
            failures if outage is None else _before(failures, outage.pause_offsets), kept
        )
        for each in asked.recovered:
            failures = failures.where(~each.is_at())
        if outage is not None:
            asked.pause_offsets = {**outage.pause_offsets, **asked.pause_offsets}
        decision = Decision(fatal=asked.fatal)
        if asked.fatal is None:
            decision = replace(self._described(failures, asked, blamed), outage=outage)
        if decision.fatal is not None:
            self._not_while_stopping(decision.fatal)
        _say(decision, self.responder)
        return self._redacted(decision)

    def _not_while_stopping(self, fatal: FailedRecord) -> None:
        """Kill nothing in a run that is stopping: the next run decides about the record."""
        try:
            self.again.wait(0)
        except StopRequested:
            say(Saying.KILLED_WHILE_STOPPING, self.responder.said_of(fatal))
            raise

    def _redacted(self, decision: Decision) -> Decision:
        """Remove the values of redacted fields from messages and traces; handlers received them."""
        fatal, outage = decision.fatal, decision.outage
        return replace(
            decision,
            fatal=None if fatal is None else self._told(fatal),
            outage=None if outage is None else replace(outage, example=self._told(outage.example)),
            paused=[self._told(each) for each in decision.paused],
            died=[self._told(each) for each in decision.died],
            examples=[self._told(each) for each in decision.examples],
        )

    def _told(self, each: FailedRecord) -> FailedRecord:
        problem = each.problem
        texts = problem.message, problem.stack, each.key
        message, stack, key = self.responder.redaction.texts(each.row.asDict(), *texts)
        told = replace(problem, message=message or "", stack=stack)
        return replace(each, problem=told, key=key)

    def _asked(self, failures: Failures, kept: list[DataFrame]) -> _Asked:
        """Return the answers of the handlers, called or declared."""
        java_inspector = [number for number, stage in self.responder.stages.items() if stage.asks]
        if java_inspector and failures.has_any_of(java_inspector):
            return self._ask_each(failures, kept)
        pause_offsets, dead, fatal = ConstantAnswers(
            failures=failures, responder=self.responder
        ).decide()
        return _Asked(pause_offsets=pause_offsets, dead=dead, fatal=fatal)

    def _ask_each(self, failures: Failures, kept: list[DataFrame]) -> _Asked:
        """Call the handlers record by record, ordered by task and position, page by page."""
        asked = _Asked()
        now_ms = self.responder.now_ms()
        for page in self._pages(failures, asked.pause_offsets):
            for each in page:
                if each.task is not None and each.task in asked.pause_offsets:
                    continue
                last = self.again.retry_until_decided(each, failures.rows, now_ms=now_ms)
                if isinstance(last, Recovered):
                    asked.recovered.append(last)
                    kept += last.evaluated.blocks
                    continue
                if last[0].problem.attempts != each.problem.attempts:
                    asked.attempts[each.task, each.position] = last[0].problem.attempts
                if last[1] is Response.FAIL and not self.responder.ends_only_its_task(each):
                    asked.fatal = last[0]
                    return asked
                if last[1] is not Response.CONTINUE and each.task is not None:
                    self._halt(asked, each, last[1])
        return asked

    def _halt(self, asked: _Asked, each: FailedRecord, response: Response) -> None:
        """Stop a task at one of its records: it is PAUSED there, or DEAD."""
        assert each.task is not None
        asked.pause_offsets[each.task] = Cursor(entry=each.entry, position=each.position)
        if response is Response.FAIL:
            asked.dead.add(each.task)
            self.responder.forget(each.task)

    def _pages(
        self, failures: Failures, pause_offsets: Mapping[str, Cursor]
    ) -> Iterator[list[FailedRecord]]:
        """Yield failed records in order, without those after a stop decided meanwhile.

        Diagnosing a record of a native step takes the driver milliseconds; a stop request ends the
        iteration between two pages.
        """
        order = Window.orderBy(F.col(TASK).asc_nulls_first(), place().asc())
        ranked = failures.in_one(failures.records).withColumn(_RANK, F.row_number().over(order))
        with failures.persisted(ranked) as ranked:
            for first in range(1, ranked.count() + 1, _PAGE):
                self.again.wait(0)
                page = ranked.where(F.col(_RANK).between(first, first + _PAGE - 1))
                if len(pause_offsets) <= _CUTS_IN_A_PAGE:
                    cut = pause_offset_of(pause_offsets)
                    page = page.where(cut.isNull() | (place() <= cut))
                yield failures.load(self.responder.pipeline, page.orderBy(_RANK))

    def _described(
        self, failures: Failures, asked: _Asked, blamed: Sequence[Coordinates]
    ) -> Decision:
        """Collect the examples, and count the rest exactly."""
        pause_offsets = asked.pause_offsets
        told = failures.report(
            limit=self.examples_limit,
            described={*blamed, *asked.attempts},
            pause_offsets=pause_offsets,
            dead=asked.dead,
        )
        load_by_id = failures.load_by_id(self.responder.pipeline, told.examples)
        load_by_id = [asked.with_attempts(each) for each in load_by_id]
        load_by_id.sort(key=lambda each: _order((each.task, each.position)))
        fatal = [
            each
            for each in load_by_id
            if each.task not in asked.dead and self.responder.is_fatal(each)
        ]
        if fatal and not self.responder.ends_only_its_task(fatal[0]):
            say(Saying.FATAL_NOT_ASKED, self.responder.said_of(fatal[0]))
            return Decision(fatal=fatal[0])
        if fatal:
            say(Saying.FATAL_NOT_ASKED, self.responder.said_of(fatal[0]))
            # Only the first of each task: all later records are held.
            for each in reversed(fatal):
                self._halt(asked, each, Response.FAIL)
            return self._described(failures, asked, blamed)
        halting = [each for each in load_by_id if _is_cut(each, pause_offsets)]
        return Decision(
            pause_offsets=pause_offsets,
            paused=[each for each in halting if each.task not in asked.dead],
            died=[each for each in halting if each.task in asked.dead],
            examples=[each for each in load_by_id if not _is_cut(each, pause_offsets)],
            halted=told.halted,
            rest=told.rest,
            recovered=asked.recovered,
        )


def _before(failures: Failures, pause_offsets: Mapping[str, Cursor]) -> Failures:
    """Return the failed records that are not held by these stops."""
    cut = pause_offset_of(pause_offsets)
    return failures.where(cut.isNull() | (place() < cut))


def _say(decision: Decision, responder: Responder) -> None:
    """Log the decision in a bounded number of lines."""
    name = responder.pipeline.name
    if decision.fatal is not None:
        say(Saying.TASK_KILLED, responder.said_of(decision.fatal))
    _say_left_out(decision, responder)
    for each in decision.paused:
        say(Saying.TASK_PAUSED, responder.said_of(each))
    for each in decision.died:
        say(Saying.TASK_KILLED, responder.said_of(each))
    for saying, dies in ((Saying.TASK_PAUSED, False), (Saying.TASK_KILLED, True)):
        if more := sum(each.dies is dies for each in decision.halted):
            say(saying, f"{name}: {more} more failed records, each of another task")


def _say_left_out(decision: Decision, responder: Responder) -> None:
    """Log how many records are left out; those retried separately at a lower level."""
    left_out = [(each.task, each.number, 1) for each in decision.examples]
    left_out += [(each.task, each.number, each.count) for each in decision.rest]
    end = produce_number(responder.pipeline)
    for saying, is_output in ((Saying.RECORD_SKIPPED, False), (Saying.OUTPUT_SKIPPED, True)):
        counts = [(task, n) for task, number, n in left_out if (number == end) is is_output]
        if counts:
            records, tasks = sum(n for _, n in counts), len({task for task, _ in counts})
            what = f"{records} failed records of {tasks} tasks are"
            say(saying, f"{responder.pipeline.name}: {what}")


def _is_cut(each: FailedRecord, pause_offsets: Mapping[str, Cursor]) -> bool:
    where = Cursor(entry=each.entry, position=each.position)
    return each.task is not None and pause_offsets.get(each.task) == where


def _order(where: Coordinates) -> tuple[bool, str, bool, int]:
    """Return the sort key of tasks and positions: NULL first, as Spark sorts them."""
    task, position = where
    return (task is not None, task or "", position is not None, position or 0)
