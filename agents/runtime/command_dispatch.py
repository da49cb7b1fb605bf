"""Dispatch fetched commands: each is applied or refused once, and answered."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from arrester.agents.journal.journal import Superseded
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.command_log import log_answer, log_fetched, trace_answer
from arrester.agents.runtime.instance import Instance
from arrester.agents.runtime.thread_protocol import (
    PipelineCommand,
    PolicyCommand,
    RecordTestAnswer,
    RedriveCommand,
    TaskCommand,
    Thread,
    ThreadCommand,
)
from arrester.domain.commands.kinds import KINDS, AppliedBy, Subject
from arrester.domain.events import (
    CommandApplied,
    CommandDelivered,
    CommandEvent,
    CommandIssued,
    CommandKind,
    CommandRefused,
)
from arrester.domain.python_versions import UTC

log = logging.getLogger("arrester.commands")

EXPIRED = "expired before it was fetched"
EXPIRED_HERE = "expired while it waited for its turn"
#: The most commands kept for tasks that no thread here runs; others are for other instances.
MAX_UNCLAIMED = 1000
#: Subjects in one thread, which may be in another instance by now.
_OF_ONE_THREAD = (Subject.TASK, Subject.DEAD_LETTERS)
#: Subjects in all threads of a pipeline, in the instances that the command names.
_OF_PIPELINES = (Subject.STAGE, Subject.PIPELINE)


@dataclass(frozen=True, slots=True)
class _FetchedCommand:
    command: CommandIssued
    #: How far the server's clock is ahead of this host's.
    ahead: timedelta
    #: Whether the command had expired when it came.
    expired: bool


_Queue = queue.SimpleQueue[_FetchedCommand | None]


class CommandDispatcher:
    """Receive commands from the poller and apply those for tasks in order, pipeline by pipeline.

    A command for a task may wait for the end of its micro-batch. A shutdown, or a command for
    another pipeline, must not wait for that: each pipeline that receives a command has a thread for
    its commands.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        threads: Callable[[], Sequence[Thread]],
        shut_down: Callable[[CommandIssued], None],
        restart: Callable[[str, str, Callable[[CommandAnswer], None]], None],
    ) -> None:
        self._instance = instance
        self._threads = threads
        self._shut_down = shut_down
        self._restart = restart
        #: By pipeline and checkpoint.
        self._queues: dict[tuple[str | None, str | None], _Queue] = {}
        #: The number of restarts of a pipeline that are queued or being applied.
        self._restarts: Counter[str | None] = Counter()
        self._lock = threading.Lock()
        self._delivered: set[UUID] = set()
        self._unclaimed: dict[UUID, _FetchedCommand] = {}
        #: Commands that failed through a fault of the agent; they are answered as well.
        self.internal_errors = 0

    def stop(self) -> None:
        """End after the commands that are being applied, without waiting for them."""
        with self._lock:
            for commands in self._queues.values():
                commands.put(None)

    def receive(self, command: CommandIssued, ahead: timedelta) -> None:
        """Accept a command that may be for this instance, and may have come before."""
        fetched = _FetchedCommand(command, ahead, expired=_is_expired(command, ahead))
        with self._lock:
            if command.command in self._delivered:
                return
            if not self._is_for_this_instance(command):
                self._keep_unclaimed(fetched)
                return
            self._delivered.add(command.command)
        log_fetched(self._instance.application, command)
        self._answer(command, CommandDelivered(command=command.command))
        if _is_for(command, *_OF_ONE_THREAD, *_OF_PIPELINES):
            self._enqueue(fetched)
        elif fetched.expired:
            self._refuse(command, EXPIRED)
        elif KINDS[command.kind].is_shutdown:
            self._shut_down(command)
        else:
            self._refuse(command, f"{command.kind} is not for an instance")

    def retry_unclaimed(self) -> None:
        """Dispatch commands that no thread here could claim before: a new thread may run their
        task."""
        with self._lock:
            unclaimed, self._unclaimed = self._unclaimed, {}
        for fetched in unclaimed.values():
            self.receive(fetched.command, fetched.ahead)

    def _is_for_this_instance(self, command: CommandIssued) -> bool:
        if self._instance.id in command.instances:
            return True
        # A policy is for the instances that the command names: it waits for their answers.
        return _is_for(command, *_OF_ONE_THREAD) and bool(self._threads_for(command))

    def _keep_unclaimed(self, fetched: _FetchedCommand) -> None:
        if not _is_for(fetched.command, *_OF_ONE_THREAD):
            return
        if len(self._unclaimed) >= MAX_UNCLAIMED:
            # An expired one is kept below the limit: an earlier instance may have applied it.
            self._unclaimed = {
                id: unclaimed
                for id, unclaimed in self._unclaimed.items()
                if not _is_expired(unclaimed.command, unclaimed.ahead)
            }
        if len(self._unclaimed) < MAX_UNCLAIMED:
            self._unclaimed[fetched.command.command] = fetched

    def _enqueue(self, fetched: _FetchedCommand) -> None:
        """Queue the command for its run, after a restart of its pipeline; if nothing runs, apply it
        at once."""
        command = fetched.command
        with self._lock:
            if command.kind is CommandKind.RESTART_PIPELINE:
                self._restarts[command.pipeline] += 1
            is_restarting = self._restarts[command.pipeline] > 0
            if is_restarting or self._threads_for(command):
                checkpoint = None if is_restarting else command.checkpoint
                self._queue(command.pipeline, checkpoint).put(fetched)
                return
        self._apply_to_all(fetched)

    def _queue(self, pipeline: str | None, checkpoint: str | None) -> _Queue:
        """Return the queue of a run, with its thread. Call it under the lock."""
        commands = self._queues.get((pipeline, checkpoint))
        if commands is None:
            commands = self._queues[pipeline, checkpoint] = queue.SimpleQueue()
            threading.Thread(
                target=self._run,
                args=(commands,),
                name=f"arrester-commands-{pipeline}",
                daemon=True,
            ).start()
        return commands

    def _run(self, commands: _Queue) -> None:
        while (fetched := commands.get()) is not None:
            try:
                self._apply_to_all(fetched)
            except Superseded:
                log.info("command %s: the newer run answers it", fetched.command.kind)
            except Exception as exc:  # must neither end the thread silently nor reach a pipeline
                self._fail(fetched.command, exc)
            if fetched.command.kind is CommandKind.RESTART_PIPELINE:
                with self._lock:
                    self._restarts[fetched.command.pipeline] -= 1

    def _apply_to_all(self, fetched: _FetchedCommand) -> None:
        """Apply the command: a task is in one thread, a pipeline may run in several."""
        if fetched.command.kind is CommandKind.RESTART_PIPELINE:
            self._restart_pipeline(fetched)
            return
        with self._lock:
            threads = self._threads_for(fetched.command)
            if not threads and self._restarts[fetched.command.pipeline]:
                # Between the two runs of a restart: the next one applies it.
                self._queue(fetched.command.pipeline, None).put(fetched)
                return
        if not threads:
            self._apply(fetched, None)
        for thread in threads:
            self._apply(fetched, thread)

    def _apply(self, fetched: _FetchedCommand, thread: Thread | None) -> None:
        command = fetched.command
        earlier_answer = None if thread is None else thread.answer_to(command.command)
        if earlier_answer is not None and earlier_answer.applied:
            # An earlier instance applied it and answered in its own name; this is our answer.
            detail = earlier_answer.reason
            self._answer(command, CommandApplied(command=command.command, detail=detail))
        elif earlier_answer is not None:
            self._refuse(command, earlier_answer.reason)
        elif _is_expired(command, fetched.ahead):
            self._refuse(command, EXPIRED if fetched.expired else EXPIRED_HERE)
        elif thread is None:
            run = f"pipeline {command.pipeline}"
            if command.checkpoint is not None:
                run = f"{run} at checkpoint {command.checkpoint}"
            self._refuse(command, f"no thread of this instance runs {run}")
        else:
            began = datetime.now(UTC)
            answer = thread.apply(_for_thread(command))
            self._trace(command, answer, began)
            act = KINDS[command.kind].label.lower()
            log_answer(act, command, answer, pipeline=command.pipeline, task=command.task)
            # A test is not recorded in the checkpoint, nor the refusal of a thread that is ending.
            if thread.answer_to(command.command) is None:
                self._answer_unrecorded(command, answer)

    def _restart_pipeline(self, fetched: _FetchedCommand) -> None:
        command = fetched.command
        if _is_expired(command, fetched.ahead):
            self._refuse(command, EXPIRED if fetched.expired else EXPIRED_HERE)
        else:
            now = datetime.now(UTC)
            reason = f"restarted by {command.actor}: {command.reason}"
            self._restart(command.pipeline or "", reason, partial(self._answer_with, command, now))

    def _answer_with(self, command: CommandIssued, began: datetime, answer: CommandAnswer) -> None:
        self._trace(command, answer, began)
        log_answer(KINDS[command.kind].label.lower(), command, answer, pipeline=command.pipeline)
        self._answer_unrecorded(command, answer)

    def _answer_unrecorded(self, command: CommandIssued, answer: CommandAnswer) -> None:
        if not answer.applied:
            self._refuse(command, answer.reason)
            return
        test = answer.test if isinstance(answer, RecordTestAnswer) else None
        applied = CommandApplied(command=command.command, detail=answer.reason, test=test)
        self._answer(command, applied)

    def _fail(self, command: CommandIssued, exc: Exception) -> None:
        with self._lock:
            self.internal_errors += 1
        log.error("command %s could not be applied", command.kind, exc_info=exc)
        self._refuse(command, f"it failed here: {type(exc).__name__}: {exc}")

    def _threads_for(self, command: CommandIssued) -> list[Thread]:
        any_checkpoint = KINDS[command.kind].subject in _OF_PIPELINES
        return [
            thread
            for thread in self._threads()
            if thread.pipeline_name == command.pipeline
            and (any_checkpoint or thread.checkpoint_id == command.checkpoint)
        ]

    def _trace(self, command: CommandIssued, answer: CommandAnswer, began: datetime) -> None:
        application, instance = self._instance.application, self._instance.id
        trace_answer(application, command, answer, instance=instance, began=began)

    def _refuse(self, command: CommandIssued, reason: str) -> None:
        self._answer(command, CommandRefused(command=command.command, reason=reason))

    def _answer(self, command: CommandIssued, data: CommandEvent) -> None:
        self._instance.emit(data, caused_by=command.command)


