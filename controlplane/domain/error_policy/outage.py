"""When so many records fail alike that something else is broken than the records."""

from __future__ import annotations

import math

import msgspec

from arrester.controlplane.domain.events import Response


class OutagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """errors.outage.*: from where on failures with one cause are an outage, and what it is met by.

    Without a share there are no outages: each record is judged by itself.
    """

    #: Of the records of a micro-batch; more than this is an outage.
    share: float | None = None
    #: Fewer failed records than this are none.
    minimum: int = 100
    #: PAUSE holds each task at its first such record, FAIL ends the thread.
    response: Response = Response.PAUSE

    def is_outage(self, failed: int, records: int) -> bool:
        """Whether `failed` records with one cause, of so many in all, are an outage."""
        return self.share is not None and failed >= self.at_least(records)

    def at_least(self, records: int) -> int:
        """Return from how many on, of so many in all, records that failed alike are an outage."""
        return max(1, self.minimum, math.floor((self.share or 0) * records) + 1)
