"""What happened: reads of the log and of the counts per minute."""

from __future__ import annotations

from datetime import datetime

from controlplane.domain.events import StoredEvent
from controlplane.queries.answers import FailureFilter, MinuteCount, Page


def event(application: str, sequence: int) -> StoredEvent:
    """Return one event with its body; raise NotFound."""
    raise NotImplementedError


def task_history(digest: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredEvent]:
    """Return what happened to a task, newest first, without bodies; commands for it included."""
    raise NotImplementedError


def group_occurrences(
    application: str, fingerprint: str, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return the failures of a group (RecordFailed, FailuresCounted), newest first."""
    raise NotImplementedError


def failures(
    filter: FailureFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[StoredEvent]:
    """Return failures (RecordFailed, FailuresCounted) by when they occurred, newest first.

    `event.data.count` of all rows sums up to the failed records; bodies are left out.
    """
    raise NotImplementedError


def minutes(
    application: str | None = None,
    *,
    since: datetime,
    until: datetime,
    pipeline: str | None = None,
    fingerprint: str | None = None,
) -> tuple[MinuteCount, ...]:
    """Return failed records per minute of [since, until), minutes without any left out."""
    raise NotImplementedError
