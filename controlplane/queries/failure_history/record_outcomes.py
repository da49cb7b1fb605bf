"""What became of failed records: held, a dead letter, or processed since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from uuid import UUID

from arrester.controlplane import models, store
from arrester.controlplane.models import OPEN, DeadLetterStatus
from arrester.controlplane.views import row_mapping
from arrester.domain.events import (
    FinalResponse,
    RecordFailed,
    ResumeHow,
    StoredEvent,
    TaskDied,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)
from arrester.domain.identity.dead_letter_ids import dead_letter_ids
from arrester.domain.identity.names import TaskId, task_id
from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import TaskState

#: The changes of a task's state that are searched for what became of a record it stopped at.
_CHANGES = 50


class RecordOutcome(StrEnum):
    """What became of a failed record."""

    #: Its task is stopped at it.
    STOPS_TASK = "STOPS_TASK"
    #: Its task holds it.
    HELD = "HELD"
    #: It waits as a dead letter.
    DEAD_LETTER = "DEAD_LETTER"
    #: Its dead letter was redriven, and is not processed yet.
    REDRIVEN = "REDRIVEN"
    #: It was processed after its failure.
    PROCESSED = "PROCESSED"
    #: A person decided that its dead letter is not processed again.
    DISCARDED = "DISCARDED"
    #: It was left out, without a dead letter: the log has it.
    SKIPPED = "SKIPPED"
    #: The log does not have what followed.
    UNKNOWN = "UNKNOWN"


_OF_STATUS = dict.fromkeys(OPEN, RecordOutcome.DEAD_LETTER) | {
    DeadLetterStatus.REDRIVEN: RecordOutcome.REDRIVEN,
    DeadLetterStatus.PROCESSED: RecordOutcome.PROCESSED,
    DeadLetterStatus.DISCARDED: RecordOutcome.DISCARDED,
}


def outcomes(failures: Sequence[StoredEvent]) -> list[RecordOutcome]:
    """Return what became of the record of each RecordFailed."""
    tasks = [task_of(each) for each in failures]
    digests = {UUID(hex=each.digest) for each in tasks}
    states = {
        each.id.digest: each
        for each in row_mapping.TASKS.load_readable("digest = ANY(%s)", [[*digests]])
    }
    dead_letters = _dead_letter_statuses(zip(failures, tasks, strict=True))
    changes = lru_cache(maxsize=None)(_changes)
    found = []
    for each, task in zip(failures, tasks, strict=True):
        status = dead_letters.get((each.application, dead_letter_id(each, task)))
        outcome = None if status is None else _OF_STATUS[DeadLetterStatus(status)]
        if outcome in (None, RecordOutcome.REDRIVEN):
            outcome = _in_task(states.get(task.digest), each) or outcome
        found.append(outcome or _afterwards(each, partial(changes, UUID(hex=task.digest))))
    return found


def task_of(failure: StoredEvent) -> TaskId:
    """Return the task of a RecordFailed."""
    data, run = failure.event.data, failure.event.run
    assert isinstance(data, RecordFailed)
    assert run is not None
    return task_id(failure.application, run, data.task)


def dead_letter_id(failure: StoredEvent, task: TaskId) -> UUID | None:
    """Return the id that the dead letter of a RecordFailed has; None without a position."""
    position = _position(failure)
    if position is None:
        return None
    names = (task.application, task.pipeline, task.checkpoint, task.key)
    (id,) = dead_letter_ids(*names, [position])
    return UUID(bytes=id)


def _dead_letter_statuses(
    failures: Iterable[tuple[StoredEvent, TaskId]],
) -> dict[tuple[str, UUID | None], int]:
    """Return the status of each record's dead letter by application and id."""
    ids = [id for each in failures if (id := dead_letter_id(*each)) is not None]
    names = {each.id: each.application for each in store.all_streams()}
    # The index begins with the stream.
    rows = models.DeadLetter.objects.filter(stream__in=[*names], id__in=ids)
    found = rows.values_list("stream", "id", "status")
    return {(names[stream], id): status for stream, id, status in found}


def _in_task(task: TaskState | None, failure: StoredEvent) -> RecordOutcome | None:
    """Return where the record is in its task now; None: it has left the task."""
    position = _position(failure)
    if task is None or position is None:
        return None
    if task.status.stopped and task.position == position:
        return RecordOutcome.STOPS_TASK
    if task.first_held is not None and task.first_held <= position:
        return RecordOutcome.HELD
    return None


def _changes(digest: UUID) -> list[StoredEvent]:
    return store.read_task_state_changes(digest, before=None, limit=_CHANGES)


def _afterwards(
    failure: StoredEvent, newest_changes: Callable[[], Sequence[StoredEvent]]
) -> RecordOutcome:
    """Return what became of a record that is in no task and no dead letter any more."""
    data, position = failure.event.data, _position(failure)
    assert isinstance(data, RecordFailed)
    if data.response is FinalResponse.CONTINUE:
        return RecordOutcome.SKIPPED
    newest = newest_changes()
    if len(newest) == _CHANGES and newest[-1].sequence > failure.sequence:
        # Later changes are of other records.
        return RecordOutcome.UNKNOWN
    outcome = RecordOutcome.UNKNOWN
    for each in reversed(newest):
        change = each.event.data
        if each.sequence < failure.sequence:
            continue
        if isinstance(change, TaskPaused | TaskDied) and change.position == position:
            # It was tried again, and failed again.
            outcome = RecordOutcome.UNKNOWN
        elif outcome is RecordOutcome.UNKNOWN and isinstance(change, TaskResumed | TaskRestarted):
            is_skipped = isinstance(change, TaskResumed) and _is_skipped(position, change)
            outcome = RecordOutcome.SKIPPED if is_skipped else RecordOutcome.PROCESSED
    return outcome


def _is_skipped(position: int | None, change: TaskResumed) -> bool:
    if change.how is ResumeHow.AT:
        return change.position is not None and (position or 0) < change.position
    # SKIP leaves out the record that stopped the task, and none that it holds.
    is_own = None in (position, change.position) or position == change.position
    return change.how is ResumeHow.SKIP and is_own


def _position(failure: StoredEvent) -> int | None:
    data = failure.event.data
    assert isinstance(data, RecordFailed)
    return data.position
