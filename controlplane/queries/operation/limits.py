"""The limits of what the server stores of an application, and what they dropped or refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from arrester.controlplane import models, store
from arrester.controlplane.outbound import agent_connections

#: How long a reached limit is reported.
LATELY = timedelta(days=1)


class ReachedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often a limit has dropped or refused something of an application."""

    application: str
    limit: store.Limit
    #: Since `first_at`.
    count: int
    first_at: datetime
    last_at: datetime

    @property
    def text(self) -> str:
        """What was dropped or refused, and why."""
        match self.limit:
            case store.Limit.QUARANTINE:
                entries, size = store.quarantine.ENTRIES, store.quarantine.BYTES // 2**20
                return (
                    f"Dropped from the quarantine: {self.count:,}. It stores the newest"
                    f" {entries:,} entries of an application, {size:,} MiB at most, for the days"
                    " of the log"
                )
            case store.Limit.QUOTA:
                return (
                    f"Agents were requested {self.count:,} times to report counts only, since the"
                    " application exceeded a quota"
                )
            case store.Limit.HEARTBEAT:
                return (
                    f"Deleted heartbeats and other keys in Redis: {self.count:,}. They had no"
                    " expiry, or were larger than those that an agent writes"
                )
            case store.Limit.CONNECTIONS:
                return (
                    f"Closed connections of agents to Redis: {self.count:,}. The application had"
                    f" more than {agent_connections.FACTOR} times its quota"
                )


def limits_reached(
    application: str | None = None, *, since: datetime | None = None
) -> tuple[ReachedLimit, ...]:
    """Return the limits that have dropped or refused something, of all applications or of one; with
    `since` those that did so after a time."""
    rows = models.LimitReached.objects.order_by("application", "limit")
    if since is not None:
        rows = rows.filter(last_at__gte=since)
    if application is not None:
        rows = rows.filter(application=application)
    return tuple(
        ReachedLimit(
            application=each.application,
            limit=store.Limit(each.limit),
            count=each.count,
            first_at=each.first_at,
            last_at=each.last_at,
        )
        for each in rows
    )
