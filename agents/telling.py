"""Decisions as events: failed records in full or counted, tasks paused, a run that died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace
from pyspark.sql import Row

from agents.decisions import Decision, Rest
from agents.failed import FailedRecord, is_native, stage_of
from agents.ledger import Blame
from agents.outage import Outage
from agents.payload import Redaction
from agents.pipeline import Pipeline
from agents.problem import Problem
from agents.saying import say
from agents.stages import stages_of
from controlplane.domain.events import (
    Body,
    Event,
    EventData,
    Failure,
    FailuresCounted,
    OutageFound,
    RecordFailed,
    Response,
    Run,
    TaskDied,
    TaskPaused,
)
from controlplane.domain.fingerprint import fingerprint
from controlplane.domain.levels import Saying
from controlplane.domain.names import bounded_key

#: Finds the record that a task was last held or died at.
BlameOf = Callable[[str | None], Blame | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Makes events in the name of one run."""

    pipeline: Pipeline
    instance: UUID
    run: Run
    redaction: Redaction
    #: errors.log.enable, and whether a log line shows the record itself.
    log: bool = False
    log_records: bool = False
    #: errors.log.include.configs: whether it shows the class and configuration of the stage.
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

    def decided(self, decision: Decision, at: datetime, blame_of: BlameOf) -> list[Event]:
        """Return the events of a decision that lets the run go on."""
        blames = _Blames(blame_of)
        told = [] if decision.outage is None else [self.outage(decision.outage, at)]
        told += [
            self.failed(each, Response.CONTINUE, at, blames.taken(each))
            for each in decision.examples
        ]
        for counted in self._counted(decision):
            more = f"{counted.count} more up to position {counted.last_position}"
            self._log(counted, more)
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
        return told

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
        self, each: FailedRecord, response: Response, at: datetime, blame: Blame | None
    ) -> Event:
        """Return RecordFailed with its body; the record a task was held at is no new one."""
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
        shown = kafka_coordinates(each.row) or told.record
        self._log(data, f"position {data.position}", f" {shown}" if self.log_records else "")
        return self.event(data, at, body=told)

    def _log(self, data: RecordFailed | FailuresCounted, where: str, record: str = "") -> None:
        """Report a failure in the log (errors.log.enable); each one that is told, once."""
        if not self.log:
            return
        cause = f"{data.failure.exception_class}: {first_line(data.failure.message)}"
        line = f"{self.pipeline.name}: {data.failure.stage} failed at task {data.task!r}, {where}"
        attempts = f" (attempt {data.failure.attempts})" if data.failure.attempts > 1 else ""
        config = self._configuration(data.failure.stage) if self.log_configs else ""
        said = f"{line}{attempts}: {cause}: {data.response}{record}{config}"
        say(Saying.FAILURE_REPORTED, said)

    def _configuration(self, stage: str) -> str:
        found = [each for each in stages_of(self.pipeline) if each.name == stage]
        return "".join(f" [{each.kind} {dict(each.config)}]" for each in found)

    def _key(self, each: FailedRecord) -> str | None:
        shown = each.key is not None and self.redaction.shows_key
        return bounded_key(each.key) if shown and each.key is not None else None

    def _body(self, each: FailedRecord) -> Body:
        return self.redaction.body(each.row.asDict(), stack=each.problem.stack)

    def _counted(self, decision: Decision) -> list[FailuresCounted]:
        """Return exact counts for what is not told in full.

        A native step has no class before it is looked at: the rest of a task is split among the
        causes as the examples of its step are, and says that the split is an estimate.
        """
        told = [*decision.examples, *decision.paused, *decision.died]
        return [
            FailuresCounted(
                task=rest.task,
                failure=cause,
                response=Response.CONTINUE,
                count=count,
                first_position=rest.first,
                last_position=rest.last,
                estimated=is_native(self.pipeline, rest.number),
                logged=self.log,
            )
            for rest in decision.rest
            for cause, count in self._causes(rest, told)
        ]

    def _causes(self, rest: Rest, told: Sequence[FailedRecord]) -> list[tuple[Failure, int]]:
        """Split the rest among the causes that the examples of its step show."""
        native = is_native(self.pipeline, rest.number)
        examples = [
            failure_of(each)
            for each in told
            if each.number == rest.number and (native or _is_alike(each.problem, rest))
        ]
        # What was tried more often is told with its own number of attempts.
        examples = [replace(each, attempts=rest.attempts) for each in examples]
        if not examples:
            stage = stage_of(self.pipeline, rest.number)
            return [(_unseen(stage, rest), rest.count)]
        known = {each.fingerprint: each for each in examples}
        split = shares(rest.count, Counter(each.fingerprint for each in examples))
        return [(known[name], count) for name, count in split.items()]


class _Blames:
    """The records that tasks were held or died at; each fails again at most once at a time."""

    def __init__(self, blame_of: BlameOf) -> None:
        self._blame_of = blame_of
        self._taken: set[str | None] = set()

    def taken(self, each: FailedRecord) -> Blame | None:
        """Return the task's blame where `each` is its record; None for a second one."""
        blame = self._blame_of(each.task)
        if each.task in self._taken or not _is_same(blame, each):
            return None
        self._taken.add(each.task)
        return blame


def _is_same(blame: Blame | None, each: FailedRecord) -> bool:
    """Whether it is the blamed record; without a position it cannot be told from others."""
    return blame is not None and blame.position is not None and blame.position == each.position


def failure_of(each: FailedRecord) -> Failure:
    """Return the failure of a record, with the fingerprint of its cause."""
    return failure(each.stage, each.problem)


def failure(stage: str, problem: Problem) -> Failure:
    """Return a problem of a stage as a failure."""
    return Failure(
        stage=stage,
        exception_class=problem.exception_class,
        condition=problem.condition,
        message=problem.message,
        frame=problem.frame,
        attempts=problem.attempts,
        fingerprint=fingerprint(
            stage=stage,
            exception_class=problem.exception_class,
            condition=problem.condition,
            frame=problem.frame,
            message=problem.message,
        ),
    )


def shares(count: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split `count` in proportion to `weights`, by largest remainder; the sum is exact."""
    total = sum(weights.values())
    split = {name: count * weight // total for name, weight in weights.items()}
    left = count - sum(split.values())
    by_remainder = sorted(weights, key=lambda name: count * weights[name] % total, reverse=True)
    for name in by_remainder[:left]:
        split[name] += 1
    return {name: part for name, part in split.items() if part}


def _is_alike(problem: Problem, rest: Rest) -> bool:
    return (problem.exception_class, problem.frame) == (rest.exception_class, rest.frame)


def _unseen(stage: str, rest: Rest) -> Failure:
    problem = Problem(
        exception_class=rest.exception_class or "NotEvaluated",
        message="",
        frame=rest.frame,
        attempts=rest.attempts,
    )
    return failure(stage, problem)


def kafka_coordinates(row: Row) -> str | None:
    """Return where a record of Kafka is, in place of what is in it; None for any other."""
    given = row.asDict()
    if not {"topic", "partition", "offset"} <= given.keys():
        return None
    return f"topic {given['topic']}, partition {given['partition']}, offset {given['offset']}"


def first_line(text: str) -> str:
    """Return the first line of a text, for logs and reasons."""
    return text.splitlines()[0] if text else ""
