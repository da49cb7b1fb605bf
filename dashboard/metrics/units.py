"""The unit of a metric, for OpenMetrics."""

from __future__ import annotations

_UNITS = ("seconds", "bytes")


def unit_of(name: str) -> str:
    """Return the unit at the end of a name; empty without one."""
    unit = name.rpartition("_")[2]
    return unit if unit in _UNITS else ""
