"""The shapes of a chart for SVG, the ticks of its axes, and its values as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from arrester.dashboard.components.charts.chart import UNKNOWN, Chart, Column, Shape, Unit, Values
from arrester.dashboard.components.time_range import Span

WIDTH, HEIGHT = 600.0, 100.0
#: Distances of time ticks; the largest that gives LEAST_TICKS is chosen.
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TICK_STEPS = (
    *(_MINUTE * number for number in (1, 2, 3, 5, 10, 15, 20, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 4, 7, 14, 28)),
)
LEAST_TICKS = 4
#: Space between two columns of bars, as a share of a column.
_SPACE = 0.1
#: The width of a value between unknown ones, if its column is narrower.
_LEAST_LINE = 4.0
_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (1000, "kB"))
_LARGE = ((10**12, "tn"), (10**9, "bn"), (10**6, "m"))


class Path(NamedTuple):
    """A path of one colour."""

    colour: str
    path: str


class TimeTick(NamedTuple):
    """A time at the axis, at a share of the width in percent."""

    moment: datetime
    percent: float
    #: The form of its text: "day", or "tick": the time of a day, or at its begin the day.
    form: str


def top(chart: Chart) -> float:
    """Return the end of the value axis: a round number that stays the same at most refreshes."""
    if chart.shape is Shape.BARS:
        rows = zip(*(each.values for each in chart.series), strict=True)
        heights = [sum(value or 0 for value in row) for row in rows]
    else:
        heights = [value or 0 for each in chart.series for value in each.values]
    if chart.compared is not None:
        heights += [value or 0 for value in chart.compared.values]
    return _rounded_up(max(heights, default=0), whole=chart.unit.is_whole)


def _rounded_up(value: float, *, whole: bool) -> float:
    """Return the next of 1, 2, 4, 10, 20, 40, …: half of it is round. At least 2 if whole."""
    if value < 1e-9:
        return 2.0 if whole else 1.0
    step = 10.0 ** math.floor(math.log10(value))
    factors = (each * step for each in (1, 2, 4, 10, 20))
    found = next(each for each in factors if value <= each * (1 + 1e-9))
    return max(found, 2.0) if whole else found


def value_ticks(chart: Chart) -> tuple[str, ...]:
    """Return the texts of the value axis, from the top down to 0."""
    end = top(chart)
    return tuple(short(value, chart.unit) for value in (end, end / 2, 0))


def time_ticks(span: Span) -> list[TimeTick]:
    """Return round times of a span."""
    length = span.end - span.start
    step = next(
        (each for each in reversed(TICK_STEPS) if len(_multiples(span, each)) >= LEAST_TICKS),
        TICK_STEPS[0],
    )
    if length / step >= 2 * LEAST_TICKS:
        step *= math.ceil(length / step / LEAST_TICKS)
    form = "day" if step >= _DAY else "tick"
    return [
        TimeTick(moment, round(100 * ((moment - span.start) / length), 2), form)
        for moment in _multiples(span, step)
    ]


def _multiples(span: Span, step: timedelta) -> list[datetime]:
    seconds = step.total_seconds()
    first = math.ceil(span.start.timestamp() / seconds) * seconds
    number = max(0, math.floor((span.end.timestamp() - first) / seconds) + 1)
    # More are never drawn.
    return [datetime.fromtimestamp(first + seconds * each, UTC) for each in range(min(number, 100))]


def bars(chart: Chart) -> list[Path]:
    """Return the bars of each series as one path: hundreds of shapes are slow to write."""
    width, end = WIDTH / chart.span.columns, top(chart)
    below = [0.0] * chart.span.columns
    paths = []
    for series in chart.series:
        drawn = []
        for column, value in enumerate(series.values):
            if value:
                below[column] += value
                x, y = column * width + width * _SPACE, HEIGHT * (1 - below[column] / end)
                across, down = _text(width * (1 - 2 * _SPACE)), _text(HEIGHT * value / end)
                drawn.append(f"M{_text(x)} {_text(y)}h{across}v{down}h-{across}z")
        paths.append(Path(series.colour, "".join(drawn)))
    return paths


def lines(chart: Chart) -> list[Path]:
    """Return the line of each series; an unknown value interrupts it."""
    return [Path(each.colour, _line(each.values, top(chart))) for each in chart.series]


def compared(chart: Chart) -> str:
    """Return the line of the compared values."""
    return "" if chart.compared is None else _line(chart.compared.values, top(chart))


def _line(values: Values, end: float) -> str:
    """Return a line through the middles of the columns; a single value is a short line."""
    width = WIDTH / len(values)
    short_line = max(width, _LEAST_LINE)
    parts = []
    known = ((column, value) for column, value in enumerate(values) if value is not None)
    for _, some in groupby(enumerate(known), key=lambda each: each[1][0] - each[0]):
        points = [
            ((column + 0.5) * width, HEIGHT * (1 - value / end)) for _, (column, value) in some
        ]
        if len(points) == 1:
            [(x, y)] = points
            parts.append(f"M{_text(x - short_line / 2)} {_text(y)}h{_text(short_line)}")
        else:
            parts.append("M" + "L".join(f"{_text(x)} {_text(y)}" for x, y in points))
    return "".join(parts)


def gaps(chart: Chart) -> str:
    """Return rectangles over the columns in which no value of a series is known."""
    width = WIDTH / chart.span.columns
    rows = zip(*(each.values for each in chart.series), strict=True)
    unknown = [number for number, row in enumerate(rows) if all(value is None for value in row)]
    parts = []
    for _, some in groupby(enumerate(unknown), key=lambda each: each[1] - each[0]):
        numbers = [number for _, number in some]
        across = _text(width * len(numbers))
        parts.append(f"M{_text(numbers[0] * width)} 0h{across}v{HEIGHT:.0f}h-{across}z")
    return "".join(parts)


def marked(chart: Chart) -> list[tuple[Column, float]]:
    """Return the columns with markers, and where their first marker is, in percent of the width."""
    length = chart.span.end - chart.span.start
    return [
        (each, round(100 * ((each.markers[0].moment - chart.span.start) / length), 2))
        for each in chart.columns
        if each.markers
    ]


def marker_lines(chart: Chart) -> str:
    """Return a vertical line for each column with markers."""
    return "".join(
        f"M{_text(WIDTH * percent / 100)} 0v{HEIGHT:.0f}" for _, percent in marked(chart)
    )


def _text(number: float) -> str:
    """Return a coordinate in as few characters as possible."""
    return f"{round(number, 2):.4g}"


def text(value: float | None, unit: Unit) -> str:
    """Return a value in full; a dash if it is unknown."""
    if value is None:
        return UNKNOWN
    match unit:
        case Unit.SECONDS:
            return _seconds(value)
        case Unit.BYTES:
            return _scaled(value, _BYTES, "B")
        case Unit.RECORDS_PER_SECOND:
            return f"{_significant(value)}/s"
        case _:
            return f"{value:,.0f}"


def short(value: float, unit: Unit) -> str:
    """Return a value for an axis."""
    if unit in (Unit.RECORDS, Unit.FILES):
        return _scaled(value, _LARGE, "") if value >= _LARGE[-1][0] else f"{value:,.0f}"
    return text(value, unit) if value else "0"


def _seconds(value: float) -> str:
    if value and value < 1:
        return f"{_significant(value * 1000)} ms"
    return f"{_significant(value)} s"


def _scaled(value: float, steps: Iterable[tuple[int, str]], without: str) -> str:
    for size, word in steps:
        if value >= size:
            return f"{value / size:,.3g} {word}"
    return f"{value:,.0f} {without}".rstrip()


def _significant(value: float) -> str:
    """Return a number with three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
