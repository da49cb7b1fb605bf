"""The commands that end the instance; they are answered when it has ended."""

from __future__ import annotations

import threading
from typing import Protocol
from uuid import UUID

from arrester.agents.runtime.instance import Ending, Instance
from arrester.agents.runtime.thread_registry import ThreadRegistry
from arrester.domain.events import (
    Body,
    CommandApplied,
    CommandIssued,
    InstanceStopped,
)


class EndInstance(Protocol):
    """Start to end the instance; a later call changes nothing."""

    def __call__(self, ending: Ending, reason: str, *, error: bool, caused_by: UUID) -> None: ...


class ShutdownCommands:
    """Receive the commands of operators, and failures elsewhere, that end the instance."""

    def __init__(self, instance: Instance, registry: ThreadRegistry, *, end: EndInstance) -> None:
        self._instance = instance
        self._registry = registry
        self._end = end
        self._received: list[CommandIssued] = []
        self._lock = threading.Lock()

    def receive(self, command: CommandIssued) -> None:
        """Start to end the instance; a forced command speeds up an end that has begun."""
        with self._lock:
            self._received.append(command)
        if command.force:
            for thread in self._registry.stoppable():
                thread.force_stop()
        reason = f"shut down by {command.actor}: {command.reason}"
        self._end(Ending.SHUT_DOWN, reason, error=command.error, caused_by=command.command)

    def report_end(
        self,
        stopped: InstanceStopped,
        caused_by: UUID | None,
        *,
        graceful: bool,
        body: Body | None = None,
    ) -> None:
        """Report the end, with its body, and answer the commands that requested it."""
        with self._lock:
            forced = any(command.force for command in self._received)
            detail = "stopped by force"
            if graceful:
                detail = "stopped"
            elif not forced:
                detail = "stopped by force: the shutdown timeout was over"
            answers = [
                CommandApplied(command=each.command, detail=detail) for each in self._received
            ]
            self._instance.emit(stopped, *answers, caused_by=caused_by, body=body)
