"""A sample history: the events of one week of an application, of its agent and of people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate
from random import Random
from uuid import UUID

from arrester.controlplane.store import NewBatch
from arrester.domain.events import (
    Body,
    CommandApplied,
    CommandIssued,
    CommandKind,
    Event,
    EventData,
    Failure,
    FinalResponse,
    InstanceStarted,
    RecordFailed,
    RecordsDeadLettered,
    RecordsHeld,
    ResumeHow,
    Run,
    TaskDied,
    TaskPaused,
    TaskResumed,
    ThreadStarted,
)
from arrester.domain.identity import uuids
from arrester.domain.wire import codec
from benchmarks.events import EVENTS_PER_BATCH, TRACES, batches

DAYS = 7
#: The pieces of the week, each folded in one transaction.
PIECES = 3 * DAYS
#: The percentages of pipelines, stages and classes. Frequent values fill a page at once, rare ones
#: have to be searched.
PIPELINES = {"departures": 80, "arrivals": 19, "gains": 1}
STAGES = {"process:plausible": 60, "deserialize": 30, "process:gain": 9, "produce": 1}
CLASSES = {
    "ImplausibleDelay": 50,
    "ValueError": 25,
    "KeyError": 15,
    "java.lang.NumberFormatException": 9,
    "java.sql.SQLException": 1,
}
PIPELINE = next(iter(PIPELINES))
#: Tasks of each of the other pipelines.
OTHER_TASKS = 10
#: The tasks that are PAUSED (or one percent, if that is more) and DEAD at the end.
PAUSED, DEAD = 6, 2
#: Few causes make most failures: the n-th most frequent one has 1/n of the failures of the first.
_WEIGHTS = [*accumulate(1 / rank for rank in range(1, TRACES + 1))]
#: The number of different batches of bodies.
_DIFFERENT_BATCHES = 20


@cache
def failures() -> tuple[Failure, ...]:
    """Return the causes, the most frequent one first."""
    random = Random(1)
    stages, classes = (_distributed(each, random) for each in (STAGES, CLASSES))
    return tuple(
        Failure(
            stage=stage,
            exception_class=name,
            # Of Java's exceptions some have a condition.
            condition="CAST_INVALID_INPUT" if name.startswith("java.lang") else None,
            message=f"left {900 + 37 * trace} minutes late, more than {trace}",
            fingerprint=f"1-{trace:016x}",
            frame=f"flights.py:{trace + 10} in plausible",
        )
        for trace, (stage, name) in enumerate(zip(stages, classes, strict=True))
    )


def _distributed(shares: dict[str, int], random: Random) -> list[str]:
    """Return a name for each cause, in random order, by their percentages."""
    names = [name for name, share in shares.items() for _ in range(round(share * TRACES / 100))]
    random.shuffle(names)
    assert len(names) == TRACES
    return names


@cache
def _bodies() -> tuple[bytes, ...]:
    """Return the packed bodies of some batches; different ones for each would take too long."""
    packed = (
        codec.pack(events).bodies
        for _, events in batches("any", _DIFFERENT_BATCHES * EVENTS_PER_BATCH)
    )
    return tuple(each for each in packed if each is not None)


def records() -> Iterator[Body]:
    """Yield the bodies that batches have."""
    for _, events in batches("any", EVENTS_PER_BATCH):
        yield from (each.body for each in events if each.body is not None)


@dataclass(slots=True, kw_only=True)
class Week:
    """An application with one instance, `tasks` failing tasks of its first pipeline and a few of
    the others: about `events` events up to `until`."""

    application: str
    events: int
    tasks: int
    until: datetime
    _random: Random = field(init=False)
    _runs: dict[str, Run] = field(init=False)
    _instance: UUID = field(init=False)
    _failed: int = 0
    #: The PAUSED tasks, and the number of held records of each.
    _paused: dict[str, TaskPaused] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(self.application)
        self._runs = {
            name: Run(
                pipeline=name,
                checkpoint=str(UUID(int=self._random.getrandbits(128), version=4)),
                epoch=1,
            )
            for name in PIPELINES
        }
        self._instance = UUID(int=self._random.getrandbits(128), version=4)

    def pieces(self) -> Iterator[tuple[datetime, list[NewBatch]]]:
        """Yield the time of receipt of each piece, and its batches."""
        length = timedelta(days=DAYS) / PIECES
        begin = self.until - timedelta(days=DAYS)
        yield (
            begin,
            [
                self._batch(begin, [InstanceStarted(host="driver-1", pid=7)]),
                *self._run_starts(begin),
            ],
        )
        for number in range(PIECES):
            size = self.events * (number + 1) // PIECES - self.events * number // PIECES
            end = begin + length
            yield end, [*self._failures_of(begin, length, size), *self._state_changes(number, end)]
            begin = end

    def _run_starts(self, moment: datetime) -> Iterator[NewBatch]:
        for run in self._runs.values():
            yield self._batch(moment, [ThreadStarted()], run=run)

    def _failures_of(self, begin: datetime, length: timedelta, size: int) -> Iterator[NewBatch]:
        """Yield batches of failures and dead letters, as agents send them."""
        step = length / max(1, size)
        for at in range(0, size, EVENTS_PER_BATCH):
            count = min(EVENTS_PER_BATCH, size - at)
            causes = self._random.choices(failures(), cum_weights=_WEIGHTS, k=count - 1)
            (pipeline,) = self._random.choices([*PIPELINES], [*PIPELINES.values()])
            run = self._runs[pipeline]
            events = [
                self._event(begin + step * (at + number), self._record(failure, pipeline), run=run)
                for number, failure in enumerate(causes)
            ]
            moment = begin + step * (at + count - 1)
            dead_letters = RecordsDeadLettered(
                task=self._task(self._failed, pipeline),
                count=count - 1,
                place="/srv/dead-letters",
                format="parquet",
                first_position=self._failed - count,
                last_position=self._failed,
            )
            events.append(self._event(moment, dead_letters, run=run))
            packed = codec.pack(events)
            if count == EVENTS_PER_BATCH:
                packed = packed._replace(bodies=self._random.choice(_bodies()))
            yield NewBatch(id=uuids.uuid7(moment), events=events, packed=packed)

    def _record(self, failure: Failure, pipeline: str) -> RecordFailed:
        self._failed += 1
        return RecordFailed(
            task=self._task(self._failed, pipeline),
            position=self._failed,
            failure=failure,
            response=FinalResponse.CONTINUE,
            key=f"B6{self._failed}",
        )

    def _task(self, number: int, pipeline: str = PIPELINE) -> str:
        return f"T{number % (self.tasks if pipeline == PIPELINE else OTHER_TASKS):05d}"

    def _state_changes(self, piece: int, moment: datetime) -> Iterator[NewBatch]:
        """Yield changes of states: more tasks are PAUSED and hold records, one resume fails."""
        paused = max(PAUSED, self.tasks // 100) * (piece + 1) // PIECES
        while len(self._paused) < paused:
            task = self._task(self._random.randrange(self.tasks))
            failure = self._random.choices(failures(), cum_weights=_WEIGHTS)[0]
            self._paused[task] = TaskPaused(task=task, position=self._failed, failure=failure)
            yield self._batch(moment, [self._paused[task]])
        for task in self._paused:
            self._held[task] = self._held.get(task, 0) + self._random.randrange(50)
        held = [RecordsHeld(task=task, held=count) for task, count in self._held.items()]
        for at in range(0, len(held), EVENTS_PER_BATCH):
            yield self._batch(moment, held[at : at + EVENTS_PER_BATCH])
        if self._paused:
            yield from self._resumed(self._random.choice([*self._paused]), moment)
        if piece == PIECES - 1:
            yield self._batch(moment, [self._task_died(number) for number in range(DEAD)])

    def _resumed(self, task: str, moment: datetime) -> Iterator[NewBatch]:
        command = uuids.uuid7(moment)
        issued = CommandIssued(
            command=command,
            kind=CommandKind.RESUME_TASK,
            actor="ana",
            pipeline=PIPELINE,
            checkpoint=self._runs[PIPELINE].checkpoint,
            task=task,
            instances=(self._instance,),
            expires_at=moment + timedelta(minutes=15),
        )
        event = Event(occurred_at=moment, data=issued)
        yield NewBatch(id=uuids.uuid7(moment), events=[event])
        resumed = TaskResumed(task=task, how=ResumeHow.RETRY, actor="ana")
        answers: list[EventData] = [resumed, CommandApplied(command=command), self._paused[task]]
        yield self._batch(moment, answers, caused_by=command)

    def _task_died(self, number: int) -> TaskDied:
        running = [task for task in map(self._task, range(self.tasks)) if task not in self._paused]
        return TaskDied(task=running[number], position=1, failure=failures()[number], alone=True)

    def _batch(
        self,
        moment: datetime,
        data: Sequence[EventData],
        *,
        caused_by: UUID | None = None,
        run: Run | None = None,
    ) -> NewBatch:
        events = [self._event(moment, each, caused_by=caused_by, run=run) for each in data]
        return NewBatch(id=uuids.uuid7(moment), events=events)

    def _event(
        self,
        moment: datetime,
        data: EventData,
        *,
        caused_by: UUID | None = None,
        run: Run | None = None,
    ) -> Event:
        return Event(
            occurred_at=moment,
            data=data,
            instance=self._instance,
            run=run or self._runs[PIPELINE],
            caused_by=caused_by,
        )
