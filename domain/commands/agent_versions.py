"""The commands that older agents do not know: they would not read them, and the command expires."""

from __future__ import annotations

from arrester.domain.commands.kinds import KINDS
from arrester.domain.commands.request import CommandRequest
from arrester.domain.state.states import InstanceState
from arrester.domain.state.stream_state import StreamState

#: The version that brought forced shutdowns.
_FORCE_SINCE = 2
#: The version that measures what flows.
_FLOW_SINCE = 5
#: The version of the commands that an agent knows, and its name in the versions of an instance.
#: Agents of 0.2.0 do not report it: they have version 1. An agent counts commands that it does not
#: know as invalid entries.
VERSION = max(_FORCE_SINCE, *(each.since for each in KINDS.values()))
REPORTED_AS = "commands"


def measures_flow(instance: InstanceState) -> bool:
    """Whether the agent of an instance measures what flows; it may, if its version is unknown."""
    return not _is_older(instance, _FLOW_SINCE)


def unknown_command(requested: CommandRequest, state: StreamState) -> str | None:
    """Return which recipient's agent does not know the command, or None.

    An instance that has not reported its versions may know it.
    """
    row = KINDS[requested.kind]
    since = max(row.since, _FORCE_SINCE) if requested.force else row.since
    for id in row.recipients(requested, state):
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
