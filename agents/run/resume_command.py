"""Apply a resume command to a task: continue at the failed record or after it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.queue import DeadLetterQueue
from arrester.agents.dead_letters.schema import DeadLetterContext
from arrester.agents.decisions.events import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import ERROR, ERROR_TYPE, FATE, POSITION, ROW, TASK
from arrester.agents.failures.causes import failure
from arrester.agents.failures.failed_record import stage_of
from arrester.agents.held.schema import HeldRowsMisfit, HeldRowsMissing
from arrester.agents.held.store import HeldStore, PositionNotHeld
from arrester.agents.journal.entries import NO_BATCH, Chunk, DeadLetters, Entry, Kind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.state import StoppingRecord, TaskLedger
from arrester.agents.spark.errors import Problem
from arrester.controlplane.domain.commands.decide import pause_refusal, restart_refusal
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import (
    CommandApplied,
    CommandRefused,
    EventData,
    RecordsHeld,
    ResumeHow,
    TaskPaused,
    TaskRestarted,
    TaskResumed,
)
from arrester.controlplane.domain.state.states import TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """A command, from an operator or the author's own code, for one task."""

    key: str | None
    #: None: pause the task by hand.
    how: ResumeHow | None
    #: The position at which the requester saw the task stopped; None: any.
    position: int | None = None
    #: With AT: the position at which the task continues.
    target: int | None = None
    command: UUID | None = None
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """The result of a command, with a reason for people in either case."""

    applied: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeHandler:
    """Apply or refuse commands for the tasks of one run. The caller holds the run lock."""

    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    letters: DeadLetterQueue | None
    event_factory: EventFactory

    def answered(self, command: UUID) -> CommandOutcome | None:
        """Return the earlier answer to a command, from any run of this checkpoint."""
        answer = self.journal.ledger.answers.get(str(command))
        return (
            None if answer is None else CommandOutcome(applied=answer.applied, reason=answer.reason)
        )

    def resume(self, requested: ResumeRequest, at: datetime, *, after: int) -> CommandOutcome:
        """Apply or refuse a request; a repeated command gets the first answer.

        `after` is the last micro-batch that may already be written: a pause by hand takes effect
        after it.
        """
        if (requested.how is ResumeHow.AT) != (requested.target is not None):
            raise InvalidValue(
                "target", requested.target, "a position, with AT and with nothing else"
            )
        if (
            requested.command is not None
            and (before := self.answered(requested.command)) is not None
        ):
            return before
        self.journal.check_owned()
        task = self.journal.ledger.task(requested.key)
        refusal = _refusal(task, requested)
        if refusal is None:
            try:
                return self._accept(task, requested, at, after)
            except PositionNotHeld as exc:
                refusal = f"{task.state.id.printed} cannot go on at {requested.target}: {exc}"
            except HeldRowsMissing as exc:
                refusal = f"{task.state.id.printed} cannot go on: {exc}"
        if requested.command is not None:
            refused = CommandRefused(command=requested.command, reason=refusal)
            self._append(Kind.REFUSED, at, requested, [refused])
        return CommandOutcome(applied=False, reason=refusal)

    def _accept(
        self, task: TaskLedger, requested: ResumeRequest, at: datetime, after: int
    ) -> CommandOutcome:
        if requested.how is None:
            return self._pause(requested, at, after)
        skipped: Chunk | None = None
        letters: DeadLetters | None = None
        told: list[EventData] = []
        if (chunk := self._left_out(task, requested)) is not None:
            skipped, letters, told = self._skip(task, chunk, requested, at)
        word = _word(task, requested, chunk)
        resumed = _moved(task, requested, chunk)
        answer = (
            []
            if requested.command is None
            else [CommandApplied(command=requested.command, detail=word)]
        )
        self._append(
            Kind.RESUME, at, requested, [*told, resumed, *answer], chunk=skipped, letters=letters
        )
        if letters is not None and self.letters is not None:
            self.letters.deliver(letters)
        return CommandOutcome(applied=True, reason=word)

    def hold(self, misfit: HeldRowsMisfit, at: datetime) -> bool:
        """Pause the task whose held rows no longer fit the source; return False if it cannot be
        paused.

        An operator resumes it after these rows, or the source gets its former type and a new run
        starts.
        """
        ledger = self.journal.ledger
        task = ledger.drainable()
        if task is None or task.state.id.key is None or ledger.open_chunk is not None:
            return False
        key = task.state.id.key
        name = f"{type(misfit).__module__}.{type(misfit).__qualname__}"
        why = failure("source", Problem(exception_class=name, message=str(misfit)))
        position = self.held_store.first_position(ledger, key)
        paused = TaskPaused(task=key, position=position, failure=why)
        self._append(Kind.PAUSE, at, ResumeRequest(key=key, how=None), [paused])
        return True

    def _pause(self, requested: ResumeRequest, at: datetime, after: int) -> CommandOutcome:
        word = "paused: what comes is held"
        paused = TaskPaused(
            task=requested.key, position=None, actor=requested.actor, reason=requested.reason
        )
        answer = (
            []
            if requested.command is None
            else [CommandApplied(command=requested.command, detail=word)]
        )
        self._append(Kind.PAUSE, at, requested, [paused, *answer], after=after)
        return CommandOutcome(applied=True, reason=word)

    def _left_out(self, task: TaskLedger, requested: ResumeRequest) -> Chunk | None:
        """Return the held records that the command skips; None if there are none."""
        ledger = self.journal.ledger
        if requested.how is ResumeHow.SKIP and task.stopped_by is not None:
            return self.held_store.first_record(ledger, requested.key)
        if requested.target is None:
            return None
        chunk = self.held_store.records_before(ledger, requested.key, requested.target)
        return chunk if chunk.taken else None

    def _skip(
        self, task: TaskLedger, chunk: Chunk, requested: ResumeRequest, at: datetime
    ) -> tuple[Chunk, DeadLetters | None, list[EventData]]:
        """Remove records from the held rows; they become dead letters if those are enabled."""
        ledger, stopped_by = self.journal.ledger, task.stopped_by
        letters: DeadLetters | None = None
        told: list[EventData] = []
        if self.letters is not None:
            rows = self._with_error(self.held_store.skipped_rows(ledger, chunk), stopped_by)
            number = f"{self.journal.next_number:020d}-{self.event_factory.run.epoch}"
            said = DeadLetterContext(
                name=f"{ledger.checkpoint}-{number}",
                at=at,
                reason=requested.reason,
                actor=requested.actor,
                condition=_condition(stopped_by, requested),
            )
            letters, lettered = self.letters.put(rows, (), said)
            told.extend(lettered)
        told.append(RecordsHeld(task=requested.key, held=task.held - chunk.taken))
        return chunk, letters, told

    def _with_error(self, rows: DataFrame, blame: StoppingRecord | None) -> DataFrame:
        """Add the failure that paused the task to its record only."""
        if blame is None:
            no_error = F.lit(None).cast(ERROR_TYPE).alias(ERROR)
            return rows.select(ROW, TASK, POSITION, F.lit(None).cast("int").alias(FATE), no_error)
        failure = blame.failure
        stages = [stage_of(self.pipeline, n) for n in range(len(self.pipeline.steps) + 2)]
        failed = F.col(POSITION).eqNullSafe(F.lit(blame.position))
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
            F.lit(None).cast("long").alias("took_ms"),
        )
        return rows.select(
            ROW,
            TASK,
            POSITION,
            F.when(failed, F.lit(number).cast("int")).alias(FATE),
            F.when(failed, error.cast(ERROR_TYPE)).alias(ERROR),
        )

    def _append(
        self,
        kind: Kind,
        at: datetime,
        requested: ResumeRequest,
        told: list[EventData],
        *,
        chunk: Chunk | None = None,
        letters: DeadLetters | None = None,
        after: int = NO_BATCH,
    ) -> None:
        events = tuple(
            self.event_factory.event(each, at, caused_by=requested.command) for each in told
        )
        entry = Entry(
            kind=kind,
            at=at,
            epoch=self.event_factory.run.epoch,
            events=events,
            after=after,
            chunk=chunk,
            dead_letters=letters,
        )
        self.journal.append(entry)


