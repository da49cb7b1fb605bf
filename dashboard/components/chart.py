"""Charts: from counts over time to shapes for SVG, and their tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTH, HEIGHT = 600.0, 100.0
SPARK_WIDTH, SPARK_HEIGHT = 96.0, 20.0
#: The applications with most failures have a colour each; the others share the last.
COLOURS = 5
OTHERS = "others"
#: The name of the others if they were already combined.
REST = ""


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
    """A step of time: its tooltip, and its row in the table."""

    moment: datetime
    end: datetime
    counts: list[int]
    total: int
    x: float
    width: float


class Chart(NamedTuple):
    """Everything that a template needs to draw and describe the chart."""

    bars: list[Bar]
    series: list[Series]
    columns: list[Column]
    top: int
    total: int
    start: datetime
    end: datetime

    @property
    def paths(self) -> list[tuple[int, str]]:
        """Return the bars of each colour as one path: hundreds of shapes are slow to write."""
        drawn: dict[int, list[str]] = defaultdict(list)
        for bar in self.bars:
            drawn[bar.colour].append(f"M{bar.x} {bar.y}h{bar.width}v{bar.height}h-{bar.width}z")
        return [(colour, "".join(drawn[colour])) for colour in sorted(drawn)]


Counted = tuple[datetime, str, int]


def stacked(counts: Iterable[Counted], *, start: datetime, step: timedelta, columns: int) -> Chart:
    """Return the chart of `(moment, application, count)` over `columns` steps from `start`."""
    by_step: dict[datetime, Counter[str]] = defaultdict(Counter)
    totals: Counter[str] = Counter()
    for moment, application, count in counts:
        by_step[moment][application] += count
        totals[application] += count
    total = totals.total()
    series = _series(totals)
    width = WIDTH / columns
    drawn = []
    for index in range(columns):
        moment = start + step * index
        drawn.append(_column(moment, step, index * width, width, by_step[moment], series))
    top = _rounded_up(max((column.total for column in drawn), default=0))
    return Chart(
        bars=[bar for column in drawn for bar in _bars(column, top)],
        series=series,
        columns=[column for column in drawn if column.total],
        top=top,
        total=total,
        start=start,
        end=start + step * columns,
    )


def _series(totals: Counter[str]) -> list[Series]:
    rest = totals.pop(REST, 0)
    ranked = totals.most_common()
    if rest:
        ranked = [*ranked, (OTHERS, rest)]
    elif len(ranked) > COLOURS:
        rest = sum(total for _, total in ranked[COLOURS - 1 :])
        ranked = [*ranked[: COLOURS - 1], (OTHERS, rest)]
    return [Series(name, index + 1, total) for index, (name, total) in enumerate(ranked)]


def _column(
    moment: datetime,
    step: timedelta,
    x: float,
    width: float,
    counts: Counter[str],
    series: list[Series],
) -> Column:
    named = [counts[each.name] for each in series]
    if len(series) == COLOURS and series[-1].name == OTHERS:
        named[-1] = counts.total() - sum(named[:-1])
    return Column(
        moment=moment,
        end=moment + step,
        counts=named,
        total=counts.total(),
        x=round(x, 2),
        width=round(width, 2),
    )


def _bars(column: Column, top: int) -> list[Bar]:
    bars, below = [], 0
    for colour, count in enumerate(column.counts, start=1):
        if count:
            below += count
            bars.append(
                Bar(
                    x=round(column.x + column.width * 0.1, 2),
                    y=round(HEIGHT * (1 - below / top), 2),
                    width=round(column.width * 0.8, 2),
                    height=round(HEIGHT * count / top, 2),
                    colour=colour,
                )
            )
    return bars


def _rounded_up(value: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, …: a scale that stays the same at most refreshes."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if value <= factor * step:
                return factor * step
        step *= 10


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
    step = int(SPARK_WIDTH) // max(1, len(values))
    base = int(SPARK_HEIGHT)
    bars = "".join(
        f"M{index * step} {base}v-{max(1, round(base * value / most))}h{max(1, step - 1)}V{base}z"
        for index, value in enumerate(values)
        if value
    )
    return Spark(path=f"M0 {base}v-.5h{int(SPARK_WIDTH)}v.5z{bars}", total=sum(values), most=most)
