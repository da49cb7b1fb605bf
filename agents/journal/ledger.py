"""The folded journal: task states, held rows, chunks, command answers. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import msgspec
from msgspec.structs import replace

from arrester.agents.journal.entries import (
    NO_BATCH,
    Chunk,
    DeadLetters,
    Entry,
    EntryKind,
    HeldCount,
    RecordsChecksum,
    SkippedRecords,
    UnstoredDeadLetters,
)
from arrester.agents.journal.task_ledger import TASK_EVENTS, TaskLedger
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    Event,
    PipelinePaused,
    PipelineResumed,
    PolicyChanged,
    StageCommanded,
)
from arrester.domain.identity.names import TaskId
from arrester.domain.state.evolve import pause_after
from arrester.domain.state.states import (
    PipelinePause,
    TaskState,
    TaskStatus,
    if_set,
)

#: How many command answers are remembered. A command is redelivered within minutes, if at all.
ANSWERS = 1_000


class SavedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry saved until nothing needs it: held rows, or coordinates of skipped ones."""

    #: The name of the row folder; None: there is none.
    name: str | None = None
    entry: int
    batch: int | None
    held: tuple[HeldCount, ...] = ()
    skipped: tuple[SkippedRecords, ...] = ()
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
    #: The instance of the last run.
    instance: UUID | None = None
    #: By `TaskId.digest`.
    tasks: dict[str, TaskLedger] = {}
    saved_rows: list[SavedRows] = []
    #: How often chunks were given to the sink.
    chunks: int = 0
    #: The micro-batch before the last chunks, and how often chunks followed it.
    last_after: int = NO_BATCH
    chunks_after_last: int = 0
    #: The chunks whose sink has not returned.
    open_chunks: tuple[Chunk, ...] = ()
    open_saved_rows: list[SavedRows] = []
    answers: dict[str, CommandAnswer] = {}
    #: The pause of the pipeline; None: it is not PAUSED.
    pause: PipelinePause | None = None
    #: Policy overrides, by the name of the stage.
    overrides: dict[str, StageCommanded] = {}
    #: Dead letters that are not known to be at their destination, by their name.
    pending_dead_letters: dict[str, DeadLetters] = {}
    #: Skipped held records without stored dead letters, by the name of the dead letters.
    unstored_dead_letters: dict[str, UnstoredDeadLetters] = {}
    #: The folders with the ids of redriven dead letters.
    redriven: list[str] = []

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

    @property
    def redrives(self) -> set[int]:
        """The numbers of the entries that hold redriven records; their folders have them."""
        return {int(name.partition("-")[0]) for name in self.redriven}

    def blocked(self, batch: int) -> list[str | None]:
        """Return the tasks whose rows in a micro-batch are held."""
        return [each.state.id.key for each in self.tasks.values() if each.is_blocked_in(batch)]

    def drainable(self) -> list[TaskLedger]:
        """Return the RUNNING tasks with held rows, those first that changed longest ago."""
        waiting = [
            each
            for each in self.tasks.values()
            if each.held and each.state.status is TaskStatus.RUNNING
        ]
        return sorted(waiting, key=lambda each: each.state.sequence)

    def batch_number(self, batch: int) -> int:
        """Return the sink's number of a Spark micro-batch. It always increases."""
        later_chunks = self.chunks_after_last if self.last_after >= batch else 0
        return batch + self.chunks - later_chunks

    def chunk_number(self, after: int) -> int:
        """Return the sink's number of the latest chunks, which followed micro-batch `after`."""
        return after + self.chunks

    def saved_rows_of_batch(self, batch: int) -> list[SavedRows]:
        """Return what earlier decisions about a micro-batch saved."""
        return [each for each in self.saved_rows if each.batch == batch]

    def held_rows(
        self, keys: Collection[str | None]
    ) -> dict[str | None, list[tuple[SavedRows, HeldCount]]]:
        """Return the folders with held rows of some tasks, in order, with what the journal has
        about the rows of the task in each."""
        by_task: dict[str | None, list[tuple[SavedRows, HeldCount]]] = {key: [] for key in keys}
        for saved in self.saved_rows:
            for held in saved.held:
                if saved.name is not None and held.task in by_task:
                    by_task[held.task].append((saved, held))
        return by_task

    def apply(self, entry: Entry) -> None:
        """Fold one entry."""
        self.number = entry.number
        self.epoch = max(self.epoch, entry.epoch)
        if entry.kind is EntryKind.RUN:
            self._rename(entry)
        for event in entry.events:
            self._apply_event(event, entry)
        for held in entry.held:
            self._put(self.task(held.task).with_held(held, entry))
        if entry.row_folder is not None or entry.skipped:
            self._save_rows(entry)
        if entry.mended is not None:
            for held in entry.held:
                self._put(replace(self.task(held.task), mended=entry.mended))
        if entry.dead_letters is not None:
            self.pending_dead_letters[entry.dead_letters.name] = entry.dead_letters
            self._mark_stored(entry.dead_letters.name)
        if entry.redriven is not None:
            self.redriven.append(entry.redriven)
        if entry.unstored is not None:
            self.unstored_dead_letters[entry.unstored.name] = entry.unstored
        match entry.kind:
            case EntryKind.RUN:
                self.instance = entry.instance
            case EntryKind.DRAIN if entry.chunks:
                self._open(entry.chunks)
            case EntryKind.DRAIN if entry.chunk is not None:
                self._open((entry.chunk,))
            case EntryKind.DRAINED:
                for chunk in self.open_chunks:
                    self._put(self.task(chunk.task).without_rows(chunk))
                self.open_chunks, self.open_saved_rows = (), []
            case EntryKind.RESUME if entry.chunk is not None:
                self._put(self.task(entry.chunk.task).without_rows(entry.chunk))

    def _mark_stored(self, name: str) -> None:
        """Remove the skipped records up to these: all that waited were stored together."""
        if name in self.unstored_dead_letters:
            for earlier in list(self.unstored_dead_letters):
                del self.unstored_dead_letters[earlier]
                if earlier == name:
                    break

    def _save_rows(self, entry: Entry) -> None:
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

    def _rename(self, run: Entry) -> None:
        """Give the checkpoint, with all its tasks, to the owner that a `run` entry names."""
        application = run.application or self.application
        pipeline = run.pipeline or self.pipeline
        if (application, pipeline) == (self.application, self.pipeline):
            return
        self.application, self.pipeline = application, pipeline
        tasks, self.tasks = self.tasks, {}
        for task in tasks.values():
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
        elif isinstance(data, PipelinePaused | PipelineResumed):
            self.pause = if_set(pause_after(data))
        elif isinstance(data, TASK_EVENTS):
            self._put(self.task(data.task).after_event(event, entry))

    def _answer(self, command: str, answer: CommandAnswer) -> None:
        self.answers[command] = answer
        while len(self.answers) > ANSWERS:
            del self.answers[next(iter(self.answers))]

    def _open(self, chunks: tuple[Chunk, ...]) -> None:
        # A replay that decides more changes the open chunks, which keep their number.
        if not self.open_chunks:
            self.chunks += 1
            after = chunks[0].after
            same = after == self.last_after
            self.chunks_after_last = self.chunks_after_last + 1 if same else 1
            self.last_after = after
        self.open_chunks = chunks

    def _put(self, task: TaskLedger) -> None:
        self.tasks[task.state.id.digest] = task
