"""Make the events of a decision: failed records in full or counted, paused tasks, a dead run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from arrester.agents.decisions.judge import Decision
from arrester.agents.decisions.outage import Outage
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stages import stages_of
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.aggregate import FailureSummary
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.fingerprints import CountedCauses, failure_of
from arrester.agents.failures.payload import Redaction, is_of_kafka, location_of, with_first_lines
from arrester.agents.failures.source_lines import source_lines
from arrester.agents.journal.entries import StoppingRecord
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.events import (
    Body,
    Event,
    EventData,
    Failure,
    FailuresCounted,
    FinalResponse,
    OutageFound,
    RecordFailed,
    Run,
    SourceLines,
    TaskDied,
    TaskPaused,
)
from arrester.domain.identity.names import bounded_key

#: The stack traces of more causes are not logged.
_LOGGED_CAUSES = 1_000
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
    #: errors.include.source: report the lines of code around the one that raised.
    source: bool = False
    #: The fingerprints of the causes whose stack trace this run has logged.
    _traced: set[str] = field(default_factory=set)
    #: The error groups of which an example in this run has them.
    _with_source: set[str] = field(default_factory=set)

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

    def decision_events(
        self, decision: Decision, at: datetime, stopping_record: StoppingRecordOf
    ) -> list[Event]:
        """Return the events of a decision that lets the run continue."""
        recurrences = _Recurrences(stopping_record)
        events = [] if decision.outage is None else [self.outage(decision.outage, at)]
        for each in decision.examples:
            events.append(
                self.record_failed(each, FinalResponse.CONTINUE, at, recurrences.take(each))
            )
        causes = CountedCauses(self.pipeline, [*decision.examples, *decision.stopping])
        for counted in self._counted(decision.counted, causes):
            more = f"{counted.count} more up to position {counted.last_position}"
            self._log(counted, f"task {counted.task!r}, {more}")
            events.append(self.event(counted, at))
        stopped: set[str | None] = set()
        for each in decision.stopping:
            response = decision.response_to(each.task)
            events.append(self.record_failed(each, response, at, recurrences.take(each)))
            events += self._task_stopped(each, failure_of(each), response, at, stopped)
        for summary in decision.stopped_tasks:
            # The cause of the stop is known, its message is not: the examples are other records.
            failure = replace(causes.most_common(summary), message="")
            response = decision.response_to(summary.task)
            failed = RecordFailed(
                task=summary.task,
                position=summary.position,
                failure=failure,
                response=response,
                recurrence=recurrences.take(summary) is not None,
                logged=self.log,
            )
            self._log(failed, f"task {summary.task!r}, position {summary.position}")
            events.append(self.event(failed, at))
            events += self._task_stopped(summary, failure, response, at, stopped)
        return events

    def _task_stopped(
        self,
        each: FailedRecord | FailureSummary,
        failure: Failure,
        response: FinalResponse,
        at: datetime,
        stopped: set[str | None],
    ) -> list[Event]:
        """Return TaskPaused or TaskDied for the first record at which a task stops."""
        if each.task in stopped:
            return []
        stopped.add(each.task)
        data: EventData = TaskPaused(task=each.task, position=each.position, failure=failure)
        if response is FinalResponse.FAIL:
            data = TaskDied(task=each.task, position=each.position, failure=failure, alone=True)
        return [self.event(data, at)]

    def outage(self, outage: Outage, at: datetime) -> Event:
        """Return OutageFound."""
        data = OutageFound(
            failure=failure_of(outage.example),
            failed=outage.failed,
            records=outage.records,
            response=outage.response,
            estimated=outage.estimated,
        )
        return self.event(data, at)

    def record_failed(
        self,
        each: FailedRecord,
        response: FinalResponse,
        at: datetime,
        stopped_by: StoppingRecord | None,
    ) -> Event:
        """Return RecordFailed with its body. The stopping record again is not a new failure."""
        failure = failure_of(each)
        source = self._source(failure, each.problem.stack)
        data = RecordFailed(
            task=each.task,
            position=each.position,
            failure=failure,
            response=response,
            key=self._key(each),
            recurrence=_is_same(stopped_by, each),
            logged=self.log,
            with_source=source is not None,
        )
        body = self.redaction.body(
            each.row.asDict(), received=each.received, stack=each.problem.stack, source=source
        )
        if self.log:
            trace, record = body.stack or "", f" {body.record}"
            # For a record of Kafka the log shows its coordinates, not its content.
            if not self.log_records or is_of_kafka(each):
                trace, record = with_first_lines(trace, data.failure.exception_class), ""
            self._log(data, location_of(each, self.redaction), record, trace=trace)
        return self.event(data, at, body=body)

    def _source(self, failure: Failure, stack: str | None) -> SourceLines | None:
        """Return the lines of code that the first example of an error group in a run has."""
        # Without a frame there are no lines, and there may be any number of groups.
        if not self.source or not failure.frame or failure.fingerprint in self._with_source:
            return None
        self._with_source.add(failure.fingerprint)
        return source_lines(failure.frame, stack)

    def _log(
        self,
        data: RecordFailed | FailuresCounted,
        place: str,
        record: str = "",
        *,
        trace: str = "",
    ) -> None:
        """Log a reported failure, if errors.log.enable is set.

        The stack trace is logged once per cause: a thousand records may fail alike.
        """
        if not self.log:
            return
        first = first_line(data.failure.message)
        cause = (
            f"{data.failure.exception_class}: {first}" if first else data.failure.exception_class
        )
        line = f"{self.pipeline.name}: {data.failure.stage} failed at {place}"
        attempts = f" (attempt {data.failure.attempts})" if data.failure.attempts > 1 else ""
        config = self._configuration(data.failure.stage) if self.log_configs else ""
        text = f"{line}{attempts}: {cause}: {data.response}{record}{config}"
        if trace and self._is_new_cause(data.failure.fingerprint):
            text = f"{text}\n{trace.rstrip()}"
        log_failure(LogMessage.FAILURE_REPORTED, text)

    def _is_new_cause(self, fingerprint: str) -> bool:
        if fingerprint in self._traced or len(self._traced) >= _LOGGED_CAUSES:
            return False
        self._traced.add(fingerprint)
        return True

    def _configuration(self, stage: str) -> str:
        stages = [each for each in stages_of(self.pipeline) if each.name == stage]
        return "".join(f" [{each.kind} {dict(each.config)}]" for each in stages)

    def _key(self, each: FailedRecord) -> str | None:
        if each.key is None or not self.redaction.shows_key:
            return None
        return bounded_key(each.key)

    def _counted(
        self, counted: Sequence[FailureSummary], causes: CountedCauses
    ) -> list[FailuresCounted]:
        """Return exact counts of the failures that are not reported in full.

        The class of a native failure is unknown until it is diagnosed. The other failures of a task
        are split among the causes in the proportion of the examples, and marked as an estimate.
        """
        return [
            FailuresCounted(
                task=each.task,
                failure=cause,
                response=FinalResponse.CONTINUE,
                count=count,
                first_position=each.first,
                last_position=each.last,
                estimated=self.pipeline.is_native(each.number),
                logged=self.log,
            )
            for each in counted
            for cause, count in causes.split(each)
        ]


class _Recurrences:
    """The records at which tasks stopped; each counts as a repeated failure at most once."""

    def __init__(self, stopping_record: StoppingRecordOf) -> None:
        self._stopping_record = stopping_record
        self._found: set[str | None] = set()

    def take(self, each: FailedRecord | FailureSummary) -> StoppingRecord | None:
        """Return the stopping record of the task if `each` is that record; None the second time."""
        record = self._stopping_record(each.task)
        if each.task in self._found or not _is_same(record, each):
            return None
        self._found.add(each.task)
        return record


def _is_same(record: StoppingRecord | None, each: FailedRecord | FailureSummary) -> bool:
    """Whether it is the stopping record; without a position records are not distinct."""
    return record is not None and record.position is not None and record.position == each.position


def first_line(text: str) -> str:
    """Return the first line of a text, for logs and reasons."""
    return text.splitlines()[0] if text else ""
