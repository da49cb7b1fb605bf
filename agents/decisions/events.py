"""Make the events of a decision: failed records in full or counted, paused tasks, a dead run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.outage import Outage
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stages import stages_of
from arrester.agents.failure_log import say
from arrester.agents.failures.aggregate_in_spark import CountedFailures, StoppedTask
from arrester.agents.failures.causes import Causes, failure_of
from arrester.agents.failures.failed_record import FailedRecord, is_native
from arrester.agents.failures.location import is_of_kafka, where
from arrester.agents.failures.payload import Redaction
from arrester.agents.failures.stack_traces import with_first_lines
from arrester.agents.journal.state import StoppingRecord
from arrester.controlplane.domain.error_policy.log_levels import Saying
from arrester.controlplane.domain.events import (
    Body,
    Event,
    EventData,
    FailuresCounted,
    OutageFound,
    RecordFailed,
    Response,
    Run,
    TaskDied,
    TaskPaused,
)
from arrester.controlplane.domain.identity.names import bounded_key

#: Find the record at which a task last stopped.
StoppingRecordOf = Callable[[str | None], StoppingRecord | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFactory:
    """Make the events of one run."""

    pipeline: Pipeline
    instance: UUID
    run: Run
    redaction: Redaction
    #: errors.log.enable, and whether log lines include the record.
    log: bool = False
    log_records: bool = False
    #: errors.log.include.configs: log the class and configuration of the stage.
    log_configs: bool = False

    def event(
        self,
        data: EventData,
        at: datetime,
        *,
        body: Body | None = None,
        caused_by: UUID | None = None,
    ) -> Event:
        """Return `data` in this run's envelope."""
        return Event(
            occurred_at=at,
            data=data,
            instance=self.instance,
            run=self.run,
            caused_by=caused_by,
            body=body,
        )

    def decided(self, decision: Decision, at: datetime, blame_of: StoppingRecordOf) -> list[Event]:
        """Return the events of a decision that lets the run continue."""
        blames = _Blames(blame_of)
        told = [] if decision.outage is None else [self.outage(decision.outage, at)]
        told += [
            self.failed(each, Response.CONTINUE, at, blames.taken(each))
            for each in decision.examples
        ]
        causes = Causes(self.pipeline, [*decision.examples, *decision.paused, *decision.died])
        for counted in self._counted(decision.rest, causes):
            more = f"{counted.count} more up to position {counted.last_position}"
            self._log(counted, f"task {counted.task!r}, {more}")
            told.append(self.event(counted, at))
        halted: set[str | None] = set()
        for each in decision.paused:
            told.append(self.failed(each, Response.PAUSE, at, blames.taken(each)))
            if each.task not in halted:
                halted.add(each.task)
                paused = TaskPaused(
                    task=each.task, position=each.position, failure=failure_of(each)
                )
                told.append(self.event(paused, at))
        for each in decision.died:
            told.append(self.failed(each, Response.FAIL, at, blames.taken(each)))
            if each.task not in halted:
                halted.add(each.task)
                died = TaskDied(
                    task=each.task, position=each.position, failure=failure_of(each), alone=True
                )
                told.append(self.event(died, at))
        for one in decision.halted:
            told += self._halted(one, causes, at, blames, is_first=one.task not in halted)
            halted.add(one.task)
        return told

    def _halted(
        self, each: StoppedTask, causes: Causes, at: datetime, blames: _Blames, *, is_first: bool
    ) -> list[Event]:
        """Return the events of a stop that is counted only; the failure is the first of its
        cause."""
        why = causes.commonest(each)
        response = Response.FAIL if each.dies else Response.PAUSE
        failed = RecordFailed(
            task=each.task,
            position=each.position,
            failure=why,
            response=response,
            recurrence=blames.taken(each) is not None,
            logged=self.log,
        )
        self._log(failed, f"task {each.task!r}, position {each.position}")
        state: EventData = TaskPaused(task=each.task, position=each.position, failure=why)
        if each.dies:
            state = TaskDied(task=each.task, position=each.position, failure=why, alone=True)
        told = [self.event(failed, at)]
        return [*told, self.event(state, at)] if is_first else told

    def outage(self, outage: Outage, at: datetime) -> Event:
        """Return OutageFound."""
        found = OutageFound(
            failure=failure_of(outage.example),
            failed=outage.failed,
            records=outage.records,
            response=outage.response,
            estimated=outage.estimated,
        )
        return self.event(found, at)

    def failed(
        self, each: FailedRecord, response: Response, at: datetime, blame: StoppingRecord | None
    ) -> Event:
        """Return RecordFailed with its body; the record at which a task stopped is not a new
        failure."""
        data = RecordFailed(
            task=each.task,
            position=each.position,
            failure=failure_of(each),
            response=response,
            key=self._key(each),
            recurrence=_is_same(blame, each),
            logged=self.log,
        )
        told = self._body(each)
        # For a record of Kafka the log shows its coordinates, not its content.
        shows = self.log_records and not is_of_kafka(each)
        trace = told.stack or ""
        if not shows:
            trace = with_first_lines(trace, data.failure.exception_class)
        shown = f" {told.record}" if shows else ""
        self._log(data, where(each, self.redaction), shown, trace=trace)
        return self.event(data, at, body=told)

    def _log(
        self,
        data: RecordFailed | FailuresCounted,
        place: str,
        record: str = "",
        *,
        trace: str = "",
    ) -> None:
        """Log each reported failure once (errors.log.enable)."""
        if not self.log:
            return
        cause = f"{data.failure.exception_class}: {first_line(data.failure.message)}"
        line = f"{self.pipeline.name}: {data.failure.stage} failed at {place}"
        attempts = f" (attempt {data.failure.attempts})" if data.failure.attempts > 1 else ""
        config = self._configuration(data.failure.stage) if self.log_configs else ""
        said = f"{line}{attempts}: {cause}: {data.response}{record}{config}"
        say(Saying.FAILURE_REPORTED, f"{said}\n{trace.rstrip()}" if trace else said)

    def _configuration(self, stage: str) -> str:
        found = [each for each in stages_of(self.pipeline) if each.name == stage]
        return "".join(f" [{each.kind} {dict(each.config)}]" for each in found)

    def _key(self, each: FailedRecord) -> str | None:
        shown = each.key is not None and self.redaction.shows_key
        return bounded_key(each.key) if shown and each.key is not None else None

    def _body(self, each: FailedRecord) -> Body:
        return self.redaction.body(each.row.asDict(), stack=each.problem.stack)

    def _counted(self, rest: Sequence[CountedFailures], causes: Causes) -> list[FailuresCounted]:
        """Return exact counts of the failures that are not reported in full.

        The class of a native failure is unknown until it is diagnosed. The other failures of a task
        are split among the causes in the proportion of the examples, and marked as an estimate.
        """
        return [
            FailuresCounted(
                task=each.task,
                failure=cause,
                response=Response.CONTINUE,
                count=count,
                first_position=each.first,
                last_position=each.last,
                estimated=is_native(self.pipeline, each.number),
                logged=self.log,
            )
            for each in rest
            for cause, count in causes.split(each)
        ]


class _Blames:
    """The records at which tasks stopped; each counts as a repeated failure at most once."""

    def __init__(self, blame_of: StoppingRecordOf) -> None:
        self._blame_of = blame_of
        self._taken: set[str | None] = set()

    def taken(self, each: FailedRecord | StoppedTask) -> StoppingRecord | None:
        """Return the stopping record of the task if `each` is that record; None the second time."""
        blame = self._blame_of(each.task)
        if each.task in self._taken or not _is_same(blame, each):
            return None
        self._taken.add(each.task)
        return blame


def _is_same(blame: StoppingRecord | None, each: FailedRecord | StoppedTask) -> bool:
    """Whether it is the stopping record; without a position records cannot be told apart."""
    return blame is not None and blame.position is not None and blame.position == each.position


def first_line(text: str) -> str:
    """Return the first line of a text, for logs and reasons."""
    return text.splitlines()[0] if text else ""
