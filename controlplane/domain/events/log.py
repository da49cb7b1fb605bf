"""What is done to the log itself."""

from __future__ import annotations

from arrester.controlplane.domain.events.base import Count, Data


class BodyErased(Data, frozen=True, kw_only=True, tag=True):
    """The owner of the database has erased the body (record, stack trace) of one event for good."""

    #: Of the event, in the same log.
    sequence: Count
    actor: str
    reason: str


class QuarantineDismissed(Data, frozen=True, kw_only=True, tag=True):
    """Somebody let go of what was not understood: nobody puts it back any more."""

    #: So many entries, or events of an entry.
    count: Count
    actor: str
    reason: str | None = None
    #: The one entry that was meant; None: all that waited, or whole batches.
    entry: str | None = None


class QuarantineRequeued(Data, frozen=True, kw_only=True, tag=True):
    """Somebody had what was not understood read again, and it was put into the log."""

    count: Count
    actor: str
    entry: str | None = None


LogEvent = BodyErased | QuarantineDismissed | QuarantineRequeued
