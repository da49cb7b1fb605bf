"""The failure-rate charts of the last hour: of everything, of an application, of an error."""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane import queries
from dashboard import chart

MINUTES = 60


def of_everything(*, now: datetime) -> chart.Chart:
    """Return the last hour, by application."""
    start, end = _hour(now)
    counts = queries.minutes_by_application(since=start, until=end)
    counted = ((each.minute, each.application, each.count) for each in counts)
    return chart.stacked(counted, start=start, minutes=MINUTES)


def of_application(name: str, *, now: datetime, fingerprint: str | None = None) -> chart.Chart:
    """Return the last hour of an application, or of one of its errors."""
    start, end = _hour(now)
    counts = queries.minutes(name, since=start, until=end, fingerprint=fingerprint)
    counted = ((each.minute, name, each.count) for each in counts)
    return chart.stacked(counted, start=start, minutes=MINUTES)


def _hour(now: datetime) -> tuple[datetime, datetime]:
    """Return the hour that ends with the present minute."""
    end = now.replace(second=0, microsecond=0) + chart.MINUTE
    return end - timedelta(minutes=MINUTES), end
