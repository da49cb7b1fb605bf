"""What a checkpoint's journal says, folded: task states, held rows, chunks, commands. No I/O."""

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
    Held,
    Kind,
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
#: How many commands' answers are remembered; they are delivered again within minutes, if at all.
ANSWERS = 1_000


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """The record that a task was held or died at: the same again is no new failed record."""

    position: int | None
    failure: Failure
    body: Body | None = None
    key: str | None = None


class TaskLedger(msgspec.Struct, frozen=True, kw_only=True):
    """A task as its checkpoint knows it."""

    state: TaskState
    #: None: nothing is held.
    cursor: Cursor | None = None
    held: int = 0
    blame: Blame | None = None
    #: It died alone, and no thread of the same instance takes it up again by itself.
    alone: bool = False
    #: Paused by hand after this micro-batch: a replay of it, or of one before, lets its rows pass.
    held_after: int = NO_BATCH

    @property
    def blocked(self) -> bool:
        """Whether new rows of the task are held: it does not run, or older ones come first."""
        return self.held > 0 or self.state.status is not TaskStatus.RUNNING


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry put aside, until none of it is needed: rows, or where skipped ones were."""

    #: Of the folder with the rows; None: there is none.
    name: str | None = None
    entry: int
    batch: int | None
    held: tuple[Held, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command here."""

    applied: bool
    reason: str


