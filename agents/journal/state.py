"""The folded journal: task states, held rows, chunks, command answers. No I/O."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.agents.journal.entries import (
    NO_BATCH,
    Chunk,
    Cursor,
    DeadLetters,
    Entry,
    EntryKind,
    Held,
    RecordsChecksum,
    Skipped,
)
from arrester.controlplane.domain.events import (
    Body,
    CommandApplied,
    CommandRefused,
    Event,
    Failure,
    PolicyChanged,
    RecordFailed,
    Response,
    StageCommanded,
    TaskDied,
    TaskEvent,
    TaskPaused,
    TaskRestarted,
)
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.state.evolve import At, evolve_task
from arrester.controlplane.domain.state.states import TaskState, TaskStatus

TASK_EVENTS = get_args(TaskEvent)
#: How many command answers are remembered. A command is redelivered within minutes, if at all.
ANSWERS = 1_000


class StoppingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record at which a task is PAUSED or DEAD. If it fails again, that is no new failed
    record."""

    position: int | None
    failure: Failure
    body: Body | None = None
    key: str | None = None


class TaskLedger(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task in its checkpoint."""

    state: TaskState
    #: None: no row is held.
    cursor: Cursor | None = None
    held: int = 0
    stopped_by: StoppingRecord | None = None
    #: It died alone. A replacement thread of the same instance does not restart it.
    alone: bool = False
    #: An operator paused it after this micro-batch. A replay of that micro-batch, or of an earlier
    #: one, lets its rows pass.
    paused_after_batch: int = NO_BATCH

    @property
    def blocked(self) -> bool:
        """Whether new rows of the task are held: it is stopped, or older rows come first."""
        return self.held > 0 or self.state.status is not TaskStatus.RUNNING


class SavedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry saved until nothing needs it: held rows, or coordinates of skipped ones."""

    #: Of the row folder; None: there is none.
    name: str | None = None
    entry: int
    batch: int | None
    held: tuple[Held, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    checksum: RecordsChecksum | None = msgspec.field(default=None, name="decided")


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a command in this checkpoint."""

    applied: bool
    reason: str


class Ledger(msgspec.Struct, kw_only=True):
    """The fold of a journal: `apply` adds entries to it.

    Compaction removes saved rows that are no longer needed, and a delivery its dead letters.
    """

    application: str
    pipeline: str
    checkpoint: str
    #: The last entry folded.
    number: int = 0
    #: Up to this entry, everything is confirmed and committed; only `run` entries remain.
    settled: int = 0
    epoch: int = 0
    #: Of the last run.
    instance: UUID | None = None
    #: By `TaskId.digest`.
    tasks: dict[str, TaskLedger] = {}
    saved_rows: list[SavedRows] = []
    chunks: int = 0
    #: The micro-batch before the last chunks, and how many chunks followed it.
    last_after: int = NO_BATCH
    chunks_after_last: int = 0
    #: The chunk whose sink has not returned.
    open_chunk: Chunk | None = None
    open_saved_rows: list[SavedRows] = []
    answers: dict[str, CommandAnswer] = {}
    #: Policy overrides, by the name of the stage.
    overrides: dict[str, StageCommanded] = {}
    #: Dead letters that are not known to be at their destination, by their name.
    pending_dead_letters: dict[str, DeadLetters] = {}

    def task_id(self, key: str | None) -> TaskId:
        """Return the identity of a task of this checkpoint."""
        return TaskId(
            application=self.application,
            pipeline=self.pipeline,
            checkpoint=self.checkpoint,
            key=key,
        )

    def task(self, key: str | None) -> TaskLedger:
        """Return the state of a task; an unknown one is RUNNING."""
        id = self.task_id(key)
        return self.tasks.get(id.digest) or TaskLedger(state=TaskState(id=id))

    def blocked(self, batch: int) -> list[str | None]:
        """Return the tasks whose new rows a micro-batch holds.

        A micro-batch that may have reached the sink before an operator's pause is written again.
        """
        return [
            each.state.id.key
            for each in self.tasks.values()
            if each.blocked and (each.held or batch > each.paused_after_batch)
        ]

    def drainable(self) -> TaskLedger | None:
        """Return the RUNNING task with held rows that changed longest ago."""
        waiting = [
            each
            for each in self.tasks.values()
            if each.held and each.state.status is TaskStatus.RUNNING
        ]
        return min(waiting, key=lambda each: each.state.sequence, default=None)

    def batch_number(self, batch: int) -> int:
        """Return the sink's number of a Spark micro-batch. It always increases."""
        later_chunks = self.chunks_after_last if self.last_after >= batch else 0
        return batch + self.chunks - later_chunks

    def chunk_number(self, after: int) -> int:
        """Return the sink's number of the latest chunk, which followed micro-batch `after`."""
        return after + self.chunks

    def saved_rows_of_batch(self, batch: int) -> list[SavedRows]:
        """Return what earlier decisions about a micro-batch saved."""
        return [each for each in self.saved_rows if each.batch == batch]

    def held_folders(self, key: str | None) -> list[tuple[SavedRows, str, int]]:
        """Return the folders with held rows of a task, in order, with the number of its rows in
        each."""
        cursor = self.task(key).cursor
        if cursor is None:
            return []
        return [
            (saved, saved.name, held.count)
            for saved in self.saved_rows
            for held in saved.held
            if saved.name is not None and held.task == key and saved.entry >= cursor.entry
        ]

    def apply(self, entry: Entry) -> None:
        """Fold one entry."""
        self.number = entry.number
        self.epoch = max(self.epoch, entry.epoch)
        if entry.kind is EntryKind.RUN:
            self._rename(entry)
        for event in entry.events:
            self._apply_event(event, entry)
        for held in entry.held:
            self._hold(held, entry)
        if entry.row_folder is not None or entry.skipped:
            saved = SavedRows(
                name=entry.row_folder,
                entry=entry.order or entry.number,
                batch=entry.batch,
                held=entry.held,
                skipped=entry.skipped,
                checksum=entry.checksum,
            )
            self.saved_rows.append(saved)
            if entry.kind is EntryKind.DRAIN:
                self.open_saved_rows.append(saved)
        if entry.dead_letters is not None:
            self.pending_dead_letters[entry.dead_letters.name] = entry.dead_letters
        match entry.kind:
            case EntryKind.RUN:
                self.instance = entry.instance
            case EntryKind.DRAIN if entry.chunk is not None:
                self._open(entry.chunk)
            case EntryKind.DRAINED if self.open_chunk is not None:
                self._remove_held(self.open_chunk)
                self.open_chunk, self.open_saved_rows = None, []
            case EntryKind.RESUME if entry.chunk is not None:
                self._remove_held(entry.chunk)

    def _rename(self, run: Entry) -> None:
        """Give the checkpoint, with all its tasks, to the owner that a `run` entry names."""
        # An entry of 0.2.0 has the pipeline in its events only.
        reported = [event.run.pipeline for event in run.events if event.run is not None]
        application = run.application or self.application
        pipeline = run.pipeline or next(iter(reported), self.pipeline)
        if (application, pipeline) == (self.application, self.pipeline):
            return
        self.application, self.pipeline = application, pipeline
        before, self.tasks = self.tasks, {}
        for task in before.values():
            state = replace(task.state, id=self.task_id(task.state.id.key))
            self._put(replace(task, state=state))

    def _apply_event(self, event: Event, entry: Entry) -> None:
        data = event.data
        if isinstance(data, CommandApplied):
            self._answer(str(data.command), CommandAnswer(applied=True, reason=data.detail or ""))
        elif isinstance(data, CommandRefused):
            self._answer(str(data.command), CommandAnswer(applied=False, reason=data.reason))
        elif isinstance(data, PolicyChanged):
            self.overrides.pop(data.stage, None)
            if data.answer is not None:
                self.overrides[data.stage] = StageCommanded(
                    name=data.stage,
                    answer=data.answer,
                    actor=data.actor,
                    reason=data.reason,
                    since=event.occurred_at,
                )
        elif isinstance(data, TASK_EVENTS):
            at = At(
                sequence=entry.number,
                occurred_at=event.occurred_at,
                instance=event.instance,
                epoch=entry.epoch,
            )
            before = self.task(data.task)
            task = replace(before, state=evolve_task(before.state, data, at))
            if isinstance(data, RecordFailed):
                task = replace(
                    task, stopped_by=_stopping_record(before.stopped_by, data, event.body)
                )
            if isinstance(data, TaskDied | TaskRestarted):
                task = replace(task, alone=isinstance(data, TaskDied) and data.alone)
            if entry.kind is EntryKind.PAUSE and isinstance(data, TaskPaused):
                task = replace(task, paused_after_batch=entry.after)
            self._put(task)

    def _answer(self, command: str, answer: CommandAnswer) -> None:
        self.answers[command] = answer
        while len(self.answers) > ANSWERS:
            del self.answers[next(iter(self.answers))]

    def _hold(self, held: Held, entry: Entry) -> None:
        task = self.task(held.task)
        cursor = task.cursor or Cursor(entry=entry.order or entry.number)
        self._put(replace(task, cursor=cursor, held=task.held + held.count))

    def _open(self, chunk: Chunk) -> None:
        # A replay that decides more changes the open chunk, which keeps its number.
        if self.open_chunk is None:
            self.chunks += 1
            same = chunk.after == self.last_after
            self.chunks_after_last = self.chunks_after_last + 1 if same else 1
            self.last_after = chunk.after
        self.open_chunk = chunk

    def _remove_held(self, chunk: Chunk) -> None:
        task = self.task(chunk.task)
        remaining = task.held - chunk.taken
        stopped_by = task.stopped_by
        if task.state.status is TaskStatus.RUNNING and (
            not remaining or _is_past(stopped_by, chunk)
        ):
            stopped_by = None
        cursor = chunk.end if remaining else None
        self._put(replace(task, held=remaining, cursor=cursor, stopped_by=stopped_by))

    def _put(self, task: TaskLedger) -> None:
        self.tasks[task.state.id.digest] = task


def _stopping_record(
    before: StoppingRecord | None, data: RecordFailed, body: Body | None
) -> StoppingRecord | None:
    """Return the stopping record after a failed record. At most one event of it is a recurrence.

    Without a position the record is indistinguishable from others, so no later one is the same.
    """
    if data.response is Response.CONTINUE:
        return None if data.recurrence else before
    return StoppingRecord(position=data.position, failure=data.failure, body=body, key=data.key)


def _is_past(stopped_by: StoppingRecord | None, chunk: Chunk) -> bool:
    """Whether the chunk has passed the stopping record."""
    if stopped_by is None or chunk.end.position is None or stopped_by.position is None:
        return True
    return chunk.end.position > stopped_by.position
