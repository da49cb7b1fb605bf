"""Why the state forbids to shut an application or an instance down."""

from __future__ import annotations

from arrester.domain.commands.kinds import KINDS
from arrester.domain.commands.recipients import (
    live_instances,
    open_commands,
    receives_commands,
)
from arrester.domain.commands.refusals.in_progress import shutdown_in_progress
from arrester.domain.commands.request import CommandRequest
from arrester.domain.state.states import (
    ApplicationStatus,
    CommandState,
    InstanceState,
    InstanceStatus,
)
from arrester.domain.state.stream_state import StreamState


def shutdown_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why an application or an instance may not be shut down, or None."""
    if KINDS[requested.kind].latches:
        return _application_refusal(requested, state)
    return _instance_refusal(requested, state)


def _application_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why an application may not be shut down; a forced shutdown may follow another."""
    name = state.application.name
    being_shut_down = application_in_progress(state, forced=requested.force)
    if being_shut_down is not None:
        return being_shut_down
    if state.application.status is not ApplicationStatus.LATCHED:
        return None
    if requested.force and live_instances(requested, state):
        return None
    return f"{name} is LATCHED already" + (", and no instance runs" if requested.force else "")


def application_in_progress(state: StreamState, *, forced: bool = False) -> str | None:
    """Return by whom the application is being shut down, or None; with `forced`, by force."""
    for command in open_commands(state):
        if KINDS[command.kind].latches and (command.force or not forced):
            return shutdown_in_progress(command, state.application.name)
    return None


def _instance_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    instance = None if requested.instance is None else state.instances.get(requested.instance)
    if instance is None:
        return f"{state.application.name} has no live instance {requested.instance}"
    named = f"the instance {instance.host}, pid {instance.pid},"
    if instance.ended:
        return f"{named} has ended already"
    if not receives_commands(instance):
        return f"{named} is LOST: it fetches no commands"
    for command in open_commands(state):
        may_follow = requested.force and not command.force
        if _waits_for(command, instance) and not may_follow:
            return shutdown_in_progress(command, named)
    if instance.status is not InstanceStatus.RUNNING and not requested.force:
        return f"{named} is ending already: {instance.status}"
    return None


def _waits_for(command: CommandState, instance: InstanceState) -> bool:
    """Whether a shutdown still waits for the end of the instance."""
    waiting = [part.instance for part in command.deliveries if not part.status.final]
    return KINDS[command.kind].is_shutdown and instance.id in waiting
