"""Which moves between states an agent may make: done, refused (nothing happens), or a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from arrester.controlplane.domain.state.states import InstanceStatus, ThreadStatus


class Move(StrEnum):
    """What comes of asking for a state."""

    DONE = "DONE"
    #: Somebody was first; nothing changes, and nothing is wrong.
    REFUSED = "REFUSED"
    #: Nobody may ask for this; the caller is mistaken.
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

#: What comes too late rather than wrong. An instance that is ending goes where it is going.
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
    """Return what comes of asking an instance to be `to` (KIP-671's states)."""
    if to in _INSTANCE[state]:
        return Move.DONE
    return Move.REFUSED if to in _LATE.get(state, ()) else Move.ILLEGAL


def move_thread(state: ThreadStatus, to: ThreadStatus) -> Move:
    """Return what comes of asking a run to be `to`: DEAD is for ever, a new run has a new epoch."""
    return Move.REFUSED if state is ThreadStatus.DEAD else Move.DONE


def may_start_thread(state: InstanceStatus) -> bool:
    """Whether an instance takes a new thread: only while it is RUNNING."""
    return state is InstanceStatus.RUNNING
