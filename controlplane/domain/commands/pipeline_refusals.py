"""Why the state forbids a command for a pipeline."""

from __future__ import annotations

from arrester.controlplane.domain.commands.recipients import open_commands, runs
from arrester.controlplane.domain.commands.request import CommandRequest
from arrester.controlplane.domain.state.policy_overrides import policy_refusal
from arrester.controlplane.domain.state.states import ApplicationStatus
from arrester.controlplane.domain.state.stream_state import StreamState


def set_policy_refusal(requested: CommandRequest, state: StreamState) -> str | None:
    """Return why the policy of a stage may not be set, or None."""
    pipeline, stage = requested.pipeline or "", requested.stage or ""
    if state.application.status is ApplicationStatus.LATCHED:
        return f"{state.application.name} is LATCHED; start the application first"
    for command in open_commands(state):
        if (command.pipeline, command.stage) == (pipeline, stage):
            return f"{command.kind} by {command.actor} is already in progress for this stage"
    return policy_refusal(runs(state, pipeline), pipeline, stage, requested.answer)
