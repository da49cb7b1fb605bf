"""Durations as people write them: 90s, 10m, 2h, 1h 30m."""

from __future__ import annotations

import re

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"(\d+)\s*([smhd])")


def seconds(text: str | float) -> float:
    """Return a duration in seconds; a number alone is seconds; raise click.BadParameter."""
    text = str(text).strip()
    if text.isdecimal():
        return int(text)
    if not text or _PART.sub("", text).strip():
        raise click.BadParameter(f"{text!r} is not allowed; allowed: such as 90s, 10m or 1h 30m")
    return sum(int(count) * _SECONDS[unit] for count, unit in _PART.findall(text))
