"""The filters of lists, frozen; None means any."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from arrester.controlplane.domain.errors import InvalidValue


def task_id(digest: str) -> UUID:
    """Return the id of a task's digest; raise InvalidValue."""
    try:
        return UUID(hex=digest)
    except ValueError as exc:
        raise InvalidValue("task", digest, "32 hexadecimal digits") from exc


class FailureFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of failures; None means any. Times are of occurrence."""

    application: str | None = None
    pipeline: str | None = None
    #: The digest of a task.
    task: str | None = None
    stage: str | None = None
    exception_class: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of error groups; None means any."""

    application: str | None = None
    #: A group's status.
    state: str | None = None
    stage: str | None = None
    #: With or without its package.
    exception_class: str | None = None
    #: In the class, or in the message of the group's newest example.
    text: str | None = None
    #: Groups with failures in that time, according to first and last seen.
    since: datetime | None = None
    until: datetime | None = None


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of tasks; None means any."""

    application: str | None = None
    pipeline: str | None = None
    #: A task's status.
    state: str | None = None
    #: The fingerprint of the error group at which a task is or was stopped.
    cause: str | None = None
    #: The beginning of a task's key.
    key: str | None = None
    #: Only tasks of the checkpoints that the task grid shows.
    live: bool = False


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of people's acts; None means any."""

    actor: str | None = None
    #: One of `queries.ACT_KINDS`.
    kind: str | None = None
    application: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters; None means any."""

    application: str | None = None
    pipeline: str | None = None
    #: The digest of a task.
    task: str | None = None
    since: datetime | None = None
    until: datetime | None = None
