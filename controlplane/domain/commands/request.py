"""Requests for commands, and which of them are valid in any state."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from arrester.controlplane.domain.commands.rollout import TASK_KINDS, check_rollout
from arrester.controlplane.domain.errors import InvalidValue
from arrester.controlplane.domain.events import (
    CommandKind,
    Redrive,
    RedriveSlice,
    Rollout,
    StageAnswer,
)
from arrester.controlplane.domain.identity.names import TaskId
from arrester.controlplane.domain.json_patch import JsonPatch

TASK_COMMANDS = (
    CommandKind.RESUME_TASK,
    CommandKind.SKIP_RECORD,
    CommandKind.RESUME_AT,
    CommandKind.MEND_RECORD,
    CommandKind.PAUSE_TASK,
    CommandKind.RESTART_TASK,
    CommandKind.DISMISS_TASK,
)
#: These commands skip or change a record, stop work or hide a task, so they need a reason.
NEEDS_REASON = (
    CommandKind.SKIP_RECORD,
    CommandKind.RESUME_AT,
    CommandKind.MEND_RECORD,
    CommandKind.DISMISS_TASK,
    CommandKind.SKIP_RECORDS,
    CommandKind.MEND_RECORDS,
    CommandKind.SET_POLICY,
    CommandKind.RESTART_PIPELINE,
    CommandKind.SHUT_DOWN_APPLICATION,
    CommandKind.SHUT_DOWN_INSTANCE,
    CommandKind.REDRIVE,
)
#: The commands that change the record which stopped a task.
MENDS = (CommandKind.MEND_RECORD, CommandKind.MEND_RECORDS)
#: The commands that process dead letters once more.
REDRIVES = (CommandKind.REDRIVE, CommandKind.REDRIVE_RECORDS)
_OF_PIPELINES = (CommandKind.SET_POLICY, CommandKind.RESTART_PIPELINE, *REDRIVES)
#: The commands that end instances.
SHUTDOWNS = (CommandKind.SHUT_DOWN_APPLICATION, CommandKind.SHUT_DOWN_INSTANCE)
#: The limit for a name and a reason, in characters.
TEXT_MAX = 2000
#: The longest pause of a task with an end.
LONGEST_PAUSE = timedelta(days=366)


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a command; it becomes a command whether or not the state allows it."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    task: TaskId | None = None
    #: For RESUME_AT: the position at which the task continues; held records before it are skipped.
    target: int | None = None
    #: For MEND_RECORD and MEND_RECORDS: the JSON Patch of the record that stopped a task.
    patch: str | None = None
    #: For SET_POLICY, RESTART_PIPELINE and redrives.
    pipeline: str | None = None
    #: For redrives.
    checkpoint: str | None = None
    #: For SET_POLICY: the stage and its answer; None restores the author's policy.
    stage: str | None = None
    answer: StageAnswer | None = None
    #: For PAUSE_TASK: when the server resumes the task, or after how long; neither: a person does.
    until: datetime | None = None
    duration: timedelta | None = None
    #: For a rollout.
    rollout: Rollout | None = None
    #: For REDRIVE and REDRIVE_RECORDS.
    redrive: Redrive | None = None
    slice: RedriveSlice | None = None
    #: The rollout or redrive that issues it.
    part_of: UUID | None = None
    #: For SHUT_DOWN_INSTANCE.
    instance: UUID | None = None
    #: For a shutdown: cancel Spark jobs in progress.
    force: bool = False

    def paused_until(self, issued_at: datetime) -> datetime | None:
        """Return the end of the pause; None if a person ends it."""
        return self.until if self.duration is None else issued_at + self.duration


def check(requested: CommandRequest, *, now: datetime) -> None:
    """Raise InvalidValue for an invalid request, as one without its task or a required reason."""
    if requested.kind in TASK_COMMANDS and requested.task is None:
        raise InvalidValue("task", None, "the task that the command is for")
    if requested.kind is CommandKind.RESUME_AT and not is_position(requested.target):
        raise InvalidValue("target", requested.target, "the position at which the task continues")
    _check_patch(requested)
    if requested.kind in _OF_PIPELINES:
        _check_name("pipeline", requested.pipeline, requested.kind)
    if requested.kind is CommandKind.SET_POLICY:
        _check_name("stage", requested.stage, requested.kind)
    if requested.kind in TASK_KINDS:
        _check_rollout(requested.rollout)
    if requested.kind in REDRIVES:
        _check_name("checkpoint", requested.checkpoint, requested.kind)
    if requested.kind is CommandKind.REDRIVE and requested.redrive is None:
        raise InvalidValue("redrive", None, f"the dead letters of {requested.kind}")
    if requested.kind is CommandKind.REDRIVE_RECORDS and requested.slice is None:
        raise InvalidValue("slice", None, f"the dead letters of {requested.kind}")
    if requested.kind is CommandKind.SHUT_DOWN_INSTANCE and requested.instance is None:
        raise InvalidValue("instance", None, f"the instance of {requested.kind}")
    if requested.force and requested.kind not in SHUTDOWNS:
        raise InvalidValue("force", True, f"true only for {' and '.join(SHUTDOWNS)}")
    _check_pause(requested, now)
    for name, text in (("actor", requested.actor), ("reason", requested.reason or "")):
        if len(text) > TEXT_MAX or not is_text(text):
            raise InvalidValue(name, text[:50], f"a text of at most {TEXT_MAX} characters")
    if requested.kind in NEEDS_REASON and not (requested.reason or "").strip():
        raise InvalidValue("reason", requested.reason, f"a text: {requested.kind} needs a reason")


def _check_patch(requested: CommandRequest) -> None:
    if requested.kind in MENDS:
        JsonPatch(requested.patch or "")
    elif requested.patch is not None:
        raise InvalidValue("kind", requested.kind, f"with a patch only {' and '.join(MENDS)}")


def _check_name(name: str, text: str | None, kind: CommandKind) -> None:
    if not text or len(text) > TEXT_MAX or not is_text(text):
        raise InvalidValue(name, (text or "")[:50], f"the {name} of {kind}")


def _check_rollout(rollout: Rollout | None) -> None:
    if rollout is None:
        raise InvalidValue("rollout", None, "the tasks, and how their commands are issued")
    check_rollout(rollout)


def _check_pause(requested: CommandRequest, now: datetime) -> None:
    if requested.until is None and requested.duration is None:
        return
    if requested.kind is not CommandKind.PAUSE_TASK:
        raise InvalidValue("kind", requested.kind, "PAUSE_TASK, the only one with an end")
    if requested.until is not None and requested.duration is not None:
        raise InvalidValue("until", requested.until, "an end or a duration, not both")
    days = LONGEST_PAUSE.days
    if requested.duration is not None and not timedelta(0) < requested.duration <= LONGEST_PAUSE:
        raise InvalidValue("duration", requested.duration, f"more than 0 s, at most {days} days")
    if requested.until is not None and not now < requested.until <= now + LONGEST_PAUSE:
        raise InvalidValue("until", requested.until, f"a future time within {days} days")


def is_position(value: int | None) -> bool:
    """Whether `value` may be a record's position."""
    return value is not None and -(2**63) <= value < 2**63


def is_text(text: str) -> bool:
    """Whether `text` can be encoded: JSON may contain half of a surrogate pair, which cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
