"""Timeouts: instances lost and found, commands expired."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta
from uuid import UUID

from arrester.domain.commands.recipients import open_commands, receives_commands
from arrester.domain.events import CommandExpired, Event, InstanceFound, InstanceLost
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandState
from arrester.domain.state.stream_state import StreamState


def timeout_events(
    state: StreamState, *, alive: Set[UUID], may_declare_lost: bool, now: datetime
) -> list[Event]:
    """Return the events that follow from the time: instances lost or found, commands expired.

    `alive` are the instances with a live heartbeat. No instance is declared lost unless
    `may_declare_lost`: while Redis is or just was unreachable, a missing heartbeat proves nothing.
    """
    bound = now - timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    found = [
        Event(occurred_at=now, instance=each.id, data=InstanceFound())
        for each in state.instances.values()
        if each.lost and each.id in alive
    ]
    lost = [
        Event(occurred_at=now, instance=each.id, data=InstanceLost(last_heard=bound))
        for each in state.instances.values()
        if may_declare_lost and receives_commands(each) and each.id not in alive
    ]
    lost_ids = {event.instance for event in lost if event.instance is not None}
    expired = [
        Event(occurred_at=now, data=data)
        for command in open_commands(state)
        for data in _expired(command, state, lost_ids, now)
    ]
    return [*found, *lost, *expired]


def _expired(
    command: CommandState, state: StreamState, lost_ids: Set[UUID], now: datetime
) -> list[CommandExpired]:
    if now >= command.expires_at:
        return [CommandExpired(command=command.id, reason="not applied within its time")]
    expired = []
    for part in command.deliveries:
        instance = state.instances.get(part.instance)
        if part.status.final or instance is None:
            continue
        if instance.ended:
            why = f"the instance ended {instance.status} before it answered"
        elif instance.lost or part.instance in lost_ids:
            why = "the instance is LOST"
        else:
            continue
        expired.append(CommandExpired(command=command.id, of_instance=part.instance, reason=why))
    return expired
