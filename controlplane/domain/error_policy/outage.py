"""The outage rule: so many records fail alike that the records are not the cause."""

from __future__ import annotations

import math

import msgspec

from arrester.controlplane.domain.events import Response


class OutagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """errors.outage.*: when failures with one cause are an outage, and the response.

    Without a share there are no outages: each record is decided individually.
    """

    #: An outage is more than this share of a micro-batch.
    share: float | None = None
    #: Fewer failed records are never an outage.
    minimum: int = 100
    #: PAUSE stops each task at its first such record, FAIL ends the thread.
    response: Response = Response.PAUSE

    def is_outage(self, failed: int, records: int) -> bool:
        """Whether `failed` of `records` with one cause are an outage."""
        return self.share is not None and failed >= self.at_least(records)

    def at_least(self, records: int) -> int:
        """Return the number of failed records from which they are an outage."""
        return max(1, self.minimum, math.floor((self.share or 0) * records) + 1)
