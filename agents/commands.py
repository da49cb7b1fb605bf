"""From a fetched command to its answer: delivered, then applied or refused, once."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from agents.lifecycle import Instance
from agents.threads import Controls
from controlplane.domain.events import (
    CommandDelivered,
    CommandIssued,
    CommandKind,
    CommandRefused,
    ResumeHow,
)

log = logging.getLogger("arrester.commands")

EXPIRED = "expired before it was fetched"
#: Commands for tasks that no thread here runs (yet); more are other instances' for sure.
UNCLAIMED = 1000
_HOW = {
    CommandKind.RESUME_TASK: ResumeHow.RETRY,
    CommandKind.SKIP_RECORD: ResumeHow.SKIP,
}


@dataclass(frozen=True, slots=True)
class _Fetched:
    command: CommandIssued
    ahead: timedelta


class Commands:
    """Takes commands from the poller; a thread of its own applies those for tasks, in order.

    A task may have to wait for the end of its micro-batch; a shutdown must not wait behind it.
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
        self._fetched: queue.SimpleQueue[_Fetched | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._delivered: set[UUID] = set()
        self._unclaimed: dict[UUID, _Fetched] = {}
        self._thread = threading.Thread(target=self._run, name="arrester-commands", daemon=True)
        #: Commands that failed here for a reason of our own; they are answered all the same.
        self.guest_errors = 0

    def start(self) -> None:
        """Begin to apply."""
        self._thread.start()

    def stop(self) -> None:
        """End after the command that is being applied, without waiting for it."""
        self._fetched.put(None)

    def take(self, command: CommandIssued, ahead: timedelta) -> None:
        """Accept a command that may be for us, and may have been here before."""
        with self._lock:
            if command.command in self._delivered:
                return
            if not self._is_for_us(command):
                self._keep_unclaimed(command, ahead)
                return
            self._delivered.add(command.command)
        self._say(command, CommandDelivered(command=command.command))
        if self._now() + ahead >= command.expires_at:
            self._refuse(command, EXPIRED)
        elif command.kind is CommandKind.SHUT_DOWN_APPLICATION:
            self._shut_down(command)
        elif command.kind in _HOW:
            self._fetched.put(_Fetched(command, ahead))
        else:
            self._refuse(command, f"{command.kind} is not for an instance")

    def look_again(self) -> None:
        """Take what nobody here could claim before: a new thread may be what it is meant for."""
        with self._lock:
            unclaimed, self._unclaimed = self._unclaimed, {}
        for fetched in unclaimed.values():
            self.take(fetched.command, fetched.ahead)

    def _is_for_us(self, command: CommandIssued) -> bool:
        if self._instance.id in command.instances:
            return True
        return command.kind in _HOW and self._thread_for(command) is not None

    def _keep_unclaimed(self, command: CommandIssued, ahead: timedelta) -> None:
        if command.kind in _HOW and len(self._unclaimed) < UNCLAIMED:
            self._unclaimed[command.command] = _Fetched(command, ahead)

    def _run(self) -> None:
        while (fetched := self._fetched.get()) is not None:
            try:
                self._apply(fetched.command, fetched.ahead)
            except Exception as exc:  # the guest must not end silently, nor break its host
                self._not_applied(fetched.command, exc)

    def _apply(self, command: CommandIssued, ahead: timedelta) -> None:
        thread = self._thread_for(command)
        if thread is None:
            where = f"pipeline {command.pipeline} at checkpoint {command.checkpoint}"
            self._refuse(command, f"no thread of this instance runs {where}")
        elif thread.is_applied(command.command) is not None:
            log.info("%s was answered before; its answer is on its way", command.command)
        elif self._now() + ahead >= command.expires_at:
            self._refuse(command, EXPIRED)
        else:
            outcome = thread.resume(
                command.task,
                how=_HOW[command.kind],
                position=command.position,
                command=command.command,
                actor=command.actor,
                reason=command.reason,
            )
            log.info("%s by %s: %s", command.kind, command.actor, outcome.reason)
            # A thread that is about to end refuses without writing it down beside its checkpoint.
            if not outcome.applied and thread.is_applied(command.command) is None:
                self._refuse(command, outcome.reason)

    def _not_applied(self, command: CommandIssued, exc: Exception) -> None:
        # Only here: it comes with PySpark, which importing the agent alone must not need.
        from agents.journal import Superseded

        if isinstance(exc, Superseded):
            log.info("%s is for the newer run of this pipeline, which answers it", command.kind)
            return
        self.guest_errors += 1
        log.error("%s could not be applied", command.kind, exc_info=exc)
        self._refuse(command, f"it failed here: {type(exc).__name__}: {exc}")

    def _thread_for(self, command: CommandIssued) -> Controls | None:
        for thread in self._threads():
            if (thread.pipeline_name, thread.checkpoint_id) == (
                command.pipeline,
                command.checkpoint,
            ):
                return thread
        return None

    def _refuse(self, command: CommandIssued, reason: str) -> None:
        self._say(command, CommandRefused(command=command.command, reason=reason))

    def _say(self, command: CommandIssued, data: CommandDelivered | CommandRefused) -> None:
        self._instance.say(data, caused_by=command.command)
