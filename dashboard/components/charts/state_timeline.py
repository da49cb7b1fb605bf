"""A task's states over time as a strip for SVG, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from arrester.domain.events import (
    EventData,
    StoredEvent,
    TaskDied,
    TaskDismissed,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.state.states import TaskStatus

#: The shortest time shown, so that a recent pause does not fill the strip.
LEAST = timedelta(hours=1)


class TimelinePart(NamedTuple):
    """A period in one state, with the event that began it."""

    status: TaskStatus
    begin: datetime
    end: datetime
    sequence: int
    x: float
    width: float


class Strip(NamedTuple):
    """The parts on a width of 100, oldest first."""

    parts: list[TimelinePart]
    start: datetime
    end: datetime


def strip(
    changes: Sequence[StoredEvent], *, now: datetime, ended: datetime | None = None
) -> Strip | None:
    """Return the strip of the state changes, newest first; None if there are none.

    It is empty before the first of them, and while the task would be RUNNING but its run has
    `ended`.
    """
    periods = _changes(changes)
    if not periods:
        return None
    start = min(periods[0][0], now - LEAST)
    seconds = (now - start) / timedelta(seconds=1)
    runs = periods[-1][1] is TaskStatus.RUNNING
    end = max(periods[-1][0], min(ended, now)) if ended is not None and runs else now
    ends = [*(begin for begin, _, _ in periods[1:]), end]
    return Strip(
        parts=[
            TimelinePart(
                status=status,
                begin=begin,
                end=end,
                sequence=sequence,
                x=round(100 * (begin - start).total_seconds() / seconds, 2),
                # Very short periods are visible, too.
                width=round(max(0.4, 100 * (end - begin).total_seconds() / seconds), 2),
            )
            for (begin, status, sequence), end in zip(periods, ends, strict=True)
            if end > begin
        ],
        start=start,
        end=now,
    )


def _changes(changes: Sequence[StoredEvent]) -> list[tuple[datetime, TaskStatus, int]]:
    """Return the beginning, state and event of each period, oldest first; an older run changes
    none."""
    periods: list[tuple[datetime, TaskStatus, int]] = []
    newest = 0
    for stored in reversed(changes):
        run, status = stored.event.run, _status(stored.event.data)
        if run is None or status is None or run.epoch < newest:
            continue
        newest = run.epoch
        if not periods or periods[-1][1] is not status:
            # Times are the agent's: a clock set back would give negative periods.
            at = (
                max(stored.event.occurred_at, periods[-1][0])
                if periods
                else stored.event.occurred_at
            )
            periods.append((at, status, stored.sequence))
    return periods


def _status(data: EventData) -> TaskStatus | None:
    match data:
        case TaskPaused():
            return TaskStatus.PAUSED
        case TaskDied():
            return TaskStatus.DEAD
        case TaskResumed() | TaskRestarted():
            return TaskStatus.RUNNING
        case TaskDismissed():
            return TaskStatus.DISMISSED
        case _:
            return None
