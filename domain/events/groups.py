"""Events of error groups, and notes."""

from __future__ import annotations

from uuid import UUID

from arrester.domain.events.parts import Count, Data, Moment


class ErrorGroupResolved(Data, frozen=True, kw_only=True, tag=True):
    """A person resolved the group; a later failure reopens it."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupReopened(Data, frozen=True, kw_only=True, tag=True):
    """A person reopened the group."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupMuted(Data, frozen=True, kw_only=True, tag=True):
    """A person muted the group until a time, or until it fails more often."""

    fingerprint: str
    actor: str
    reason: str | None = None
    #: In the server's time.
    until: Moment | None = None
    #: This many failed records within one period end the mute; periods are aligned to the epoch.
    failures: Count | None = None
    period_seconds: Count | None = None


class ErrorGroupUnmuted(Data, frozen=True, kw_only=True, tag=True):
    """The mute ended: by a person, or (without an actor) because it expired."""

    fingerprint: str
    actor: str | None = None
    reason: str | None = None


class ErrorGroupAssigned(Data, frozen=True, kw_only=True, tag=True):
    """A person assigned the group to an owner, or (without one) left it to the owner rules."""

    fingerprint: str
    actor: str
    assignee: str | None = None
    reason: str | None = None


class NoteAdded(Data, frozen=True, kw_only=True, tag=True):
    """A person added a note to an error group, a task or a command."""

    actor: str
    text: str
    fingerprint: str | None = None
    #: For a task.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    command: UUID | None = None


GroupEvent = (
    ErrorGroupResolved
    | ErrorGroupReopened
    | ErrorGroupMuted
    | ErrorGroupUnmuted
    | ErrorGroupAssigned
)
