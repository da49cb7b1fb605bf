"""The messages of dead letters: each is that of its own record, as its failure was reported."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from arrester.controlplane import store
from arrester.domain.events import RecordFailed, StoredEvent
from arrester.domain.identity.names import task_id

#: The failures that a page searches, of all its events together.
SEARCHED = 1_000
#: At least so many of each task, since it has other failures too.
_LEAST = 20


class Reported(NamedTuple):
    """A dead letter: its record, and the event of the log that reported it."""

    task: UUID
    position: int
    sequence: int


def messages(wanted: Collection[Reported]) -> dict[Reported, str]:
    """Return the messages of dead letters whose failures were reported in full.

    Each is of the last failure of the record before the dead letter. It is searched among the
    failures of its task before that event; the log may have more.
    """
    events = sorted({(each.task, each.sequence) for each in wanted})
    limit = max(_LEAST, SEARCHED // max(1, len(events)))
    failed: dict[tuple[UUID, int], list[tuple[int, str]]] = {}
    for stored in store.read_examples_before(events, limit=limit):
        task, data = _task(stored), stored.event.data
        if task is not None and isinstance(data, RecordFailed) and data.position is not None:
            attempt = (stored.sequence, data.failure.message)
            failed.setdefault((task, data.position), []).append(attempt)
    found = {}
    for each in wanted:
        attempts = failed.get((each.task, each.position), ())
        earlier = [attempt for attempt in attempts if attempt[0] < each.sequence]
        if earlier and (message := max(earlier)[1]):
            found[each] = message
    return found


def _task(stored: StoredEvent) -> UUID | None:
    data, run = stored.event.data, stored.event.run
    if run is None or not isinstance(data, RecordFailed):
        return None
    return UUID(hex=task_id(stored.application, run, data.task).digest)
