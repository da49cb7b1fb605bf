"""The steps of a command: issued, delivered, and its end."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from arrester.controlplane.domain.state.states import CommandState, CommandStatus

_BAD = (CommandStatus.REFUSED, CommandStatus.EXPIRED, CommandStatus.CANCELLED)


class Step(NamedTuple):
    """One step: `look` is done, now, bad, or empty for a future step."""

    name: str
    look: str
    at: datetime | None = None
    text: str = ""


def steps(command: CommandState) -> list[Step]:
    """Return the completed steps of the command and the one that it waits for."""
    issued = Step("Issued", "done", command.issued_at, f"by {command.actor}")
    return [issued, *_delivered(command), _end(command)]


def _delivered(command: CommandState) -> list[Step]:
    if command.delivered_at is not None:
        fetched = sum(1 for each in command.deliveries if each.delivered_at is not None)
        instances = "1 instance" if fetched == 1 else f"{fetched} instances"
        return [Step("Delivered", "done", command.delivered_at, f"to {instances}")]
    if command.status.final:
        # Decided by the server alone, without a delivery.
        return []
    return [Step("Delivered", "now", None, "waiting for an instance")]


def _end(command: CommandState) -> Step:
    if not command.status.final:
        look = "now" if command.status is CommandStatus.DELIVERED else ""
        return Step("Applied", look, None, "waiting for an answer" if look else "")
    look = "bad" if command.status in _BAD else "done"
    return Step(command.status.capitalize(), look, command.finished_at, command.outcome or "")