def _word(task: TaskLedger, requested: ResumeRequest, left_out: Chunk | None) -> str:
    """Return a description of what was done."""
    if requested.target is not None:
        count = 0 if left_out is None else left_out.taken
        return f"resumed at position {requested.target}, {count} records left out"
    done = "restarted" if requested.how is ResumeHow.RESTART else "resumed"
    return f"{done} {'past' if left_out else 'from'} position {task.state.position}"


def _condition(blame: StoppingRecord | None, requested: ResumeRequest) -> str | None:
    """Return the error condition of the skipped records if only the failed record is skipped."""
    return None if blame is None or requested.target is not None else blame.failure.condition


def _moved(
    task: TaskLedger, requested: ResumeRequest, left_out: Chunk | None
) -> TaskResumed | TaskRestarted:
    position = task.state.position
    if requested.how is ResumeHow.RESTART:
        return TaskRestarted(
            task=requested.key, position=position, actor=requested.actor, reason=requested.reason
        )
    assert requested.how is not None
    at = requested.target is not None
    return TaskResumed(
        task=requested.key,
        how=requested.how,
        position=requested.target if at else position,
        actor=requested.actor,
        reason=requested.reason,
        skipped=left_out.taken if at and left_out is not None else 0,
    )


def _refusal(task: TaskLedger, requested: ResumeRequest) -> str | None:
    """Return why the state forbids the command, or None."""
    state = task.state
    if requested.how is None:
        return pause_refusal(state)
    if requested.how is ResumeHow.RESTART:
        forbidden = restart_refusal(state)
        if forbidden is not None:
            return forbidden
    elif state.status is not TaskStatus.PAUSED:
        return f"only a PAUSED task can resume; {state.id.printed} is {state.status}"
    if requested.position is not None and requested.position != state.position:
        return f"{state.id.printed} is held at position {state.position}, not {requested.position}"
    behind = requested.target is not None and state.position is not None
    if behind and (requested.target or 0) < (state.position or 0):
        where = f"{state.id.printed} is held at position {state.position}"
        return f"{where}; {requested.target} is before it"
    if requested.how is ResumeHow.SKIP and task.stopped_by is None:
        return f"{state.id.printed} was not paused by a failed record; there is none to skip"
    return None