def _is_for(command: CommandIssued, *subjects: Subject) -> bool:
    """Whether agents apply the command, and it is about one of these subjects."""
    row = KINDS[command.kind]
    return row.applied_by is AppliedBy.AGENT and row.subject in subjects


def _is_expired(command: CommandIssued, ahead: timedelta) -> bool:
    return datetime.now(UTC) + ahead >= command.expires_at


def _for_thread(command: CommandIssued) -> ThreadCommand:
    match command.kind:
        case CommandKind.SET_POLICY:
            return PolicyCommand(
                command.stage or "",
                command.answer,
                command=command.command,
                actor=command.actor,
                reason=command.reason,
            )
        case CommandKind.PAUSE_PIPELINE | CommandKind.RESUME_PIPELINE:
            return PipelineCommand(
                pauses=command.kind is CommandKind.PAUSE_PIPELINE,
                until=command.until,
                command=command.command,
                actor=command.actor,
                reason=command.reason,
            )
        case CommandKind.REDRIVE_RECORDS | CommandKind.TEST_DEAD_LETTER:
            return RedriveCommand(
                dead_letters=command.dead_letters,
                redrive=command.part_of,
                is_test=command.kind is CommandKind.TEST_DEAD_LETTER,
                command=command.command,
                actor=command.actor,
                reason=command.reason,
            )
        case _:
            return _task_command(command)


def _task_command(command: CommandIssued) -> TaskCommand:
    how = KINDS[command.kind].how
    assert how is not None, f"{command.kind} is not for a task"
    return TaskCommand(
        command.task,
        how=how,
        position=command.position,
        target=command.target,
        patch=command.patch,
        command=command.command,
        actor=command.actor,
        reason=command.reason,
    )
