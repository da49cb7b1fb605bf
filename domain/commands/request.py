"""Requests for commands."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from arrester.domain.events import (
    CommandKind,
    Redrive,
    RedriveSlice,
    Rollout,
    StageAnswer,
)
from arrester.domain.identity.names import TaskId

#: The limit for a name and a reason, in characters.
TEXT_MAX = 2000


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a command; it becomes a command whether or not the state allows it.

    The row of its kind in `kinds` has its subject and its further fields.
    """

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    task: TaskId | None = None
    #: The position at which the task continues; held records before it are skipped.
    target: int | None = None
    #: The JSON Patch of the record that stopped a task.
    patch: str | None = None
    #: For a pipeline, a stage of it, or its dead letters.
    pipeline: str | None = None
    #: For dead letters.
    checkpoint: str | None = None
    #: The stage, and its answer to failures; None restores the author's policy.
    stage: str | None = None
    answer: StageAnswer | None = None
    #: When a pause of a task or pipeline ends, or after how long; neither: a person ends it.
    until: datetime | None = None
    duration: timedelta | None = None
    #: For a rollout.
    rollout: Rollout | None = None
    #: For a redrive, and for each part of one.
    redrive: Redrive | None = None
    slice: RedriveSlice | None = None
    #: The rollout or redrive that issues it.
    part_of: UUID | None = None
    #: For one instance.
    instance: UUID | None = None
    #: For a shutdown: cancel Spark jobs in progress.
    force: bool = False

    def paused_until(self, issued_at: datetime) -> datetime | None:
        """Return the end of the pause; None if a person ends it."""
        return self.until if self.duration is None else issued_at + self.duration


def is_text(text: str) -> bool:
    """Whether `text` can be encoded: JSON may contain half of a surrogate pair, which cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
