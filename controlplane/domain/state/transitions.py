"""The allowed state transitions of an agent: done, refused (nothing happens), or illegal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from arrester.controlplane.domain.state.states import InstanceStatus, ThreadStatus


class Move(StrEnum):
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


def move_instance(state: InstanceStatus, to: InstanceStatus) -> Move:
    """Return the result of a transition of an instance to `to` (KIP-671's states)."""
    if to in _INSTANCE[state]:
        return Move.DONE
    return Move.REFUSED if to in _LATE.get(state, ()) else Move.ILLEGAL


def move_thread(state: ThreadStatus, to: ThreadStatus) -> Move:
    """Return the result of a transition of a run to `to`: DEAD is final, a new run has a new
    epoch."""
    return Move.REFUSED if state is ThreadStatus.DEAD else Move.DONE


def may_start_thread(state: InstanceStatus) -> bool:
    """Whether an instance accepts a new thread: only while it is RUNNING."""
    return state is InstanceStatus.RUNNING
