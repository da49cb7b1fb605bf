"""Refusals because of a command in progress: which one it is, and what a person can do."""

from __future__ import annotations

from arrester.domain.commands.kinds import KINDS
from arrester.domain.events import CommandKind
from arrester.domain.state.states import CommandState, CommandStatus


def in_progress(command: CommandState, subject: str) -> str:
    """Return the refusal of another command for the subject: `for this task`."""
    state = f"{command.kind} by {command.actor} is already in progress {subject}"
    return f"{state}; {_next_step(command)}"


def shutdown_in_progress(command: CommandState, subject: str) -> str:
    """Return the refusal of a command for an application or instance that is being shut down."""
    return f"{subject} is still being shut down by {command.actor}; {_next_step(command)}"


def cancel_refusal(command: CommandState) -> str | None:
    """Return why a command cannot be cancelled any more, or None."""
    if KINDS[command.kind].latches:
        return f"{command.application} is LATCHED by it already; start the application instead"
    if command.status is not CommandStatus.ISSUED:
        return (
            f"only a command that no instance has fetched can be cancelled; it is {command.status}"
        )
    return None


def _next_step(command: CommandState) -> str:
    """Return what a person can do, and the id of the command; pages replace it by a link."""
    verbs = []
    if cancel_refusal(command) is None:
        verbs.append("stop" if command.kind is CommandKind.REDRIVE else "cancel")
    if KINDS[command.kind].is_shutdown and not command.force:
        verbs.append("force")
    may = f", or {' or '.join(verbs)} it" if verbs else ""
    return f"wait until it ends{may} (command {command.id})"
