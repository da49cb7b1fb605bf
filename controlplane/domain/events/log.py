"""What is done to the log itself."""

from __future__ import annotations

from controlplane.domain.events.base import Count, Data


class BodyErased(Data, frozen=True, kw_only=True, tag=True):
    """The owner of the database has erased the body (record, stack trace) of one event for good."""

    #: Of the event, in the same log.
    sequence: Count
    actor: str
    reason: str
