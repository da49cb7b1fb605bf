"""What the server does by itself about something that an agent said."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import uuid5

from arrester.controlplane.domain.commands.decide import COMMAND_EXPIRY, is_listening, shut_down
from arrester.controlplane.domain.events import (
    ApplicationShutdownRequested,
    CommandIssued,
    CommandKind,
    Event,
    StoredEvent,
)
from arrester.controlplane.domain.state.states import ApplicationStatus, InstanceState
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.domain.wire.failure_columns import Stored

#: A request that took longer to come may have been overtaken by people: nothing follows from it
#: once an instance has started since. A shutdown latches, and would shut that one out.
FRESH = timedelta(minutes=1)


def follow(
    stored: StoredEvent, state: StreamState, *, now: datetime, patience: timedelta = COMMAND_EXPIRY
) -> list[Event]:
    """Return the events that follow from one that an agent said; none from most.

    An instance that asks to shut the application down (KIP-671) becomes a command for all others,
    whose id is the request's own: following it twice changes nothing. `state` is after the event.
    """
    event = stored.event
    if not isinstance(event.data, ApplicationShutdownRequested):
        return []
    if state.application.status is ApplicationStatus.LATCHED:
        return []
    late = stored.received_at - event.occurred_at > FRESH
    others = [each for each in state.instances.values() if _is_other(each, event)]
    if late and not all(_was_there(each, event.occurred_at) for each in others):
        # Somebody has started the application again since: all of it goes on, and it stays open.
        return []
    issued = CommandIssued(
        command=uuid5(stored.batch, str(stored.sequence)),
        kind=CommandKind.SHUT_DOWN_APPLICATION,
        actor=f"instance {event.instance}",
        reason=event.data.reason,
        instances=tuple(sorted((each.id for each in others), key=str)),
        error=True,
        expires_at=now + patience,
    )
    return [
        Event(
            occurred_at=now,
            data=data,
            caused_by=None if isinstance(data, CommandIssued) else issued.command,
        )
        for data in (issued, *shut_down(issued, state))
    ]


def _is_other(instance: InstanceState, event: Event) -> bool:
    return is_listening(instance) and instance.id != event.instance


def _was_there(instance: InstanceState, moment: datetime) -> bool:
    return instance.started_at is None or instance.started_at <= moment


def asks(told: Iterable[Stored]) -> list[StoredEvent]:
    """Return those events that something may follow from."""
    events = [each for each in told if isinstance(each, StoredEvent)]
    return [each for each in events if isinstance(each.event.data, ApplicationShutdownRequested)]
