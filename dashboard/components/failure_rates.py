"""Failed records over the time range of the URL: charts, sparklines, top causes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

from arrester.controlplane import queries
from arrester.controlplane.domain.state.states import GroupState
from arrester.dashboard.components import chart, time_range

HOUR = timedelta(hours=1)
DAY = 24
Name = TypeVar("Name")


#: The steps of charts with their names; the smallest with few enough columns is chosen.
STEPS = (
    (timedelta(minutes=1), "minute"),
    (timedelta(minutes=5), "5 minutes"),
    (HOUR, "hour"),
    (3 * HOUR, "3 hours"),
    (12 * HOUR, "12 hours"),
    (timedelta(days=1), "day"),
    (timedelta(days=7), "week"),
    (timedelta(days=28), "4 weeks"),
)
#: Plus one, if the range begins within a step.
MOST_COLUMNS = 72
#: Charts are limited to these years.
EARLIEST, LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
FIRST, LAST_DAY = "1h", "24h"


class Span(NamedTuple):
    """A range of time, divided into the columns of a chart."""

    range: time_range.Range
    start: datetime
    step: timedelta
    columns: int
    unit: str

    @property
    def end(self) -> datetime:
        """The end of the last column."""
        return self.start + self.step * self.columns

    @property
    def by_day(self) -> bool:
        """Whether times in it need the day."""
        return self.end - self.start > timedelta(hours=DAY)


class Rate(NamedTuple):
    """A chart with its time range, and the other ranges to choose from."""

    chart: chart.Chart
    span: Span
    names: tuple[str, ...] = tuple(time_range.RELATIVE)


def span(parameters: Mapping[str, str], *, now: datetime, default: str = FIRST) -> Span:
    """Return the time range of a URL's parameters, by default the last hour; see `time_range.read`.

    The columns contain all of it: the first may begin before it, the last end after it.
    """
    requested = time_range.read(parameters, now=now, default=default)
    until = _limited(requested.until or now)
    since = _limited(requested.since or until - time_range.RELATIVE["30d"])
    length = max(timedelta(minutes=1), until - since)
    step, unit = next((each for each in STEPS if length / each[0] <= MOST_COLUMNS), STEPS[-1])
    end = _floor(until - timedelta(microseconds=1), step) + step
    start = _floor(max(since, end - step * (MOST_COLUMNS + 1)), step)
    return Span(requested, start, step, max(1, (end - start) // step), unit)


def _limited(moment: datetime) -> datetime:
    """Return a moment, or the nearest one within the limits of charts."""
    return min(max(moment, EARLIEST), LATEST)


def _floor(moment: datetime, step: timedelta) -> datetime:
    seconds = step.total_seconds()
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


def rate(
    requested: Span, *, application: str | None = None, fingerprint: str | None = None
) -> Rate:
    """Return the failure rate by application: of all, of one, or of one of its error groups."""
    counted = queries.failed_by_application(
        since=requested.start,
        until=requested.end,
        step=requested.step,
        application=application,
        fingerprint=fingerprint,
        max_names=chart.COLOURS,
    )
    rows = ((each.moment, each.application, each.count) for each in counted)
    drawn = chart.stacked(
        rows, start=requested.start, step=requested.step, columns=requested.columns
    )
    return Rate(chart=drawn, span=requested)


def day(now: datetime) -> tuple[datetime, datetime]:
    """Return the 24 hours that end with the current one."""
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    return end - DAY * HOUR, end


def sparks_of_applications(
    *, now: datetime, application: str | None = None
) -> dict[str, chart.Spark]:
    """Return the last day of each application with failed records, or of one."""
    since, until = day(now)
    counted = queries.failed_by_application(
        since=since, until=until, step=HOUR, application=application
    )
    return _sparks(((each.application, each.moment, each.count) for each in counted), since)


def sparks_of_groups(
    groups: Iterable[GroupState], *, now: datetime
) -> dict[tuple[str, str], chart.Spark]:
    """Return the last day of each of the groups, by application and fingerprint."""
    since, until = day(now)
    counted = queries.failed_by_group(groups, since=since, until=until)
    named = (
        ((each.application, each.fingerprint or ""), each.moment, each.count) for each in counted
    )
    return _sparks(named, since)


def _sparks(
    counted: Iterable[tuple[Name, datetime, int]], since: datetime
) -> dict[Name, chart.Spark]:
    values: dict[Name, list[int]] = {}
    for name, moment, count in counted:
        values.setdefault(name, [0] * DAY)[(moment - since) // HOUR] += count
    return {name: chart.spark(each) for name, each in values.items()}


class Ranked(NamedTuple):
    """A line of a ranking: its subject, its count, and its share of the largest in percent."""

    subject: object
    number: int
    percent: float


def ranked(counted: Iterable[tuple[object, int]]) -> list[Ranked]:
    """Return the lines of a ranking, in the given order."""
    lines = list(counted)
    most = max((count for _, count in lines), default=0)
    return [Ranked(each, count, round(100 * count / most, 1)) for each, count in lines if count]


def causes(*, now: datetime, limit: int, application: str | None = None) -> dict[str, object]:
    """Return the ranking of the last day's causes with their sparklines, for a template."""
    since, until = day(now)
    top = queries.top_causes(since=since, until=until, application=application, limit=limit)
    sparks = sparks_of_groups([each.group for each in top], now=now)
    return {
        "causes": ranked((each.group, each.count) for each in top),
        "sparks": sparks,
        "quiet": queries.quiet_groups(application),
    }


class Levels(NamedTuple):
    """The held records at the end of each column of a chart, and their current owners."""

    chart: chart.Chart
    span: Span
    #: By series of the chart.
    now: list[tuple[chart.Series, int]]
    names: tuple[str, ...] = ("24h", "7d", "30d")


def levels(requested: Span, *, now: datetime, application: str | None = None) -> Levels:
    """Return the chart of held records over a time range, or over the last day if it is short.

    Held records are counted by the hour: a range of few hours has too few values.
    """
    if requested.step < HOUR:
        requested = span({}, now=now, default=LAST_DAY)
    counted = queries.held_over_time(
        since=requested.start,
        until=requested.end,
        step=requested.step,
        application=application,
        max_names=chart.COLOURS,
    )
    rows = ((each.moment, each.application, each.count) for each in counted)
    drawn = chart.stacked(
        rows, start=requested.start, step=requested.step, columns=requested.columns
    )
    last = drawn.columns[-1] if drawn.columns else None
    ends = last.counts if last is not None and last.end == requested.end else [0] * chart.COLOURS
    return Levels(drawn, requested, [*zip(drawn.series, ends, strict=False)])


def backlog(
    total: int, *, limit: int, now: datetime, application: str | None = None
) -> dict[str, object]:
    """Return the held records over the last day, and the ranking of the tasks that hold most of
    `total`, for a template."""
    holding = queries.held(application, limit=limit).rows
    return {
        "levels": levels(span({}, now=now, default=LAST_DAY), now=now, application=application),
        "backlog": ranked((task, task.held) for task in holding),
        "held_total": total,
        "held_more": sum(task.held for task in holding) < total,
    }
