"""A task's history for reading: what only repeats what came after it is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controlplane.domain.events import RecordsHeld, StoredEvent


def brief(events: Iterable[StoredEvent]) -> Iterator[StoredEvent]:
    """Yield `events`, newest first, but of held counts in a row only the newest.

    A task that stands says after every micro-batch how many rows it holds by now.
    """
    held_before = False
    for stored in events:
        is_held = isinstance(stored.event.data, RecordsHeld)
        if not (is_held and held_before):
            yield stored
        held_before = is_held
