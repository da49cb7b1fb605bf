"""The life of a wish."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from arrester.controlplane.domain.events.base import Data, Moment, Position
from arrester.controlplane.domain.events.threads import StageAnswer


class CommandKind(StrEnum):
    """What an operator may wish for."""

    RESUME_TASK = "RESUME_TASK"
    SKIP_RECORD = "SKIP_RECORD"
    RESUME_AT = "RESUME_AT"
    PAUSE_TASK = "PAUSE_TASK"
    RESTART_TASK = "RESTART_TASK"
    SET_POLICY = "SET_POLICY"
    SHUT_DOWN_APPLICATION = "SHUT_DOWN_APPLICATION"
    START_APPLICATION = "START_APPLICATION"


class CommandIssued(Data, frozen=True, kw_only=True, tag=True):
    """A person, or the API in their name, wishes something."""

    command: UUID
    kind: CommandKind
    actor: str
    reason: str | None = None
    #: Of a task command, and of SET_POLICY: there at every checkpoint that it runs at.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    #: Where a task was held when the command was made: resume means this record, no later one.
    position: Position | None = None
    #: Of RESUME_AT: where the task shall go on.
    target: Position | None = None
    #: Of SET_POLICY: what failures of the stage are answered; None: as its author has it.
    stage: str | None = None
    answer: StageAnswer | None = None
    #: Of a shutdown: a failure asked for it, and every instance ends in ERROR.
    error: bool = False
    #: Who has to answer; empty for a task command whose instance is not known.
    instances: tuple[UUID, ...] = ()
    expires_at: Moment


class CommandDelivered(Data, frozen=True, kw_only=True, tag=True):
    """An instance has fetched the command."""

    command: UUID


class CommandApplied(Data, frozen=True, kw_only=True, tag=True):
    """An instance, or the server where there is none, has done what was wished."""

    command: UUID
    detail: str | None = None


class CommandRefused(Data, frozen=True, kw_only=True, tag=True):
    """What was wished is forbidden by the state; nothing was changed."""

    command: UUID
    reason: str


class CommandExpired(Data, frozen=True, kw_only=True, tag=True):
    """Nobody applied the command in time, or who should have is gone."""

    command: UUID
    reason: str
    #: The instance whose part expired; None for the whole command.
    of_instance: UUID | None = None


class CommandCancelled(Data, frozen=True, kw_only=True, tag=True):
    """Somebody, or a stronger command, took the wish back before it was applied."""

    command: UUID
    reason: str
    actor: str | None = None


CommandEvent = (
    CommandIssued
    | CommandDelivered
    | CommandApplied
    | CommandRefused
    | CommandExpired
    | CommandCancelled
)
