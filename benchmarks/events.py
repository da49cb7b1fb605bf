"""Sample events: failures of about 1.5 KB, in batches as agents send them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from arrester.domain.events import (
    Body,
    Event,
    Failure,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    Run,
)
from arrester.domain.identity import uuids

EVENTS_PER_BATCH = 100
TASKS, TRACES, TRACE_LINES = 200, 240, 20
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_FIELDS = ("carrier", "tailnum", "origin", "dest", "gate", "crew", "note")


def batches(application: str, count: int) -> Iterator[tuple[UUID, list[Event]]]:
    """Yield `count` events in batches with new ids; the same events for the same application."""
    random = Random(application)
    run = Run(pipeline="departures", checkpoint=str(_uuid(random)), epoch=1)
    instance = _uuid(random)
    for begin in range(0, count, EVENTS_PER_BATCH):
        size = min(EVENTS_PER_BATCH, count - begin)
        events = [_failed(random, begin + number, run, instance) for number in range(size - 1)]
        yield (
            uuids.uuid7(datetime.now(UTC)),
            [*events, _dead_lettered(begin, size - 1, run, instance)],
        )


def _failed(random: Random, number: int, run: Run, instance: UUID) -> Event:
    trace = random.randrange(TRACES)
    task = f"T{random.randrange(TASKS):03d}"
    failure = Failure(
        stage="process:plausible",
        exception_class="ImplausibleDelay",
        message=f"left {random.randrange(900, 9999)} minutes late, more than 900",
        fingerprint=f"1-{trace:016x}",
        frame=f"flights.py:{trace + 10} in plausible",
    )
    data = RecordFailed(
        task=task,
        position=number,
        failure=failure,
        response=FinalResponse.CONTINUE,
        key=f"B6{number}",
    )
    return Event(
        occurred_at=_at(number), data=data, instance=instance, run=run, body=_body(random, trace)
    )


def _body(random: Random, trace: int) -> Body:
    record = {name: f"{random.getrandbits(48):x}" for name in _FIELDS}
    lines = [
        f'  File "/srv/jobs/flights/step_{(trace * 7 + line) % 31}.py", line {trace + line}, in f'
        for line in range(TRACE_LINES)
    ]
    return Body(record=record | {"dep_delay": random.randrange(9999)}, stack="\n".join(lines))


def _dead_lettered(begin: int, count: int, run: Run, instance: UUID) -> Event:
    data = RecordsDeadLettered(
        task="T000",
        count=count,
        place="/srv/dead-letters",
        format="parquet",
        first_position=begin,
        last_position=begin + count,
    )
    return Event(occurred_at=_at(begin), data=data, instance=instance, run=run)


def _at(number: int) -> datetime:
    return NOON + timedelta(milliseconds=number)


def _uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
