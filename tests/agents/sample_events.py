"""Sample events for tests of transport and runtime."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from arrester.domain.events import (
    Body,
    Event,
    Failure,
    FinalResponse,
    RecordFailed,
    Run,
    TaskPaused,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
RUN = Run(pipeline="delays", checkpoint="c1", epoch=1)
INSTANCE = UUID(int=7)


def batch_id(number: int) -> UUID:
    return UUID(int=number + 1)


def failure(message: str = "bad", *, attempts: int = 1) -> Failure:
    return Failure(
        stage="process:validate",
        exception_class="ValueError",
        message=message,
        fingerprint=f"1-{message}",
        attempts=attempts,
    )


def failed(
    position: int,
    *,
    task: str = "JFK",
    message: str = "bad",
    response: FinalResponse = FinalResponse.CONTINUE,
    recurrence: bool = False,
    attempts: int = 1,
    text: str = "",
) -> Event:
    """Return a failed record whose body holds `text`."""
    data = RecordFailed(
        task=task,
        position=position,
        failure=failure(message, attempts=attempts),
        response=response,
        recurrence=recurrence,
    )
    body = Body(record={"text": text})
    return Event(occurred_at=NOW, instance=INSTANCE, run=RUN, data=data, body=body)


def paused(position: int, *, task: str = "JFK") -> Event:
    data = TaskPaused(task=task, position=position, failure=failure())
    return Event(occurred_at=NOW, instance=INSTANCE, run=RUN, data=data)


def some_events(number: int) -> Sequence[Event]:
    """Return the events of the batch with this number, distinct by their positions."""
    return [failed(number), paused(number)]
