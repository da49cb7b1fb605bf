"""Which fields of a new command each kind of command has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arrester.domain.commands.kinds import KINDS, Subject
from arrester.domain.errors import InvalidValue
from arrester.domain.events import CommandKind

#: The fields of a rollout, beside its application.
ROLLOUT_FIELDS = ("fingerprint", "waves", "observe_seconds", "tasks_per_minute")

#: What names a task that the server may not know yet, in place of its id.
OF_KEY = ("application", "pipeline", "key")
_OF_EVERY_KIND = {"id", "kind", "dry_run", "reason"}
#: The fields that have another name in a request of the domain.
NAMES = {
    "target": "resume_position",
    "until": "pause_ends_at",
    "duration": "duration_seconds",
}


def names_of(subject: Subject) -> tuple[str, ...]:
    """Return the fields that a command needs to name its subject."""
    match subject:
        case Subject.TASK:
            return ("task",)
        case Subject.STAGE:
            return ("application", "pipeline", "stage")
        case Subject.PIPELINE:
            return ("application", "pipeline")
        case Subject.INSTANCE:
            return ("application", "instance")
        case Subject.TASKS | Subject.DEAD_LETTERS | Subject.APPLICATION:
            return ("application",)


def fields_of(kind: CommandKind) -> set[str]:
    """Return the names of the fields that a kind of command has."""
    row = KINDS[kind]
    fields = {NAMES.get(name, name) for name in row.fields}
    if "key" in row.fields:
        fields |= set(OF_KEY)
    if row.subject is Subject.TASKS:
        fields |= set(ROLLOUT_FIELDS)
    return _OF_EVERY_KIND | set(names_of(row.subject)) | fields


def kinds_with(name: str, *, separator: str = ", ") -> str:
    """Return the kinds of commands that have a field, for its documentation.

    Those for dead letters have endpoints of their own.
    """
    return separator.join(
        kind.value
        for kind in CommandKind
        if name in fields_of(kind) and KINDS[kind].subject is not Subject.DEAD_LETTERS
    )


def check_fields(kind: CommandKind, given: Mapping[str, Any]) -> None:
    """Raise InvalidValue for a field, other than null, that the kind of command does not have."""
    for name, value in given.items():
        if value is not None and name not in fields_of(kind):
            raise InvalidValue(name, value, f"no value for {kind}, only for {kinds_with(name)}")
