"""Which requests for commands are valid in any state."""

from __future__ import annotations

from datetime import datetime, timedelta

from arrester.domain.commands.kinds import KINDS, TESTS, AppliedBy, Field, Kind, Subject
from arrester.domain.commands.request import TEXT_MAX, CommandRequest, is_text
from arrester.domain.commands.rollout import check_rollout
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Rollout
from arrester.domain.json_patch import JsonPatch

#: The longest pause with an end.
LONGEST_PAUSE = timedelta(days=366)


def check(requested: CommandRequest, *, now: datetime) -> None:
    """Raise InvalidValue for an invalid request, as one without its task or a required reason."""
    row = KINDS[requested.kind]
    _check_subject(row, requested)
    if "target" in row.fields and not is_position(requested.target):
        raise InvalidValue("target", requested.target, "the position at which the task continues")
    _check_patch(row, requested)
    if requested.force and "force" not in row.fields:
        raise InvalidValue("force", True, f"true only for {_kinds_with('force')}")
    _check_pause(row, requested, now)
    for name, text in (("actor", requested.actor), ("reason", requested.reason or "")):
        if len(text) > TEXT_MAX or not is_text(text):
            raise InvalidValue(name, text[:50], f"a text of at most {TEXT_MAX} characters")
    if row.needs_reason and not (requested.reason or "").strip():
        raise InvalidValue("reason", requested.reason, f"a text: {requested.kind} needs a reason")


def _check_subject(row: Kind, requested: CommandRequest) -> None:
    match row.subject:
        case Subject.TASK:
            if requested.task is None:
                raise InvalidValue("task", None, "the task that the command is for")
        case Subject.TASKS:
            _check_rollout(requested.rollout)
        case Subject.STAGE:
            _check_name("pipeline", requested.pipeline, requested)
            _check_name("stage", requested.stage, requested)
        case Subject.PIPELINE:
            _check_name("pipeline", requested.pipeline, requested)
        case Subject.DEAD_LETTERS:
            _check_dead_letters(row, requested)
        case Subject.INSTANCE:
            if requested.instance is None:
                raise InvalidValue("instance", None, f"the instance of {requested.kind}")
        case Subject.APPLICATION:
            pass


def _check_dead_letters(row: Kind, requested: CommandRequest) -> None:
    _check_name("pipeline", requested.pipeline, requested)
    _check_name("checkpoint", requested.checkpoint, requested)
    name = "redrive" if row.applied_by is AppliedBy.PARTS else "slice"
    if getattr(requested, name) is None:
        raise InvalidValue(name, None, f"the dead letters of {requested.kind}")


def _check_patch(row: Kind, requested: CommandRequest) -> None:
    if row.kind in TESTS and requested.patch is None:
        return
    if "patch" in row.fields:
        JsonPatch(requested.patch or "")
    elif requested.patch is not None:
        raise InvalidValue("kind", requested.kind, f"with a patch only {_kinds_with('patch')}")


def _check_name(name: str, text: str | None, requested: CommandRequest) -> None:
    if not text or len(text) > TEXT_MAX or not is_text(text):
        raise InvalidValue(name, (text or "")[:50], f"the {name} of {requested.kind}")


def _check_rollout(rollout: Rollout | None) -> None:
    if rollout is None:
        raise InvalidValue("rollout", None, "the tasks, and how their commands are issued")
    check_rollout(rollout)


def _check_pause(row: Kind, requested: CommandRequest, now: datetime) -> None:
    if requested.until is None and requested.duration is None:
        return
    if "until" not in row.fields:
        raise InvalidValue(
            "kind", requested.kind, f"{_kinds_with('until')}, the only ones with an end"
        )
    if requested.until is not None and requested.duration is not None:
        raise InvalidValue("until", requested.until, "an end or a duration, not both")
    days = LONGEST_PAUSE.days
    if requested.duration is not None and not timedelta(0) < requested.duration <= LONGEST_PAUSE:
        raise InvalidValue("duration", requested.duration, f"more than 0 s, at most {days} days")
    if requested.until is not None and not now < requested.until <= now + LONGEST_PAUSE:
        raise InvalidValue("until", requested.until, f"a future time within {days} days")


def _kinds_with(field: Field) -> str:
    return " and ".join(each.kind for each in KINDS.values() if field in each.fields)


def is_position(value: int | None) -> bool:
    """Whether `value` may be a record's position."""
    return value is not None and -(2**63) <= value < 2**63
