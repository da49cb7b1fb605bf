"""The history of a task with repeated attempts in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arrester.domain.commands.kinds import KINDS
from arrester.domain.events import (
    CommandApplied,
    CommandDelivered,
    CommandIssued,
    EventData,
    ResumeHow,
    StoredEvent,
    TaskDied,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)

_STOPS = (TaskPaused, TaskDied)
#: Fewer repeated attempts are shown event by event.
FOLDED_FROM = 2


class AttemptFold(NamedTuple):
    """Attempts that failed again at one record, one after the other."""

    position: int
    attempts: int
    #: Those who resumed or restarted the task, in order; none if only new instances did.
    actors: tuple[str, ...]
    #: From the first resume to the last stop, newest first.
    events: tuple[StoredEvent, ...]

    @property
    def begin(self) -> StoredEvent:
        """The first event, which identifies the row while attempts are added."""
        return self.events[-1]

    @property
    def end(self) -> StoredEvent:
        """The last event."""
        return self.events[0]

    @property
    def verb(self) -> str:
        """How the task continued."""
        is_resumed = any(isinstance(each.event.data, TaskResumed) for each in self.events)
        return "Resumed" if is_resumed else "Restarted"

    @property
    def is_one_day(self) -> bool:
        """Whether the events are of one day, in UTC."""
        begin, end = self.begin.event.occurred_at, self.end.event.occurred_at
        return begin.date() == end.date()


def rows(events: Sequence[StoredEvent]) -> list[StoredEvent | AttemptFold]:
    """Return the rows of a page of events that changed a task's state, both newest first.

    An attempt is a resume or restart, and the stop at the same position as the stop before it. At
    least FOLDED_FROM of them in a row become one row. Events of other pages are not known: attempts
    across the border of a page become a row on each page.
    """
    ordered = events[::-1]
    stops = [at for at, stored in enumerate(ordered) if isinstance(stored.event.data, _STOPS)]
    found: list[StoredEvent | AttemptFold] = []
    done = first = 0
    while first < len(stops):
        last = first
        while last + 1 < len(stops) and _is_attempt(ordered[stops[last] : stops[last + 1] + 1]):
            last += 1
        if last - first >= FOLDED_FROM:
            begin, end = stops[first] + 1, stops[last] + 1
            found += ordered[done:begin]
            found.append(_fold(ordered[begin:end], attempts=last - first))
            done = end
        first = max(last, first + 1)
    found += ordered[done:]
    return found[::-1]


def _is_attempt(events: Sequence[StoredEvent]) -> bool:
    """Return whether the events from a stop to the next are one attempt that failed again."""
    stop, *between, again = (stored.event.data for stored in events)
    assert isinstance(stop, _STOPS) and isinstance(again, _STOPS)
    # Without a position, records are indistinguishable.
    return (
        again.position is not None
        and again.position == stop.position
        and again.failure is not None
        and all(map(_belongs_to_attempt, between))
        and any(isinstance(data, TaskResumed | TaskRestarted) for data in between)
    )


def _belongs_to_attempt(data: EventData) -> bool:
    match data:
        case TaskResumed(how=how):
            return how in (ResumeHow.RETRY, ResumeHow.RESTART)
        case CommandIssued(kind=kind):
            return KINDS[kind].how in (ResumeHow.RETRY, ResumeHow.RESTART)
        case _:
            return isinstance(data, TaskRestarted | CommandDelivered | CommandApplied)


def _fold(ordered: Sequence[StoredEvent], *, attempts: int) -> AttemptFold:
    stop = ordered[-1].event.data
    assert isinstance(stop, _STOPS) and stop.position is not None
    all_data = [stored.event.data for stored in ordered]
    actors = [data.actor for data in all_data if isinstance(data, TaskResumed | TaskRestarted)]
    return AttemptFold(
        position=stop.position,
        attempts=attempts,
        actors=tuple(dict.fromkeys(filter(None, actors))),
        events=tuple(ordered[::-1]),
    )
