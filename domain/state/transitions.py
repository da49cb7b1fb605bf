"""The allowed state transitions of an agent: done, refused (nothing happens), or illegal."""

from __future__ import annotations

from collections.abc import Mapping

from arrester.domain.python_versions import StrEnum
from arrester.domain.state.states import InstanceStatus, ThreadStatus


class Transition(StrEnum):
    """The result of a requested transition."""

    DONE = "DONE"
    #: Another transition was first; nothing changes, and nothing is wrong.
    REFUSED = "REFUSED"
    #: Never allowed: a bug of the caller.
    ILLEGAL = "ILLEGAL"


_INSTANCE: Mapping[InstanceStatus, tuple[InstanceStatus, ...]] = {
    InstanceStatus.CREATED: (InstanceStatus.RUNNING, InstanceStatus.PENDING_SHUTDOWN),
    InstanceStatus.RUNNING: (
        InstanceStatus.RUNNING,
        InstanceStatus.PENDING_SHUTDOWN,
        InstanceStatus.PENDING_ERROR,
    ),
    InstanceStatus.PENDING_SHUTDOWN: (InstanceStatus.NOT_RUNNING,),
    InstanceStatus.NOT_RUNNING: (),
    InstanceStatus.PENDING_ERROR: (InstanceStatus.ERROR,),
    InstanceStatus.ERROR: (),
}

#: Transitions that come too late rather than illegally. An ending instance keeps ending.
_LATE: Mapping[InstanceStatus, tuple[InstanceStatus, ...]] = {
    InstanceStatus.PENDING_SHUTDOWN: tuple(InstanceStatus),
    InstanceStatus.NOT_RUNNING: (InstanceStatus.PENDING_SHUTDOWN, InstanceStatus.NOT_RUNNING),
    InstanceStatus.PENDING_ERROR: tuple(InstanceStatus),
    InstanceStatus.ERROR: (
        InstanceStatus.PENDING_SHUTDOWN,
        InstanceStatus.PENDING_ERROR,
        InstanceStatus.ERROR,
    ),
}


def instance_transition(state: InstanceStatus, to: InstanceStatus) -> Transition:
    """Return the result of a transition of an instance to `to` (KIP-671's states)."""
    if to in _INSTANCE[state]:
        return Transition.DONE
    return Transition.REFUSED if to in _LATE.get(state, ()) else Transition.ILLEGAL


def thread_transition(state: ThreadStatus, to: ThreadStatus) -> Transition:
    """Return the result of a transition of a run to `to`: DEAD is final, a new run has a new
    epoch."""
    return Transition.REFUSED if state is ThreadStatus.DEAD else Transition.DONE


def may_start_thread(state: InstanceStatus) -> bool:
    """Whether an instance accepts a new thread: only while it is RUNNING."""
    return state is InstanceStatus.RUNNING
