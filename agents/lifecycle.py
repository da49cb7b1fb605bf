"""The instance: one driver process, whose state moves by its events and by nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import get_args
from uuid import UUID

from controlplane.domain.events import Event, EventData, InstanceEvent
from controlplane.domain.evolve import At, evolve_instance
from controlplane.domain.ids import uuid7
from controlplane.domain.states import InstanceState, InstanceStatus

Tell = Callable[[UUID, Sequence[Event]], None]

_INSTANCE = get_args(InstanceEvent)


class Ending(StrEnum):
    """Why an agent's work is over; what `await_termination` answers."""

    #: `stop()`, the end of the `with` block, or a signal.
    STOPPED = "STOPPED"
    #: An operator shut the application down, and it is latched: do not start again by yourself.
    SHUT_DOWN = "SHUT_DOWN"
    #: A failure ended a thread and with it the instance; `Agent.exception` has it.
    FAILED = "FAILED"
    #: No pipeline is left: each query ended by itself, or by SHUTDOWN_THREAD, or a newer run took
    #: its checkpoint over.
    FINISHED = "FINISHED"


class Instance:
    """The instance's state, and its voice: what it says goes to `tell` under a new batch id."""

    def __init__(
        self, application: str, id: UUID, *, tell: Tell, now: Callable[[], datetime]
    ) -> None:
        self.id = id
        self.state = InstanceState(application=application, id=id)
        self._tell = tell
        self._now = now
        self._lock = threading.Lock()

    @property
    def status(self) -> InstanceStatus:
        """The state's name."""
        return self.state.status

    def say(self, *data: EventData, caused_by: UUID | None = None) -> None:
        """Tell what happened, in one batch, and move the state by it; from any thread."""
        now = self._now()
        with self._lock:
            for each in data:
                if isinstance(each, _INSTANCE):
                    at = At(sequence=self.state.sequence + 1, occurred_at=now, instance=self.id)
                    self.state = evolve_instance(self.state, each, at)
            events = [
                Event(occurred_at=now, instance=self.id, caused_by=caused_by, data=each)
                for each in data
            ]
            self._tell(uuid7(now), events)
