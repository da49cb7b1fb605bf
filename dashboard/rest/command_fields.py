"""Which fields of a new command each kind of command has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arrester.controlplane.domain.commands.request import SHUTDOWNS, TASK_COMMANDS
from arrester.controlplane.domain.commands.rollout import TASK_KINDS
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import CommandKind

#: The fields of a rollout, beside its application.
ROLLOUT_FIELDS = ("fingerprint", "waves", "observe_seconds", "tasks_per_minute")

_OF_EVERY_KIND = {"id", "kind", "dry_run", "reason"}
_MORE = {
    CommandKind.RESUME_AT: {"position"},
    CommandKind.MEND_RECORD: {"patch"},
    CommandKind.MEND_RECORDS: {"patch"},
    CommandKind.PAUSE_TASK: {"until", "duration_seconds"},
    CommandKind.SET_POLICY: {"pipeline", "stage", "answer"},
    CommandKind.RESTART_PIPELINE: {"pipeline"},
    CommandKind.SHUT_DOWN_INSTANCE: {"instance"},
}


def fields_of(kind: CommandKind) -> set[str]:
    """Return the names of the fields that a kind of command has."""
    about = {"task"} if kind in TASK_COMMANDS else {"application"}
    fields = _OF_EVERY_KIND | about | _MORE.get(kind, set())
    if kind in TASK_KINDS:
        fields |= set(ROLLOUT_FIELDS)
    return fields | {"force"} if kind in SHUTDOWNS else fields


def check_fields(kind: CommandKind, given: Mapping[str, Any]) -> None:
    """Raise InvalidValue for a field, other than null, that the kind of command does not have."""
    for name, value in given.items():
        if value is not None and name not in fields_of(kind):
            kinds = [each.value for each in CommandKind if name in fields_of(each)]
            raise InvalidValue(name, value, f"no value for {kind}, only for {', '.join(kinds)}")