class Ledger(msgspec.Struct, kw_only=True):
    """The fold of a journal; `apply` moves it on, nothing else changes it."""

    application: str
    pipeline: str
    checkpoint: str
    #: The last entry folded.
    number: int = 0
    #: Up to here everything is told and done; only `run` entries are left of it.
    settled: int = 0
    epoch: int = 0
    #: Of the last run.
    instance: UUID | None = None
    #: By `TaskId.digest`.
    tasks: dict[str, TaskLedger] = {}
    asides: list[Aside] = []
    chunks: int = 0
    #: The micro-batch that the last chunks came after, and how many of them did.
    last_after: int = NO_BATCH
    chunks_after_last: int = 0
    #: The chunk whose sink has not returned yet.
    open_chunk: Chunk | None = None
    open_asides: list[Aside] = []
    answers: dict[str, Answer] = {}
    #: What people have set as answers to failures, by the name of the stage.
    commanded: dict[str, StageCommanded] = {}
    #: Dead letters that are not known to be where they belong, by their name.
    letters: dict[str, DeadLetters] = {}

    def task_id(self, key: str | None) -> TaskId:
        """Return the identity of a task of this checkpoint."""
        return TaskId(
            application=self.application,
            pipeline=self.pipeline,
            checkpoint=self.checkpoint,
            key=key,
        )

    def task(self, key: str | None) -> TaskLedger:
        """Return what is known of a task; one never heard of is RUNNING."""
        id = self.task_id(key)
        return self.tasks.get(id.digest) or TaskLedger(state=TaskState(id=id))

    def blocked(self, batch: int) -> list[str | None]:
        """Return the tasks whose new rows a micro-batch holds.

        What it may have written before somebody paused a task by hand, it writes again.
        """
        return [
            each.state.id.key
            for each in self.tasks.values()
            if each.blocked and (each.held or batch > each.held_after)
        ]

    def drainable(self) -> TaskLedger | None:
        """Return a RUNNING task that has held rows, the one that changed longest ago first."""
        waiting = [
            each
            for each in self.tasks.values()
            if each.held and each.state.status is TaskStatus.RUNNING
        ]
        return min(waiting, key=lambda each: each.state.sequence, default=None)

    def batch_number(self, batch: int) -> int:
        """Return the sink's number of a Spark micro-batch: later ones are higher, for ever."""
        behind = self.chunks_after_last if self.last_after >= batch else 0
        return batch + self.chunks - behind

    def chunk_number(self, after: int) -> int:
        """Return the sink's number of the chunk made last, which came after micro-batch `after`."""
        return after + self.chunks

    def asides_of_batch(self, batch: int) -> list[Aside]:
        """Return what was put aside when it was decided about a micro-batch before."""
        return [each for each in self.asides if each.batch == batch]

    def held_asides(self, key: str | None) -> list[tuple[Aside, str, int]]:
        """Return where rows of the task wait, in order, with the folder and their number."""
        cursor = self.task(key).cursor
        if cursor is None:
            return []
        return [
            (aside, aside.name, held.count)
            for aside in self.asides
            for held in aside.held
            if aside.name is not None and held.task == key and aside.entry >= cursor.entry
        ]

    def apply(self, entry: Entry) -> None:
        """Take one entry; whatever it says has happened."""
        self.number = entry.number
        self.epoch = max(self.epoch, entry.epoch)
        for event in entry.events:
            self._apply_event(event, entry)
        for held in entry.held:
            self._hold(held, entry)
        if entry.aside is not None or entry.skipped:
            aside = Aside(
                name=entry.aside,
                entry=entry.order or entry.number,
                batch=entry.batch,
                held=entry.held,
                skipped=entry.skipped,
            )
            self.asides.append(aside)
            if entry.kind is Kind.DRAIN:
                self.open_asides.append(aside)
        if entry.dead_letters is not None:
            self.letters[entry.dead_letters.name] = entry.dead_letters
        match entry.kind:
            case Kind.RUN:
                self.instance = entry.instance
            case Kind.DRAIN if entry.chunk is not None:
                self._open(entry.chunk)
            case Kind.DRAINED if self.open_chunk is not None:
                self._take(self.open_chunk)
                self.open_chunk, self.open_asides = None, []
            case Kind.RESUME if entry.chunk is not None:
                self._take(entry.chunk)

    def _apply_event(self, event: Event, entry: Entry) -> None:
        data = event.data
        if isinstance(data, CommandApplied):
            self._answer(str(data.command), Answer(applied=True, reason=data.detail or ""))
        elif isinstance(data, CommandRefused):
            self._answer(str(data.command), Answer(applied=False, reason=data.reason))
        elif isinstance(data, PolicyChanged):
            self.commanded.pop(data.stage, None)
            if data.answer is not None:
                self.commanded[data.stage] = StageCommanded(
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
                task = replace(task, blame=_blame(before.blame, data, event.body))
            if isinstance(data, TaskDied | TaskRestarted):
                task = replace(task, alone=isinstance(data, TaskDied) and data.alone)
            if entry.kind is Kind.PAUSE and isinstance(data, TaskPaused):
                task = replace(task, held_after=entry.after)
            self.tasks[task.state.id.digest] = task

    def _answer(self, command: str, answer: Answer) -> None:
        self.answers[command] = answer
        while len(self.answers) > ANSWERS:
            del self.answers[next(iter(self.answers))]

    def _hold(self, held: Held, entry: Entry) -> None:
        task = self.task(held.task)
        cursor = task.cursor or Cursor(entry=entry.order or entry.number)
        self._keep(replace(task, cursor=cursor, held=task.held + held.count))

    def _open(self, chunk: Chunk) -> None:
        # A replay that decided more amends the chunk that is open; it keeps its number.
        if self.open_chunk is None:
            self.chunks += 1
            same = chunk.after == self.last_after
            self.chunks_after_last = self.chunks_after_last + 1 if same else 1
            self.last_after = chunk.after
        self.open_chunk = chunk

    def _take(self, chunk: Chunk) -> None:
        task = self.task(chunk.task)
        left = task.held - chunk.taken
        blame = task.blame
        if task.state.status is TaskStatus.RUNNING and (not left or _is_behind(blame, chunk)):
            blame = None
        cursor = chunk.end if left else None
        self._keep(replace(task, held=left, cursor=cursor, blame=blame))

    def _keep(self, task: TaskLedger) -> None:
        self.tasks[task.state.id.digest] = task


def _blame(before: Blame | None, data: RecordFailed, body: Body | None) -> Blame | None:
    """Return what is to blame after a failed record: at most one event of it is a recurrence.

    Without a position the record cannot be told from others, so a later one is never the same.
    """
    if data.response is Response.CONTINUE:
        return None if data.recurrence else before
    return Blame(position=data.position, failure=data.failure, body=body, key=data.key)


def _is_behind(blame: Blame | None, chunk: Chunk) -> bool:
    """Whether the chunk has gone past the blamed record."""
    if blame is None or chunk.end.position is None or blame.position is None:
        return True
    return chunk.end.position > blame.position
