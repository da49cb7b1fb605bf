"""Dispatch fetched commands: each is applied or refused once, and answered."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from arrester.agents.runtime.instance import Instance
from arrester.agents.runtime.protocols import Controls, Outcome
from arrester.controlplane.domain.events import (
    CommandApplied,
    CommandDelivered,
    CommandEvent,
    CommandIssued,
    CommandKind,
    CommandRefused,
    ResumeHow,
)

log = logging.getLogger("arrester.commands")

EXPIRED = "expired before it was fetched"
EXPIRED_HERE = "expired while it waited for its turn"
#: Commands for tasks that no thread here runs yet; any beyond this number are for other instances.
UNCLAIMED = 1000
#: None: pause the task.
_HOW: dict[CommandKind, ResumeHow | None] = {
    CommandKind.RESUME_TASK: ResumeHow.RETRY,
    CommandKind.SKIP_RECORD: ResumeHow.SKIP,
    CommandKind.RESUME_AT: ResumeHow.AT,
    CommandKind.PAUSE_TASK: None,
    CommandKind.RESTART_TASK: ResumeHow.RESTART,
}
#: Commands that wait for the end of a micro-batch.
_OF_PIPELINES = (*_HOW, CommandKind.SET_POLICY)


@dataclass(frozen=True, slots=True)
class _Fetched:
    command: CommandIssued
    ahead: timedelta
    #: Whether the command had expired when it came.
    late: bool


#: A pipeline and a checkpoint, on which one thread runs at a time.
_Place = tuple[str | None, str | None]
_Turns = queue.SimpleQueue[_Fetched | None]


class Commands:
    """Receive commands from the poller and apply those for tasks in order, pipeline by pipeline.

    A command for a task may wait for the end of its micro-batch. A shutdown, or a command for
    another pipeline, must not wait for that: each pipeline that receives a command has a thread for
    its commands.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        threads: Callable[[], Sequence[Controls]],
        shut_down: Callable[[CommandIssued], None],
        now: Callable[[], datetime],
    ) -> None:
        self._instance = instance
        self._threads = threads
        self._shut_down = shut_down
        self._now = now
        self._turns: dict[_Place, _Turns] = {}
        self._lock = threading.Lock()
        self._delivered: set[UUID] = set()
        self._unclaimed: dict[UUID, _Fetched] = {}
        #: Commands that failed through a fault of the agent; they are answered as well.
        self.guest_errors = 0

    def stop(self) -> None:
        """End after the commands that are being applied, without waiting for them."""
        with self._lock:
            for turns in self._turns.values():
                turns.put(None)

    def take(self, command: CommandIssued, ahead: timedelta) -> None:
        """Accept a command that may be for this instance, and may have come before."""
        with self._lock:
            if command.command in self._delivered:
                return
            if not self._is_for_us(command):
                self._keep_unclaimed(command, ahead)
                return
            self._delivered.add(command.command)
        self._say(command, CommandDelivered(command=command.command))
        fetched = _Fetched(command, ahead, late=self._is_over(command, ahead))
        if command.kind in _OF_PIPELINES:
            self._line_up(fetched)
        elif fetched.late:
            self._refuse(command, EXPIRED)
        elif command.kind is CommandKind.SHUT_DOWN_APPLICATION:
            self._shut_down(command)
        else:
            self._refuse(command, f"{command.kind} is not for an instance")

    def look_again(self) -> None:
        """Dispatch commands that no thread here could claim before: a new thread may run their
        task."""
        with self._lock:
            unclaimed, self._unclaimed = self._unclaimed, {}
        for fetched in unclaimed.values():
            self.take(fetched.command, fetched.ahead)

    def _is_for_us(self, command: CommandIssued) -> bool:
        if self._instance.id in command.instances:
            return True
        # A policy is for the instances that the command names: it waits for their answers.
        return command.kind in _HOW and bool(self._threads_for(command))

    def _keep_unclaimed(self, command: CommandIssued, ahead: timedelta) -> None:
        self._unclaimed = {
            id: fetched
            for id, fetched in self._unclaimed.items()
            if not self._is_over(fetched.command, fetched.ahead)
        }
        if command.kind in _HOW and len(self._unclaimed) < UNCLAIMED:
            self._unclaimed[command.command] = _Fetched(command, ahead, late=False)

    def _is_over(self, command: CommandIssued, ahead: timedelta) -> bool:
        return self._now() + ahead >= command.expires_at

    def _line_up(self, fetched: _Fetched) -> None:
        """Queue the command for its pipeline; if nothing runs, apply it at once."""
        if not self._threads_for(fetched.command):
            self._apply_all(fetched)
            return
        place = (fetched.command.pipeline, fetched.command.checkpoint)
        with self._lock:
            turns = self._turns.get(place)
            if turns is None:
                turns = self._turns[place] = queue.SimpleQueue()
                threading.Thread(
                    target=self._run,
                    args=(turns,),
                    name=f"arrester-commands-{place[0]}",
                    daemon=True,
                ).start()
        turns.put(fetched)

    def _run(self, turns: _Turns) -> None:
        while (fetched := turns.get()) is not None:
            try:
                self._apply_all(fetched)
            except Exception as exc:  # the guest must not end silently, nor break its host
                self._not_applied(fetched.command, exc)

    def _apply_all(self, fetched: _Fetched) -> None:
        """Apply the command: a task is in one thread, a pipeline may run in several."""
        threads = self._threads_for(fetched.command)
        if not threads:
            self._apply(fetched, None)
        for thread in threads:
            self._apply(fetched, thread)

    def _apply(self, fetched: _Fetched, thread: Controls | None) -> None:
        command = fetched.command
        known = None if thread is None else thread.is_applied(command.command)
        if known is not None and known.applied:
            # An earlier instance applied it and answered in its own name; this is our answer.
            self._say(command, CommandApplied(command=command.command, detail=known.reason))
        elif known is not None:
            self._refuse(command, known.reason)
        elif self._is_over(command, fetched.ahead):
            self._refuse(command, EXPIRED if fetched.late else EXPIRED_HERE)
        elif thread is None:
            where = f"pipeline {command.pipeline}"
            if command.checkpoint is not None:
                where = f"{where} at checkpoint {command.checkpoint}"
            self._refuse(command, f"no thread of this instance runs {where}")
        else:
            outcome = _done(command, thread)
            log.info("%s by %s: %s", command.kind, command.actor, outcome.reason)
            # A thread that is ending refuses without recording it in its checkpoint.
            if not outcome.applied and thread.is_applied(command.command) is None:
                self._refuse(command, outcome.reason)

    def _not_applied(self, command: CommandIssued, exc: Exception) -> None:
        # Imported here because it needs PySpark, which importing the agent must not.
        from arrester.agents.journal.journal import Superseded

        if isinstance(exc, Superseded):
            log.info("command %s: the newer run of this pipeline answers it", command.kind)
            return
        with self._lock:
            self.guest_errors += 1
        log.error("command %s could not be applied", command.kind, exc_info=exc)
        self._refuse(command, f"it failed here: {type(exc).__name__}: {exc}")

    def _threads_for(self, command: CommandIssued) -> list[Controls]:
        anywhere = command.kind is CommandKind.SET_POLICY
        return [
            thread
            for thread in self._threads()
            if thread.pipeline_name == command.pipeline
            and (anywhere or thread.checkpoint_id == command.checkpoint)
        ]

    def _refuse(self, command: CommandIssued, reason: str) -> None:
        self._say(command, CommandRefused(command=command.command, reason=reason))

    def _say(self, command: CommandIssued, data: CommandEvent) -> None:
        self._instance.say(data, caused_by=command.command)


def _done(command: CommandIssued, thread: Controls) -> Outcome:
    """Apply the command in a thread, which records the answer in its checkpoint."""
    if command.kind is CommandKind.SET_POLICY:
        return thread.set_policy(
            command.stage or "",
            command.answer,
            command=command.command,
            actor=command.actor,
            reason=command.reason,
        )
    return thread.resume(
        command.task,
        how=_HOW[command.kind],
        position=command.position,
        target=command.target,
        command=command.command,
        actor=command.actor,
        reason=command.reason,
    )
