"""One failed record: all that happened to it, and its neighbours in the task."""

from __future__ import annotations

from uuid import UUID

import msgspec

from arrester.controlplane import store
from arrester.controlplane.queries.failure_history.dead_letters import DeadLetter, dead_letter
from arrester.controlplane.queries.failure_history.record_outcomes import (
    RecordOutcome,
    dead_letter_id,
    outcomes,
    task_of,
)
from arrester.controlplane.queries.failure_history.record_search import (
    MAX_SEARCH,
    RecordFilter,
    field_term,
    find_records,
)
from arrester.domain.errors import NotFound
from arrester.domain.events import (
    EventData,
    RecordFailed,
    RecordsRedriven,
    StoredEvent,
    TaskDied,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.wire import dead_letter_columns

#: The failures, and the changes of the task, that are searched for those of the record.
_FAILURES, _CHANGES = 100, 500


class RecordHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A failed record, and what the log has about it."""

    #: The RecordFailed, with its body.
    failure: StoredEvent
    task: TaskId
    outcome: RecordOutcome
    dead_letter: DeadLetter | None
    #: Its failures, commands at it, stops and dead letters; newest first, without bodies.
    events: tuple[StoredEvent, ...]
    #: The failed records of the task before and after this one in the log, by their log positions.
    older: int | None
    newer: int | None


def record_history(application: str, sequence: int) -> RecordHistory:
    """Return a record by the log position of one of its failures.

    Raises NotFound if no record failed there.
    """
    failure = store.read_one(application, sequence)
    if not isinstance(failure.event.data, RecordFailed) or failure.event.run is None:
        raise NotFound(f"{application} @ {sequence} is no failed record")
    task = task_of(failure)
    id = dead_letter_id(failure, task)
    try:
        found = None if id is None else dead_letter(application, id.hex)
    except NotFound:
        found = None
    (outcome,) = outcomes([failure])
    digest = UUID(hex=task.digest)
    return RecordHistory(
        failure=failure,
        task=task,
        outcome=outcome,
        dead_letter=found,
        events=tuple(_events(failure, task, id, found)),
        older=store.read_next_of_task(digest, sequence, newer=False),
        newer=store.read_next_of_task(digest, sequence, newer=True),
    )


def _events(
    failure: StoredEvent, task: TaskId, id: UUID | None, found: DeadLetter | None
) -> list[StoredEvent]:
    """Return the events about the record, newest first; `id` is that of its dead letter."""
    data = failure.event.data
    assert isinstance(data, RecordFailed)
    events = {failure.sequence: failure}
    if id is not None and data.position is not None:
        events |= _failures(task, data.position) | _changes(task, data.position, id)
    if found is not None:
        stream = store.read_stream(task.application).id
        reports = [(stream, found.first_sequence), (stream, found.sequence)]
        events |= {each.sequence: each for each in store.read_positions(reports)}
    return [events[each] for each in sorted(events, reverse=True)]


def _failures(task: TaskId, position: int) -> dict[int, StoredEvent]:
    """Return the failures of the record of a task at a position."""
    q = f"position:{position}"
    of_task = "" if task.key is None else f" {field_term('task', task.key)}"
    if len(q + of_task) <= MAX_SEARCH:
        q += of_task
    wanted = RecordFilter(q=q, application=task.application)
    # A record may have a field of this name.
    return {
        each.failure.sequence: each.failure
        for each in find_records(wanted, limit=_FAILURES).rows
        if each.task == task and getattr(each.failure.event.data, "position", None) == position
    }


def _changes(task: TaskId, position: int, id: UUID) -> dict[int, StoredEvent]:
    """Return the changes of a task that name the record, and the commands that led to them."""
    changes = store.read_task_state_changes(UUID(hex=task.digest), before=None, limit=_CHANGES)
    about: list[StoredEvent] = []
    stopped_at: int | None = None
    for each in reversed(changes):
        data = each.event.data
        is_resumed = isinstance(data, TaskResumed | TaskRestarted)
        if _is_about(each, data, position, id.bytes) or (is_resumed and stopped_at == position):
            about.append(each)
        if isinstance(data, TaskPaused | TaskDied):
            stopped_at = data.position
        elif is_resumed:
            stopped_at = None
    causes = {each.event.caused_by for each in about} - {None}
    commands = [each for each in changes if getattr(each.event.data, "command", None) in causes]
    return {each.sequence: each for each in (*about, *commands)}


def _is_about(stored: StoredEvent, data: EventData, position: int, id: bytes) -> bool:
    if isinstance(data, RecordsRedriven):
        run = stored.event.run
        return run is not None and id in dead_letter_columns.redriven_ids(
            stored.application, run, data
        )
    return getattr(data, "position", None) == position
