"""Events about the log and the quarantine."""

from __future__ import annotations

from arrester.domain.events.parts import Count, Data


class BodyErased(Data, frozen=True, kw_only=True, tag=True):
    """The body (record, stack trace) of one event was erased for good."""

    #: The event, in the same log.
    sequence: Count
    actor: str
    reason: str


class QuarantineDismissed(Data, frozen=True, kw_only=True, tag=True):
    """A person dismissed quarantined entries: they will not be requeued."""

    #: The number of entries, or of events of an entry.
    count: Count
    actor: str
    reason: str | None = None
    #: The one entry dismissed; None: all waiting entries, or whole batches.
    entry: str | None = None


class QuarantineRequeued(Data, frozen=True, kw_only=True, tag=True):
    """A person requeued quarantined entries, and they were added to the log."""

    count: Count
    actor: str
    entry: str | None = None


LogEvent = BodyErased | QuarantineDismissed | QuarantineRequeued
