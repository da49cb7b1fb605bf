"""The state of one task in a folded journal: its status, held rows and stopping record."""

from __future__ import annotations

from typing import get_args

import msgspec
from msgspec.structs import replace

from arrester.agents.journal.entries import (
    NO_BATCH,
    Chunk,
    Cursor,
    Entry,
    EntryKind,
    HeldCount,
    MendedRecord,
    StoppingRecord,
)
from arrester.domain.events import (
    Body,
    Event,
    FinalResponse,
    RecordFailed,
    TaskDied,
    TaskEvent,
    TaskPaused,
    TaskRestarted,
)
from arrester.domain.state.evolve import At, evolve_task
from arrester.domain.state.states import TaskState, TaskStatus

TASK_EVENTS = get_args(TaskEvent)


class TaskLedger(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task in its checkpoint."""

    state: TaskState
    #: The first held row; None: there is none.
    cursor: Cursor | None = None
    held: int = 0
    stopped_by: StoppingRecord | None = None
    #: The number of its rows, which are the first held ones; None: unknown.
    stopping: int | None = None
    #: The held record that a command has changed.
    mended: MendedRecord | None = None
    #: It died alone. A replacement thread of the same instance does not restart it.
    alone: bool = False
    #: An operator paused it after this micro-batch. A replay of that micro-batch, or of an earlier
    #: one, lets its rows pass.
    paused_after_batch: int = NO_BATCH
    #: Its held rows began with a redrive after this micro-batch, for which the same holds.
    held_after_batch: int = NO_BATCH

    @property
    def blocked(self) -> bool:
        """Whether new rows of the task are held: it is stopped, or older rows come first."""
        return self.held > 0 or self.state.status is not TaskStatus.RUNNING

    def is_blocked_in(self, batch: int) -> bool:
        """Whether the rows of the task in a micro-batch are held.

        One that may have reached the sink before a pause or a redrive is written again.
        """
        after = self.held_after_batch if self.held else self.paused_after_batch
        return self.blocked and batch > after

    def chunk(self, end: Cursor, taken: int) -> Chunk:
        """Return its first `taken` held rows, which are before `end`."""
        start = self.cursor or Cursor(entry=0)
        return Chunk(task=self.state.id.key, start=start, end=end, taken=taken, mended=self.mended)

    def after_event(self, event: Event, entry: Entry) -> TaskLedger:
        """Return the task after an event of it."""
        data = event.data
        assert isinstance(data, TASK_EVENTS)
        at = At(
            sequence=entry.number,
            occurred_at=event.occurred_at,
            instance=event.instance,
            epoch=entry.epoch,
        )
        task = replace(self, state=evolve_task(self.state, data, at))
        if isinstance(data, RecordFailed):
            task = replace(task, stopped_by=_stopping_record(self.stopped_by, data, event.body))
        if isinstance(data, TaskDied | TaskRestarted):
            task = replace(task, alone=isinstance(data, TaskDied) and data.alone)
        if entry.kind is EntryKind.PAUSE and isinstance(data, TaskPaused):
            task = replace(task, paused_after_batch=entry.after)
        return task

    def with_held(self, held: HeldCount, entry: Entry) -> TaskLedger:
        """Return the task with the rows that an entry holds."""
        cursor = self.cursor or Cursor(entry=entry.order or entry.number)
        stopping = self.stopping if held.stopping is None else held.stopping
        begins = entry.kind is EntryKind.REDRIVE and not self.held
        return replace(
            self,
            cursor=cursor,
            held=self.held + held.count,
            stopping=stopping,
            held_after_batch=entry.after if begins else self.held_after_batch,
        )

    def without_rows(self, chunk: Chunk) -> TaskLedger:
        """Return the task without the rows of a chunk, which are written or skipped."""
        remaining, stopped_by = self.held - chunk.taken, self.stopped_by
        if self.state.status is TaskStatus.RUNNING and (
            not remaining or _is_past(stopped_by, chunk)
        ):
            stopped_by = None
        cursor = chunk.end if remaining else None
        return replace(
            self,
            held=remaining,
            cursor=cursor,
            stopped_by=stopped_by,
            stopping=chunk.stopping,
            mended=None if _has_passed(chunk, self.mended) else self.mended,
            held_after_batch=self.held_after_batch if remaining else NO_BATCH,
        )


def _stopping_record(
    before: StoppingRecord | None, data: RecordFailed, body: Body | None
) -> StoppingRecord | None:
    """Return the stopping record after a failed record. At most one event of it is a recurrence.

    Without a position the record is indistinguishable from others, so no later one is the same.
    """
    if data.response is FinalResponse.CONTINUE:
        return None if data.recurrence else before
    return StoppingRecord(position=data.position, failure=data.failure, body=body, key=data.key)


def _has_passed(chunk: Chunk, mended: MendedRecord | None) -> bool:
    """Whether the chunk has passed a changed record."""
    if mended is None or chunk.end.entry != mended.entry:
        return mended is None or chunk.end.entry > mended.entry
    return chunk.end.position is not None and chunk.end.position > mended.position


def _is_past(stopped_by: StoppingRecord | None, chunk: Chunk) -> bool:
    """Whether the chunk has passed the stopping record."""
    if stopped_by is None or chunk.end.position is None or stopped_by.position is None:
        return True
    return chunk.end.position > stopped_by.position
