"""The commands that older agents do not know: they would not read them, and the command expires."""

from __future__ import annotations

from arrester.controlplane.domain.commands.recipients import recipients
from arrester.controlplane.domain.commands.request import CommandRequest
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.states import InstanceState
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.domain.wire.command_codec import REPORTED_AS, VERSION

_SINCE_2 = (CommandKind.RESTART_PIPELINE, CommandKind.SHUT_DOWN_INSTANCE)


def unknown_command(requested: CommandRequest, state: StreamState) -> str | None:
    """Return which recipient's agent does not know the command, or None.

    An instance that has not reported its versions may know it.
    """
    if requested.kind not in _SINCE_2 and not requested.force:
        return None
    for id in recipients(requested, state):
        instance = state.instances.get(id)
        if instance is not None and _is_older(instance):
            what = f"a forced {requested.kind}" if requested.force else requested.kind
            return (
                f"the agent of instance {instance.host}, pid {instance.pid}, is too old: it does"
                f" not know {what}"
            )
    return None


def _is_older(instance: InstanceState) -> bool:
    reported = instance.versions.get(REPORTED_AS, "1")
    return bool(instance.versions) and reported.isdecimal() and int(reported) < VERSION
