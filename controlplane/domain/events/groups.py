"""What people do with error groups, and the notes that they leave."""

from __future__ import annotations

from uuid import UUID

from arrester.controlplane.domain.events.base import Count, Data, Moment


class ErrorGroupResolved(Data, frozen=True, kw_only=True, tag=True):
    """Somebody says that the cause is gone; a failure that follows reopens the group."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupReopened(Data, frozen=True, kw_only=True, tag=True):
    """Somebody takes back that the cause is gone."""

    fingerprint: str
    actor: str
    reason: str | None = None


class ErrorGroupMuted(Data, frozen=True, kw_only=True, tag=True):
    """Somebody wants to hear no more of the group until a time, or until it fails more."""

    fingerprint: str
    actor: str
    reason: str | None = None
    #: In the server's time.
    until: Moment | None = None
    #: So many failed records within one period end it; periods are aligned to the epoch.
    failures: Count | None = None
    period_seconds: Count | None = None


class ErrorGroupUnmuted(Data, frozen=True, kw_only=True, tag=True):
    """The group is heard of again: somebody wants it, or (without an actor) its time is over."""

    fingerprint: str
    actor: str | None = None
    reason: str | None = None


class NoteAdded(Data, frozen=True, kw_only=True, tag=True):
    """Somebody wrote something down, about an error group, a task, or a command."""

    actor: str
    text: str
    fingerprint: str | None = None
    #: Of a task.
    pipeline: str | None = None
    checkpoint: str | None = None
    task: str | None = None
    command: UUID | None = None


GroupEvent = ErrorGroupResolved | ErrorGroupReopened | ErrorGroupMuted | ErrorGroupUnmuted
