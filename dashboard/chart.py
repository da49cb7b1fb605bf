"""The failure-rate chart: from counts per minute to stacked bars that a template draws as SVG."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTH, HEIGHT = 600.0, 100.0
#: The applications with most failures have a colour each; the others share the last.
COLOURS = 5
OTHERS = "others"
MINUTE = timedelta(minutes=1)


class Bar(NamedTuple):
    """A rectangle on WIDTH by HEIGHT; `colour` counts from 1."""

    x: float
    y: float
    width: float
    height: float
    colour: int


class Series(NamedTuple):
    """An application in the legend."""

    name: str
    colour: int
    total: int


class Column(NamedTuple):
    """A minute in the table behind the picture."""

    minute: datetime
    counts: list[int]
    total: int


class Chart(NamedTuple):
    """Everything a template needs to draw, name and read out the chart."""

    bars: list[Bar]
    series: list[Series]
    columns: list[Column]
    top: int
    total: int
    start: datetime
    end: datetime


Counted = tuple[datetime, str, int]


def stacked(counts: Iterable[Counted], *, start: datetime, minutes: int) -> Chart:
    """Return the chart of `(minute, application, count)` over `minutes` minutes from `start`."""
    by_minute: dict[datetime, Counter[str]] = defaultdict(Counter)
    totals: Counter[str] = Counter()
    for minute, application, count in counts:
        by_minute[minute][application] += count
        totals[application] += count
    series = _series(totals)
    moments = [start + MINUTE * index for index in range(minutes)]
    columns = [_column(moment, by_minute[moment], series) for moment in moments]
    top = _rounded_up(max((column.total for column in columns), default=0))
    return Chart(
        bars=[
            bar for index, each in enumerate(columns) for bar in _bars(index, each, top, minutes)
        ],
        series=series,
        columns=[column for column in columns if column.total],
        top=top,
        total=totals.total(),
        start=start,
        end=start + MINUTE * minutes,
    )


def _series(totals: Counter[str]) -> list[Series]:
    ranked = totals.most_common()
    if len(ranked) > COLOURS:
        rest = sum(total for _, total in ranked[COLOURS - 1 :])
        ranked = [*ranked[: COLOURS - 1], (OTHERS, rest)]
    return [Series(name, index + 1, total) for index, (name, total) in enumerate(ranked)]


def _column(minute: datetime, counts: Counter[str], series: list[Series]) -> Column:
    named = [counts[each.name] for each in series]
    if len(series) == COLOURS and series[-1].name == OTHERS:
        named[-1] = counts.total() - sum(named[:-1])
    return Column(minute=minute, counts=named, total=counts.total())


def _bars(index: int, column: Column, top: int, minutes: int) -> list[Bar]:
    step = WIDTH / minutes
    bars, below = [], 0
    for colour, count in enumerate(column.counts, start=1):
        if count:
            below += count
            bars.append(
                Bar(
                    x=round(index * step, 2),
                    y=round(HEIGHT * (1 - below / top), 2),
                    width=round(step * 0.8, 2),
                    height=round(HEIGHT * count / top, 2),
                    colour=colour,
                )
            )
    return bars


def _rounded_up(value: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …: a scale that does not twitch at each refresh."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if value <= factor * step:
                return factor * step
        step *= 10
