"""The commands that older agents do not know: they would not read them, and the command expires."""

from __future__ import annotations

from arrester.controlplane.domain.commands.recipients import recipients
from arrester.controlplane.domain.commands.request import CommandRequest
from arrester.controlplane.domain.events import CommandKind
from arrester.controlplane.domain.state.states import InstanceState
from arrester.controlplane.domain.state.stream_state import StreamState
from arrester.controlplane.domain.wire.command_codec import REPORTED_AS

#: The version that brought a kind of command, if it is not 1.
_SINCE = {
    CommandKind.RESTART_PIPELINE: 2,
    CommandKind.SHUT_DOWN_INSTANCE: 2,
    CommandKind.REDRIVE_RECORDS: 3,
    CommandKind.MEND_RECORD: 4,
}
_FORCE_SINCE = 2


def unknown_command(requested: CommandRequest, state: StreamState) -> str | None:
    """Return which recipient's agent does not know the command, or None.

    An instance that has not reported its versions may know it.
    """
    since = max(_SINCE.get(requested.kind, 1), _FORCE_SINCE if requested.force else 1)
    for id in recipients(requested, state):
        instance = state.instances.get(id)
        if instance is not None and _is_older(instance, since):
            what = f"a forced {requested.kind}" if requested.force else requested.kind
            return (
                f"the agent of instance {instance.host}, pid {instance.pid}, is too old: it does"
                f" not know {what}"
            )
    return None


def _is_older(instance: InstanceState, since: int) -> bool:
    reported = instance.versions.get(REPORTED_AS, "1")
    return bool(instance.versions) and reported.isdecimal() and int(reported) < since
