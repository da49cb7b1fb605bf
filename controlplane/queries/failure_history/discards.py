"""Who discarded a dead letter, and why."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from arrester.controlplane import store
from arrester.controlplane.models import DeadLetterStatus
from arrester.controlplane.queries.failure_history.dead_letters import DeadLetter
from arrester.domain.events import DeadLettersDiscarded, StoredEvent
from arrester.domain.wire.dead_letter_columns import discarded_ids

#: The newest discards of the task that are searched.
SEARCHED = 100


def discard_of(one: DeadLetter) -> StoredEvent | None:
    """Return the event that discarded a dead letter; None if it is not discarded.

    It is searched among the newest discards of the task; the log may have more.
    """
    if one.status is not DeadLetterStatus.DISCARDED:
        return None
    id = bytes.fromhex(one.id)
    discards = store.read_of_task(UUID(hex=one.task.digest), DeadLettersDiscarded)
    for each in islice(discards, SEARCHED):
        data = each.event.data
        if isinstance(data, DeadLettersDiscarded) and id in discarded_ids(one.application, data):
            return each
    return None
