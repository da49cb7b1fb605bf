"""An operator resumes a paused task: from the failed record, or past it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from agents.deadletters import LetterBox
from agents.entries import Chunk, DeadLetters, Entry, Kind
from agents.failed import stage_of
from agents.held import Shelf
from agents.journal import Journal
from agents.ledger import Blame, TaskLedger
from agents.letter_frames import Said
from agents.pipeline import Pipeline
from agents.telling import Teller
from agents.worker.columns import ERROR, ERROR_TYPE, FATE, POSITION, ROW, TASK
from controlplane.domain.decide import restart_refusal
from controlplane.domain.errors import InvalidValue
from controlplane.domain.events import (
    CommandApplied,
    CommandRefused,
    EventData,
    RecordsHeld,
    ResumeHow,
    TaskRestarted,
    TaskResumed,
)
from controlplane.domain.states import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What an operator, or the author's own code, wants of a task."""

    key: str | None
    how: ResumeHow
    #: The position that the task is held at, as the one who wishes saw it; None: wherever.
    position: int | None = None
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a wish; the reason is for people, either way."""

    applied: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumer:
    """Accepts or refuses resumes of one run's tasks. Its caller holds the pipeline's lock."""

    pipeline: Pipeline
    journal: Journal
    shelf: Shelf
    letters: LetterBox | None
    teller: Teller

    def answered(self, command: UUID) -> Outcome | None:
        """Return what was answered to a command before, by whatever run of this checkpoint."""
        answer = self.journal.ledger.answers.get(str(command))
        return None if answer is None else Outcome(applied=answer.applied, reason=answer.reason)

    def resume(self, wish: Wish, at: datetime) -> Outcome:
        """Apply `wish`, or refuse it with the state untouched; a command twice is answered once."""
        if wish.how not in (ResumeHow.RETRY, ResumeHow.SKIP, ResumeHow.RESTART):
            raise InvalidValue("how", wish.how, "RETRY, SKIP or RESTART")
        if wish.command is not None and (before := self.answered(wish.command)) is not None:
            return before
        self.journal.check_owned()
        task = self.journal.ledger.task(wish.key)
        refusal = _refusal(task, wish)
        if refusal is None:
            return self._accept(task, wish, at)
        if wish.command is not None:
            refused = CommandRefused(command=wish.command, reason=refusal)
            self._append(Kind.REFUSED, at, wish, [refused])
        return Outcome(applied=False, reason=refusal)

    def _accept(self, task: TaskLedger, wish: Wish, at: datetime) -> Outcome:
        skipped: Chunk | None = None
        letters: DeadLetters | None = None
        told: list[EventData] = []
        if wish.how is ResumeHow.SKIP and task.blame is not None:
            skipped, letters, told = self._skip(task, task.blame, wish, at)
        done = "restarted" if wish.how is ResumeHow.RESTART else "resumed"
        word = f"{done} {'past' if skipped else 'from'} position {task.state.position}"
        resumed = _moved(task, wish)
        answer = [] if wish.command is None else [CommandApplied(command=wish.command, detail=word)]
        self._append(
            Kind.RESUME, at, wish, [*told, resumed, *answer], chunk=skipped, letters=letters
        )
        if letters is not None and self.letters is not None:
            self.letters.deliver(letters)
        return Outcome(applied=True, reason=word)

    def _skip(
        self, task: TaskLedger, blame: Blame, wish: Wish, at: datetime
    ) -> tuple[Chunk, DeadLetters | None, list[EventData]]:
        """Take the failed record out of the held rows, as a dead letter where those are on."""
        ledger = self.journal.ledger
        chunk = self.shelf.first_record(ledger, wish.key)
        letters: DeadLetters | None = None
        told: list[EventData] = []
        if self.letters is not None:
            rows = self._with_error(self.shelf.rows(ledger, chunk), blame)
            number = f"{self.journal.next_number:020d}-{self.teller.run.epoch}"
            said = Said(
                name=f"{ledger.checkpoint}-{number}",
                at=at,
                reason=wish.reason,
                actor=wish.actor,
                condition=blame.failure.condition,
            )
            letters, lettered = self.letters.put(rows, (), said)
            told.extend(lettered)
        told.append(RecordsHeld(task=wish.key, held=task.held - chunk.taken))
        return chunk, letters, told

    def _with_error(self, rows: DataFrame, blame: Blame) -> DataFrame:
        """Put the failure that the task was paused for beside its record."""
        failure = blame.failure
        stages = [stage_of(self.pipeline, n) for n in range(len(self.pipeline.steps) + 2)]
        number = stages.index(failure.stage) if failure.stage in stages else None
        stack = None if blame.body is None else blame.body.stack
        error = F.struct(
            F.lit(failure.exception_class).alias("exception_class"),
            F.lit(failure.message).alias("message"),
            F.lit(stack).alias("stack"),
            F.lit(failure.frame).alias("frame"),
            F.lit(None).cast("array<string>").alias("names"),
            F.lit(failure.condition).alias("condition"),
            F.lit(None).cast("string").alias("kind"),
            F.lit(failure.attempts).alias("attempts"),
        )
        return rows.select(
            ROW,
            TASK,
            POSITION,
            F.lit(number).cast("int").alias(FATE),
            error.cast(ERROR_TYPE).alias(ERROR),
        )

    def _append(
        self,
        kind: Kind,
        at: datetime,
        wish: Wish,
        told: list[EventData],
        *,
        chunk: Chunk | None = None,
        letters: DeadLetters | None = None,
    ) -> None:
        events = tuple(self.teller.event(each, at, caused_by=wish.command) for each in told)
        entry = Entry(
            kind=kind,
            at=at,
            epoch=self.teller.run.epoch,
            events=events,
            chunk=chunk,
            dead_letters=letters,
        )
        self.journal.append(entry)


def _moved(task: TaskLedger, wish: Wish) -> TaskResumed | TaskRestarted:
    position = task.state.position
    if wish.how is ResumeHow.RESTART:
        return TaskRestarted(task=wish.key, position=position, actor=wish.actor, reason=wish.reason)
    return TaskResumed(
        task=wish.key, how=wish.how, position=position, actor=wish.actor, reason=wish.reason
    )


def _refusal(task: TaskLedger, wish: Wish) -> str | None:
    """Return why the state forbids the wish, or None."""
    state = task.state
    if wish.how is ResumeHow.RESTART:
        forbidden = restart_refusal(state)
        if forbidden is not None:
            return forbidden
    elif state.status is not TaskStatus.PAUSED:
        return f"only a PAUSED task can resume; {state.id.printed} is {state.status}"
    if wish.position is not None and wish.position != state.position:
        return f"{state.id.printed} is held at position {state.position}, not {wish.position}"
    if wish.how is ResumeHow.SKIP and task.blame is None:
        return f"{state.id.printed} was not paused by a failed record; there is none to skip"
    return None
