"""Charts of values over time, drawn on the server as SVG, with a table of the same values.

A page reads one `Span` from its URL, and all its charts share it:

    span = time_range.span(request.GET, now=now)
    flow = Chart(
        id="flow",
        title="Records",
        span=span,
        unit=Unit.RECORDS,
        shape=Shape.LINES,
        series=(
            Series(name="in", values=records_in, colour="2", number=sum_of_known),
            Series(name="failed", values=failed, colour="failed"),
        ),
        compared=Compared(name="in, 24 h earlier", values=records_in_of_yesterday),
        markers=(Marker(moment=at, kind=MarkerKind.RELEASE, text="Release 1.4.2", url=url),),
    )

and its template draws each:

    {% include "dashboard/ranges.html" with span=span %}
    {% include "dashboard/plot.html" with chart=flow %}

`values` has one entry for each column of the span, oldest first. None is unknown: it is shown as a
gap and as a dash. 0 is a value. `charts.js` shows the values of a column at the pointer, on touch
and by the arrow keys; a dragged range becomes the time range of the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from arrester.dashboard.components.time_range import Span

#: The applications with most failures have a colour each; the others share the last.
COLOURS = 5
OTHERS = "others"
#: The name of the others if they were already combined.
REST = ""
#: Names of colours: `--chart-…` in the stylesheet, where `ink-…` sets it.
INKS = (*(str(number) for number in range(1, COLOURS + 1)), "running", "held", "failed")
UNKNOWN = "\N{EN DASH}"

Values = Sequence[float | None]


class Unit(StrEnum):
    """What a value counts or measures; bytes and seconds are written with a suitable prefix."""

    RECORDS = "records"
    RECORDS_PER_SECOND = "records/s"
    SECONDS = "seconds"
    FILES = "files"
    BYTES = "bytes"

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self in (Unit.RECORDS, Unit.FILES, Unit.BYTES)


class Shape(StrEnum):
    """How series are drawn."""

    #: Bars on top of each other: the values of a column have a meaningful sum.
    BARS = "bars"
    LINES = "lines"


class MarkerKind(StrEnum):
    """What happened at a marker; the initial is drawn."""

    COMMAND = "command"
    START = "start of a run"
    END = "end of a run"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named row of values, in the unit of its chart.

    Args:
        values: for each column its value; None is unknown.
        colour: one of INKS.
        number: the number beside the name in the legend; None shows none.
        url: where the name in the legend leads to.
    """

    name: str
    values: Values
    colour: str
    number: float | None = None
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A thin dashed line, like the same hours of the day before, in the unit of its chart."""

    name: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """An event at a time, with a page about it; those outside of the span are not drawn."""

    moment: datetime
    kind: MarkerKind
    text: str
    url: str


class Column(NamedTuple):
    """A step of time: a row of the table."""

    number: int
    moment: datetime
    end: datetime
    #: In the order of the series, then the compared value if there is one.
    values: tuple[float | None, ...]
    markers: tuple[Marker, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Values over time, with everything that a template needs to draw and describe them.

    Args:
        id: unique on its page.
        title: a noun without the time range, like "Failed records".
        unit: of all values.
        link: the URL of a page about a column, to which `from` and `to` are added; it ends with
            "?" or "&". Empty: a column has no page.
    """

    id: str
    title: str
    span: Span
    series: tuple[Series, ...]
    unit: Unit = Unit.RECORDS
    shape: Shape = Shape.BARS
    compared: Compared | None = None
    markers: tuple[Marker, ...] = ()
    link: str = ""

    @cached_property
    def columns(self) -> list[Column]:
        """All columns, oldest first."""
        rows = [each.values for each in self.series]
        if self.compared is not None:
            rows.append(self.compared.values)
        marked = self._markers()
        return (
            [
                Column(
                    number, self.span.moment(number), self.span.moment(number + 1), values, found
                )
                for number, values, found in zip(
                    range(self.span.columns), zip(*rows, strict=True), marked, strict=True
                )
            ]
            if rows
            else []
        )

    @property
    def rows(self) -> list[Column]:
        """The columns for the table: those with an unknown value, one other than 0, or a marker."""
        return [each for each in self.columns if each.markers or any(v != 0 for v in each.values)]

    @property
    def total(self) -> int:
        """The sum of all known values; meaningful for counts only."""
        return round(sum(value or 0 for each in self.series for value in each.values))

    @property
    def has_legend(self) -> bool:
        """Whether the heading of the chart leaves open what is drawn."""
        several = len(self.series) > 1 or self.compared is not None or bool(self.markers)
        return several or any(each.url for each in self.series)

    @property
    def is_known(self) -> bool:
        """Whether any value is known."""
        return any(value is not None for each in self.series for value in each.values)

    def _markers(self) -> list[tuple[Marker, ...]]:
        found: list[list[Marker]] = [[] for _ in range(self.span.columns)]
        for each in sorted(self.markers, key=lambda marker: marker.moment):
            number = self.span.column(each.moment)
            if number is not None:
                found[number].append(each)
        return [tuple(each) for each in found]


Counted = tuple[datetime, str, int]


def by_name(counts: Iterable[Counted], span: Span) -> tuple[Series, ...]:
    """Return a series for each name of `(moment, name, count)`; a missing count is 0.

    The names with the largest sums have a colour each; the others are combined as OTHERS.
    """
    values: dict[str, list[int]] = {}
    for moment, name, count in counts:
        column = span.column(moment)
        if column is not None:
            values.setdefault(name, [0] * span.columns)[column] += count
    ranked = Counter({name: sum(each) for name, each in values.items() if name != REST})
    names = [name for name, _ in ranked.most_common()]
    rest = [values[REST]] if REST in values else []
    if not rest and len(names) > COLOURS:
        rest = [values[name] for name in names[COLOURS - 1 :]]
        names = names[: COLOURS - 1]
    rows = [(name, values[name]) for name in names]
    if rest:
        rows.append((OTHERS, [sum(each) for each in zip(*rest, strict=True)]))
    return tuple(
        Series(name=name, values=row, colour=str(number), number=sum(row))
        for number, (name, row) in enumerate(rows, start=1)
    )
