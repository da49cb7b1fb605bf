"""The tiles of the overview."""

from __future__ import annotations

from django.utils import timezone

from arrester.controlplane import queries
from arrester.controlplane.queries import conditions
from arrester.dashboard.components import attention, time_range
from arrester.dashboard.components.charts import failure_rates


def tiles() -> list[attention.Tile]:
    """Return the tiles of the overview without a time range in its URL."""
    now = timezone.now()
    rate = failure_rates.rate(time_range.span({}, now=now))
    items = tuple(attention.Item(each, "") for each in conditions.needing_attention(now=now))
    return attention.tiles(queries.overview(), attention.Attention(items), rate)
