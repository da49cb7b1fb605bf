"""Reactions of the server to events of agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import uuid5

from arrester.domain.commands.decide import COMMAND_EXPIRY, shut_down
from arrester.domain.commands.recipients import receives_commands
from arrester.domain.events import (
    ApplicationShutdownRequested,
    CommandIssued,
    CommandKind,
    Event,
    StoredEvent,
)
from arrester.domain.python_versions import UTC
from arrester.domain.state.states import ApplicationStatus, InstanceState
from arrester.domain.state.stream_state import StreamState
from arrester.domain.wire.failure_columns import Stored

#: The age up to which a request has an effect if an instance has started since. A shutdown latches,
#: and an older request would shut that instance out.
MAX_REQUEST_AGE = timedelta(minutes=1)


_EARLIEST = datetime.min.replace(tzinfo=UTC)
#: The actor of a command that an instance requested; no name of a person has a space.
_INSTANCE = "instance "


def is_instance(actor: str) -> bool:
    """Whether an instance requested what this actor did."""
    return actor.startswith(_INSTANCE)


def reaction_to(
    requests: Sequence[StoredEvent],
    state: StreamState,
    *,
    now: datetime,
    expiry: timedelta = COMMAND_EXPIRY,
) -> tuple[StoredEvent, list[Event]] | None:
    """Return the events that follow from the events of agents in one fold, and the one that has
    caused them; usually None.

    A shutdown of the application requested by an instance (KIP-671) becomes a command for all
    others, with the request's own id: a repetition changes nothing. The first request with an
    effect latches the application, and the others have none. `state` is after the events.
    """
    if state.application.status is ApplicationStatus.LATCHED:
        return None
    receiving = [each for each in state.instances.values() if receives_commands(each)]
    # Newest first: one of the first two decides for each request.
    receiving.sort(key=lambda each: each.started_at or _EARLIEST, reverse=True)
    for request in requests:
        if not (_is_late(request) and _started_since(request, receiving[:2])):
            return request, _shutdown(request, receiving, state, now=now, expiry=expiry)
    return None


def _shutdown(
    request: StoredEvent,
    receiving: Iterable[InstanceState],
    state: StreamState,
    *,
    now: datetime,
    expiry: timedelta,
) -> list[Event]:
    event = request.event
    assert isinstance(event.data, ApplicationShutdownRequested)
    others = (each.id for each in receiving if each.id != event.instance)
    issued = CommandIssued(
        command=uuid5(request.batch, str(request.sequence)),
        kind=CommandKind.SHUT_DOWN_APPLICATION,
        actor=f"{_INSTANCE}{event.instance}",
        reason=event.data.reason,
        instances=tuple(sorted(others, key=str)),
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


def _is_late(request: StoredEvent) -> bool:
    return request.received_at - request.event.occurred_at > MAX_REQUEST_AGE


def _started_since(request: StoredEvent, receiving: Iterable[InstanceState]) -> bool:
    """Whether another instance has started since the request: the application was started again,
    and stays open."""
    event = request.event
    return any(
        each.id != event.instance and each.started_at and each.started_at > event.occurred_at
        for each in receiving
    )


def needing_reaction(elements: Iterable[Stored]) -> list[StoredEvent]:
    """Return the events that may need a reaction."""
    events = [each for each in elements if isinstance(each, StoredEvent)]
    return [each for each in events if isinstance(each.event.data, ApplicationShutdownRequested)]
