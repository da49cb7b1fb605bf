"""The instance: one driver process, whose state changes only by its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import get_args
from uuid import UUID

from arrester.domain.errors import ArresterError
from arrester.domain.events import (
    Body,
    Event,
    EventData,
    InstanceEvent,
    InstanceStarted,
    InstanceStopped,
    InstanceStopping,
    Run,
)
from arrester.domain.identity.uuids import uuid7
from arrester.domain.python_versions import UTC, StrEnum
from arrester.domain.state.evolve import At, evolve_instance
from arrester.domain.state.states import InstanceState, InstanceStatus
from arrester.domain.state.transitions import Transition, instance_transition

_log = logging.getLogger("arrester.agent")

Put = Callable[[UUID, Sequence[Event]], None]

_INSTANCE = get_args(InstanceEvent)


class Ending(StrEnum):
    """Why an agent has ended; the result of `await_termination`."""

    #: `stop()`, the end of the `with` block, or a signal.
    STOPPED = "STOPPED"
    #: An operator, or a failure of another instance, shut the application down, and it is latched;
    #: or an operator shut this instance down. Do not restart automatically.
    SHUT_DOWN = "SHUT_DOWN"
    #: A failure ended a pipeline, and by default the instance; see `Agent.exception`. By default
    #: `await_termination` raises it instead.
    FAILED = "FAILED"
    #: No pipeline has anything to do, and a newer run took over the checkpoint of at least one.
    SUPERSEDED = "SUPERSEDED"
    #: No pipeline has anything to do: each query finished, or a static source is done and the rest
    #: is held.
    FINISHED = "FINISHED"
    #: As FINISHED, but no source row was read: earlier runs at the checkpoints had finished the
    #: passes over all static sources. New input needs a checkpoint per run.
    ALREADY_FINISHED = "ALREADY_FINISHED"


class Instance:
    """The instance's state; its events go to `put` under a new batch id."""

    def __init__(self, application: str, id: UUID, *, put: Put) -> None:
        self.id = id
        self.application = application
        self.state = InstanceState(application=application, id=id)
        self._put = put
        self._lock = threading.Lock()

    @property
    def status(self) -> InstanceStatus:
        """The state's name."""
        return self.state.status

    def emit(
        self,
        *data: EventData,
        run: Run | None = None,
        caused_by: UUID | None = None,
        body: Body | None = None,
    ) -> None:
        """Emit events as one batch and change the state by them; callable from any thread.

        `body` is that of the first event.

        An event that comes too late to change the state is dropped. A transition that is never
        allowed raises IllegalMove.
        """
        now = datetime.now(UTC)
        with self._lock:
            events = [
                Event(
                    occurred_at=now,
                    instance=self.id,
                    run=run,
                    caused_by=caused_by,
                    data=each,
                    body=body if each is data[0] else None,
                )
                for each in data
                if self._accepts(each, now)
            ]
            if events:
                self._put(uuid7(now), events)

    def _accepts(self, data: EventData, now: datetime) -> bool:
        """Change the state by an event of the instance; return whether the event is valid now."""
        if not isinstance(data, _INSTANCE):
            return True
        at = At(sequence=self.state.sequence + 1, occurred_at=now, instance=self.id)
        moved = evolve_instance(self.state, data, at)
        match instance_transition(self.status, _target(data)):
            case Transition.DONE:
                self.state = moved
                return True
            case Transition.REFUSED:
                _log.debug("%s comes too late: the instance is %s", data, self.status)
                return False
            case Transition.ILLEGAL:
                raise IllegalMove(f"{self.status} cannot become {_target(data)}")


class IllegalMove(ArresterError):
    """A state transition that is not allowed: a bug in the agent; please report it."""


def _target(data: EventData) -> InstanceStatus:
    """Return the state that an event of an agent leads to."""
    match data:
        case InstanceStarted():
            return InstanceStatus.RUNNING
        case InstanceStopping():
            return InstanceStatus.PENDING_ERROR if data.error else InstanceStatus.PENDING_SHUTDOWN
        case InstanceStopped():
            return InstanceStatus.ERROR if data.error else InstanceStatus.NOT_RUNNING
        case _:
            raise IllegalMove(f"an agent does not emit {type(data).__name__}")
