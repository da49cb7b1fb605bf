"""The instances that will receive a command, shown before it is issued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings

from arrester.controlplane.domain.commands.decide import is_listening
from arrester.controlplane.domain.state.states import InstanceState, ThreadState, ThreadStatus


class Listener(NamedTuple):
    """An instance, and the time of its last heartbeat; None if unknown."""

    instance: InstanceState
    heard: datetime | None


def seen(instances: Iterable[InstanceState], heard: Mapping[UUID, datetime]) -> list[Listener]:
    """Return the instances with the times of their last heartbeats."""
    return [Listener(each, heard.get(each.id)) for each in instances]


def listeners(instances: Iterable[InstanceState], heard: Mapping[UUID, datetime]) -> list[Listener]:
    """Return the instances that fetch commands, as far as is known."""
    return [each for each in seen(instances, heard) if is_listening(each.instance)]


def listener(
    thread: ThreadState | None,
    instances: Iterable[InstanceState],
    heard: Mapping[UUID, datetime],
) -> Listener | None:
    """Return the instance that runs the thread, if it fetches commands."""
    if thread is None or thread.status is ThreadStatus.DEAD:
        return None
    every = listeners(instances, heard)
    return next((each for each in every if each.instance.id == thread.instance), None)


def expiry_minutes() -> int:
    """Return how long a command waits to be fetched."""
    return int(settings.ENVIRONMENT.command_expiry_seconds) // 60
