"""The recipients of a command, shown before it is issued, and its steps afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

from arrester.controlplane import queries
from arrester.domain.commands.kinds import IN_PARTS
from arrester.domain.commands.recipients import receives_commands
from arrester.domain.state.states import (
    CommandState,
    CommandStatus,
    InstanceState,
    ThreadState,
    ThreadStatus,
)
from arrester.domain.wire.codec import InProgress

_BAD = (CommandStatus.REFUSED, CommandStatus.EXPIRED, CommandStatus.CANCELLED)


#: What is in progress for longer was so in the last heartbeat, too.
_LONG = timedelta(seconds=5)


class Recipient(NamedTuple):
    """An instance, and the time of its last heartbeat; None if unknown."""

    instance: InstanceState
    last_heartbeat: datetime | None
    #: The micro-batches and chunks whose end a command has to wait for.
    in_progress: tuple[InProgress, ...] = ()


def live_instances(*applications: str) -> list[Recipient]:
    """Return the live instances of applications with the times of their last heartbeats."""
    return with_heartbeats([each for name in applications for each in queries.instances(name)])


def with_heartbeats(instances: Sequence[InstanceState]) -> list[Recipient]:
    """Return instances with the times of their last heartbeats."""
    heartbeats = queries.last_heartbeats(instances)
    return [_recipient(each, heartbeats.get(each.id)) for each in instances]


def _recipient(instance: InstanceState, heartbeat: queries.LastHeartbeat | None) -> Recipient:
    if heartbeat is None:
        return Recipient(instance, None)
    now = timezone.now()
    long = tuple(each for each in heartbeat.in_progress if now - each.since > _LONG)
    return Recipient(instance, heartbeat.received_at, long)


def recipients(live: Iterable[Recipient]) -> list[Recipient]:
    """Return the instances that fetch commands, as far as is known."""
    return [each for each in live if receives_commands(each.instance)]


def recipient(thread: ThreadState | None, live: Iterable[Recipient]) -> Recipient | None:
    """Return the instance that runs the thread, if it fetches commands, with its work for it."""
    if thread is None or thread.status is ThreadStatus.DEAD:
        return None
    for each in recipients(live):
        if each.instance.id == thread.instance:
            own = (work for work in each.in_progress if work.pipeline == thread.pipeline)
            return each._replace(in_progress=tuple(own))
    return None


def expiry_minutes() -> int:
    """Return how long a command waits to be fetched."""
    return int(settings.ENVIRONMENT.command_expiry_seconds) // 60


class CommandStep(NamedTuple):
    """One step: `look` is done, now, bad, or empty for a future step."""

    name: str
    look: str
    at: datetime | None = None
    text: str = ""


def steps(command: CommandState) -> list[CommandStep]:
    """Return the completed steps of the command and the one that it waits for."""
    issued = CommandStep("Issued", "done", command.issued_at, f"by {command.actor}")
    if command.kind in IN_PARTS and not command.status.final:
        return [issued, CommandStep("Applied", "now", None, "in progress")]
    return [issued, *_delivered(command), _end(command)]


def _delivered(command: CommandState) -> list[CommandStep]:
    if command.delivered_at is not None:
        fetched = sum(1 for each in command.deliveries if each.delivered_at is not None)
        instances = "1 instance" if fetched == 1 else f"{fetched} instances"
        return [CommandStep("Delivered", "done", command.delivered_at, f"to {instances}")]
    if command.status.final:
        # Decided by the server alone, without a delivery.
        return []
    return [CommandStep("Delivered", "now", None, "waiting for an instance")]


def _end(command: CommandState) -> CommandStep:
    if not command.status.final:
        look = "now" if command.status is CommandStatus.DELIVERED else ""
        return CommandStep("Applied", look, None, "waiting for an answer" if look else "")
    look = "bad" if command.status in _BAD else "done"
    return CommandStep(command.status.capitalize(), look, command.finished_at)
