"""The tiles of the overview."""

from __future__ import annotations

from django.utils import timezone

from arrester.controlplane import queries
from arrester.dashboard.components import attention, failure_rates


def tiles() -> list[attention.Tile]:
    """Return the tiles of the overview without a time range in its URL."""
    rate = failure_rates.rate(failure_rates.span({}, now=timezone.now()))
    return attention.tiles(queries.overview(), rate)
