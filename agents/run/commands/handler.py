"""Apply commands of a run: resume, restart or pause a task, override a stage's error policy."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from arrester.agents.arguments import first_line
from arrester.agents.decisions.event_factory import EventFactory
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.fingerprints import failure_at
from arrester.agents.held.journal_counts import records_left
from arrester.agents.held.next_chunks import first_position, first_record
from arrester.agents.held.records_before import PositionNotHeld, records_before
from arrester.agents.held.schema import HeldRowsMismatch, HeldRowsMissing
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Chunk, Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.journal.pipeline_pause import end_of, is_over
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.agents.run.commands.answers import (
    pipeline_event,
    policy_detail,
    resume_detail,
    resumed_event,
    task_command_refusal,
)
from arrester.agents.run.commands.dead_letters_of_skips import SkipDeadLetters
from arrester.agents.run.commands.record_mender import RecordMender
from arrester.agents.run.commands.record_tester import RecordTester
from arrester.agents.run.micro_batch.processor import Processor
from arrester.agents.runtime.thread_protocol import PipelineCommand, PolicyCommand, TaskCommand
from arrester.agents.spark.errors import Problem
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.commands.refusals.pipelines import pause_refusal
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    EventData,
    PolicyChanged,
    ResumeHow,
    TaskPaused,
)
from arrester.domain.python_versions import UTC
from arrester.domain.state.policy_overrides import retry_refusal, stage_refusal

_log = logging.getLogger("arrester.thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHandler:
    """Apply or refuse commands for one run."""

    processor: Processor
    pipeline: Pipeline
    journal: Journal
    held_store: HeldStore
    skip_dead_letters: SkipDeadLetters
    mender: RecordMender
    tester: RecordTester
    event_factory: EventFactory
    #: errors.retries.limit
    retries: int

    def apply(self, command: TaskCommand | PolicyCommand | PipelineCommand) -> CommandAnswer:
        """Apply or refuse a command; a repeated command gets the first answer."""
        earlier_answer = self.journal.ledger.answers.get(str(command.command))
        if earlier_answer is not None:
            return earlier_answer
        if isinstance(command, PolicyCommand):
            self.journal.check_owned()
            answer = self._set_policy(command, datetime.now(UTC))
            self.processor.apply_overrides()
            return answer
        if isinstance(command, PipelineCommand):
            self.journal.check_owned()
            return self._pause_pipeline(command, datetime.now(UTC))
        if command.how is not TaskAct.TEST:
            # Rows of a chunk that may be written must not be skipped as well.
            self.processor.finish_open_chunks()
        self.journal.check_owned()
        return self._apply_task_command(command, datetime.now(UTC))

    def _set_policy(self, requested: PolicyCommand, at: datetime) -> CommandAnswer:
        """Record or refuse a policy override, which is kept across runs."""
        refusal = stage_refusal(self.pipeline.name, self.pipeline.stages, requested.stage)
        refusal = refusal or retry_refusal(requested.stage, requested.answer, retries=self.retries)
        if refusal is not None:
            return self._record_refused(requested, refusal)
        changed = PolicyChanged(
            stage=requested.stage,
            answer=requested.answer,
            actor=requested.actor,
            reason=requested.reason,
        )
        detail = policy_detail(self.pipeline, requested)
        entry = Entry(kind=EntryKind.POLICY, at=at, epoch=self._epoch)
        return self._record_applied(entry, requested, [changed], detail)

    def _pause_pipeline(self, requested: PipelineCommand, at: datetime) -> CommandAnswer:
        """Pause or resume the pipeline, or refuse it."""
        current = self.journal.ledger.pause
        refusal = pause_refusal(self.pipeline.name, current, pauses=requested.pauses)
        if refusal is None and requested.until is not None and at >= requested.until:
            end = f"{requested.until:%Y-%m-%d %H:%M:%S} UTC"
            refusal = f"the pause of {self.pipeline.name} was to end at {end}, which is over"
        if refusal is not None:
            return self._record_refused(requested, refusal)
        event, detail = pipeline_event(requested, current, at)
        entry = Entry(kind=EntryKind.PIPELINE, at=at, epoch=self._epoch)
        return self._record_applied(entry, requested, [event], detail)

    def end_pause(self, at: datetime) -> None:
        """Resume the pipeline if the time of its pause is over."""
        pause = self.journal.ledger.pause
        if pause is not None and is_over(pause, at):
            self.journal.check_owned()
            entry = Entry(kind=EntryKind.PIPELINE, at=at, epoch=self._epoch)
            self._append(entry, [end_of(pause)], None)
            _log.info("pipeline %r: its pause has ended", self.pipeline.name)

    def _apply_task_command(self, requested: TaskCommand, at: datetime) -> CommandAnswer:
        """Apply or refuse a command for a task."""
        task = self.journal.ledger.task(requested.key)
        refusal = task_command_refusal(task, requested, keyed=self.pipeline.task is not None)
        if refusal is None:
            try:
                return self._accept(task, requested, at)
            except PositionNotHeld as exc:
                refusal = f"{task.state.id.printed} cannot continue at {requested.target}: {exc}"
            except HeldRowsMissing as exc:
                refusal = f"{task.state.id.printed} cannot continue: {exc}"
        return self._record_refused(requested, refusal)

    def refuse(self, command: UUID, reason: str) -> CommandAnswer:
        """Record a refusal, which is the answer to each repetition of the command."""
        refused = CommandRefused(command=command, reason=reason)
        entry = Entry(kind=EntryKind.REFUSED, at=datetime.now(UTC), epoch=self._epoch)
        self._append(entry, [refused], command)
        return CommandAnswer(applied=False, reason=reason)

    def pause_mismatch(self, mismatch: HeldRowsMismatch, at: datetime) -> bool:
        """Pause the task whose held rows no longer fit the source; return False if it cannot be
        paused.

        An operator resumes it after these rows, or the source gets its former type and a new run
        starts.
        """
        ledger = self.journal.ledger
        first = next(iter(ledger.drainable()), None)
        if first is None or first.state.id.key is None or ledger.open_chunks:
            return False
        key = first.state.id.key
        name = f"{type(mismatch).__module__}.{type(mismatch).__qualname__}"
        failure = failure_at("source", Problem(exception_class=name, message=str(mismatch)))
        position = first_position(self.held_store, ledger, key)
        paused = TaskPaused(task=key, position=position, failure=failure)
        self._append(Entry(kind=EntryKind.PAUSE, at=at, epoch=self._epoch), [paused], None)
        return True

    def _accept(self, task: TaskLedger, requested: TaskCommand, at: datetime) -> CommandAnswer:
        match requested.how:
            case TaskAct.PAUSE:
                return self._pause(requested, at)
            case TaskAct.TEST:
                return self.tester.test(task, requested.patch)
            case ResumeHow.MEND:
                return self._mend(task, requested, requested.patch or "", at)
            case ResumeHow.RETRY | ResumeHow.SKIP | ResumeHow.AT | ResumeHow.RESTART:
                return self._resume(task, requested, at)

    def _resume(self, task: TaskLedger, requested: TaskCommand, at: datetime) -> CommandAnswer:
        chunk = self._records_to_skip(task, requested)
        resumed = resumed_event(task, requested, chunk)
        detail = resume_detail(task, requested, chunk)
        if chunk is None:
            entry = Entry(kind=EntryKind.RESUME, at=at, epoch=self._epoch)
            return self._record_applied(entry, requested, [resumed], detail)
        held_rows = self.journal.ledger.held_rows([requested.key])
        held = records_left(task, chunk, held_rows[requested.key])
        entry = Entry(
            kind=EntryKind.RESUME,
            at=at,
            epoch=self._epoch,
            chunk=chunk,
            unstored=self.skip_dead_letters.of(task, chunk, requested, at),
        )
        with self.processor.meter.skipping(chunk.taken):
            return self._record_applied(entry, requested, [held, resumed], detail)

    def _pause(self, requested: TaskCommand, at: datetime) -> CommandAnswer:
        paused = TaskPaused(
            task=requested.key, position=None, actor=requested.actor, reason=requested.reason
        )
        detail = "paused: later records are held"
        # A micro-batch that may already be written is not changed.
        after = self.processor.last_begun
        entry = Entry(kind=EntryKind.PAUSE, at=at, epoch=self._epoch, after=after)
        return self._record_applied(entry, requested, [paused], detail)

    def _mend(
        self, task: TaskLedger, requested: TaskCommand, patch: str, at: datetime
    ) -> CommandAnswer:
        """Resume a task at the failed record, changed by the patch; or refuse, and nothing is
        changed."""
        try:
            saved = self.mender.save(task, patch)
        except Exception as exc:  # of Spark, which may have any: the run continues
            reason = f"the record of {task.state.id.printed} is not changed: {first_line(exc)}"
            return self._record_refused(requested, reason)
        resumed = resumed_event(task, requested, None)
        detail = f"resumed with the changed record at position {saved.mended.position}"
        entry = Entry(
            kind=EntryKind.RESUME,
            at=at,
            epoch=self._epoch,
            row_folder=saved.folder,
            order=saved.mended.entry,
            held=(saved.held,),
            mended=saved.mended,
        )
        return self._record_applied(entry, requested, [resumed], detail)

    def _records_to_skip(self, task: TaskLedger, requested: TaskCommand) -> Chunk | None:
        """Return the held records that the command skips; None if there are none."""
        ledger = self.journal.ledger
        if requested.how is ResumeHow.SKIP and task.stopped_by is not None:
            return first_record(self.held_store, ledger, requested.key)
        if requested.target is None:
            return None
        chunk = records_before(self.held_store, ledger, requested.key, requested.target)
        return chunk if chunk.taken else None

    def _record_refused(
        self, requested: TaskCommand | PolicyCommand | PipelineCommand, reason: str
    ) -> CommandAnswer:
        is_test = isinstance(requested, TaskCommand) and requested.how is TaskAct.TEST
        if requested.command is None or is_test:
            return CommandAnswer(applied=False, reason=reason)
        return self.refuse(requested.command, reason)

    def _record_applied(
        self,
        entry: Entry,
        requested: TaskCommand | PolicyCommand | PipelineCommand,
        events: list[EventData],
        detail: str,
    ) -> CommandAnswer:
        if requested.command is not None:
            events = [*events, CommandApplied(command=requested.command, detail=detail)]
        self._append(entry, events, requested.command)
        return CommandAnswer(applied=True, reason=detail)

    @property
    def _epoch(self) -> int:
        return self.event_factory.run.epoch

    def _append(self, entry: Entry, events: list[EventData], command: UUID | None) -> None:
        """Append an entry with these events, which the command has caused."""
        caused = (self.event_factory.event(each, entry.at, caused_by=command) for each in events)
        self.journal.append(replace(entry, events=tuple(caused)))
