"""Sparklines: a row of small bars without an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 96, 20


class Spark(NamedTuple):
    """A sparkline as the path of one SVG, and its description."""

    path: str
    total: int
    most: int


def spark(values: Sequence[int]) -> Spark:
    """Return the sparkline of `values`, oldest first, with a base line.

    In whole numbers and without empty bars: a list has a hundred of them.
    """
    most = max(values, default=0)
    step = WIDTH // max(1, len(values))
    bars = "".join(
        f"M{index * step} {HEIGHT}v-{max(1, round(HEIGHT * value / most))}"
        f"h{max(1, step - 1)}V{HEIGHT}z"
        for index, value in enumerate(values)
        if value
    )
    return Spark(path=f"M0 {HEIGHT}v-.5h{WIDTH}v.5z{bars}", total=sum(values), most=most)
