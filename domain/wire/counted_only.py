"""Reduce events to counts, for a spool that is full and for an overloaded server."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arrester.domain.events import (
    Event,
    FailuresCounted,
    FinalResponse,
    RecordFailed,
    Run,
)

_Group = tuple[Run | None, str | None, str, FinalResponse, bool]


def counted_only(events: Sequence[Event]) -> list[Event]:
    """Return `events` without bodies, with failed records that changed no state only counted.

    Every state change stays, in its place. Records that failed once, for the first time, and were
    answered CONTINUE are folded: one FailuresCounted per task, cause and run takes the place of the
    first of its records.
    """
    reduced: list[Event] = []
    indices: dict[_Group, int] = {}
    for event in events:
        data = event.data
        if not isinstance(data, RecordFailed) or not _only_counts(data):
            reduced.append(replace(event, body=None))
            continue
        group = (event.run, data.task, data.failure.fingerprint, data.response, data.logged)
        if group in indices:
            index = indices[group]
            reduced[index] = _with_one_more(reduced[index], data)
        else:
            indices[group] = len(reduced)
            reduced.append(replace(event, body=None, data=_counted(data)))
    return reduced


def _only_counts(data: RecordFailed) -> bool:
    return (
        data.response is FinalResponse.CONTINUE
        and not data.recurrence
        and data.failure.attempts == 1
    )


def _counted(data: RecordFailed) -> FailuresCounted:
    return FailuresCounted(
        task=data.task,
        failure=data.failure,
        response=data.response,
        count=1,
        first_position=data.position,
        last_position=data.position,
        logged=data.logged,
    )


def _with_one_more(event: Event, data: RecordFailed) -> Event:
    counted = event.data
    assert isinstance(counted, FailuresCounted)
    known = (counted.first_position, counted.last_position, data.position)
    positions = [position for position in known if position is not None]
    more = replace(
        counted,
        count=counted.count + 1,
        first_position=min(positions, default=None),
        last_position=max(positions, default=None),
    )
    return replace(event, data=more)
