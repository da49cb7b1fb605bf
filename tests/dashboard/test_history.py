"""What a page leaves out of a task's history."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from controlplane.domain.events import Event, EventData, RecordsHeld, StoredEvent, TaskPaused
from dashboard.history import brief

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(sequence: int, data: EventData) -> StoredEvent:
    return StoredEvent(
        application="flights",
        sequence=sequence,
        received_at=NOW,
        batch=UUID(int=sequence),
        event=Event(occurred_at=NOW, data=data),
    )


def test_of_held_counts_in_a_row_only_the_newest_is_shown() -> None:
    held = [stored(number, RecordsHeld(task="JFK", held=number)) for number in (9, 8, 7, 3, 2)]
    paused = stored(5, TaskPaused(task="JFK", position=1))
    shown = brief([*held[:3], paused, *held[3:]])
    assert [each.sequence for each in shown] == [9, 5, 3]
