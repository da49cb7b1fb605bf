"""Reactions of the server to events of agents."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import uuid5

from arrester.controlplane.domain.commands.decide import COMMAND_EXPIRY, shut_down
from arrester.controlplane.domain.commands.recipients import receives_commands
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

#: The age up to which a request has an effect if an instance has started since. A shutdown latches,
#: and an older request would shut that instance out.
MAX_REQUEST_AGE = timedelta(minutes=1)


#: The actor of a command that an instance requested; no name of a person has a space.
_INSTANCE = "instance "


def is_instance(actor: str) -> bool:
    """Whether an instance requested what this actor did."""
    return actor.startswith(_INSTANCE)


def reactions_to(
    stored: StoredEvent, state: StreamState, *, now: datetime, expiry: timedelta = COMMAND_EXPIRY
) -> list[Event]:
    """Return the events that follow from an event of an agent; usually none.

    A shutdown of the application requested by an instance (KIP-671) becomes a command for all
    others, with the request's own id: a repetition changes nothing. `state` is after the event.
    """
    event = stored.event
    if not isinstance(event.data, ApplicationShutdownRequested):
        return []
    if state.application.status is ApplicationStatus.LATCHED:
        return []
    late = stored.received_at - event.occurred_at > MAX_REQUEST_AGE
    others = [each for each in state.instances.values() if _is_other(each, event)]
    if late and not all(_was_there(each, event.occurred_at) for each in others):
        # The application was started again since, and stays open.
        return []
    issued = CommandIssued(
        command=uuid5(stored.batch, str(stored.sequence)),
        kind=CommandKind.SHUT_DOWN_APPLICATION,
        actor=f"{_INSTANCE}{event.instance}",
        reason=event.data.reason,
        instances=tuple(sorted((each.id for each in others), key=str)),
        error=True,
        expires_at=now + expiry,
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
    return receives_commands(instance) and instance.id != event.instance


def _was_there(instance: InstanceState, moment: datetime) -> bool:
    return instance.started_at is None or instance.started_at <= moment


def needing_reaction(elements: Iterable[Stored]) -> list[StoredEvent]:
    """Return the events that may need a reaction."""
    events = [each for each in elements if isinstance(each, StoredEvent)]
    return [each for each in events if isinstance(each.event.data, ApplicationShutdownRequested)]
