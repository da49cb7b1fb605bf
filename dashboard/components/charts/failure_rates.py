"""Failed records over the time range of the URL: charts, sparklines, top causes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

from django.urls import reverse

from arrester.controlplane import queries
from arrester.controlplane.queries import FlowSums
from arrester.controlplane.queries.failure_history.counts import IntervalCount
from arrester.dashboard.components.charts import chart, sparkline
from arrester.dashboard.components.charts.chart import Chart, Compared, Series
from arrester.dashboard.components.charts.sparkline import Spark
from arrester.dashboard.components.time_range import Span
from arrester.domain.state.states import GroupState

HOUR = timedelta(hours=1)
DAY = 24
LAST_DAY = "24h"
Name = TypeVar("Name")


class Rate(NamedTuple):
    """The chart of failed records, with its time range."""

    chart: Chart
    span: Span
    #: What flowed through pipelines in this time; None: no agent measured it.
    flow: FlowSums | None = None


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
    series = _by_application(counted, requested)
    if application is None:
        series = tuple(
            each if each.name == chart.OTHERS else replace(each, url=_application(each.name))
            for each in series
        )
    drawn = Chart(
        id="rate",
        title="Failed records",
        span=requested,
        series=series,
        compared=_day_before(requested, application, fingerprint),
        link=f"{reverse('errors')}?",
    )
    flow = None if fingerprint is not None else _flow(requested, application)
    return Rate(chart=drawn, span=requested, flow=flow)


def _flow(span: Span, application: str | None) -> FlowSums | None:
    """Return the records that pipelines have read in a span, and those of them that failed."""
    length = span.end - span.start
    steps = queries.flow_series(
        since=span.start, until=span.end, step=length, application=application
    )
    return steps[0].sums if steps else None


def _day_before(span: Span, application: str | None, fingerprint: str | None) -> Compared | None:
    """Return the failures of the same hours of the day before, if there were any."""
    earlier = timedelta(hours=DAY)
    if span.end - span.start > earlier:
        return None
    counted = queries.failed_by_application(
        since=span.start - earlier,
        until=span.end - earlier,
        step=span.step,
        application=application,
        fingerprint=fingerprint,
        max_names=1,
    )
    values = [0] * span.columns
    for each in counted:
        column = span.column(each.moment + earlier)
        if column is not None:
            values[column] += each.count
    return Compared(name="all, 24 h earlier", values=values) if any(values) else None


def _by_application(counted: Iterable[IntervalCount], span: Span) -> tuple[Series, ...]:
    rows = ((each.moment, each.application, each.count) for each in counted)
    return chart.by_name(rows, span)


def _application(name: str) -> str:
    return reverse("application", args=[name])


def day(now: datetime) -> tuple[datetime, datetime]:
    """Return the 24 hours that end with the current one."""
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    return end - DAY * HOUR, end


def sparks_of_applications(*, now: datetime, application: str | None = None) -> dict[str, Spark]:
    """Return the last day of each application with failed records, or of one."""
    since, until = day(now)
    counted = queries.failed_by_application(
        since=since, until=until, step=HOUR, application=application
    )
    return _sparks(((each.application, each.moment, each.count) for each in counted), since)


def sparks_of_groups(
    groups: Iterable[GroupState], *, now: datetime
) -> dict[tuple[str, str], Spark]:
    """Return the last day of each of the groups, by application and fingerprint."""
    since, until = day(now)
    counted = queries.failed_by_group(groups, since=since, until=until)
    named = (
        ((each.application, each.fingerprint or ""), each.moment, each.count) for each in counted
    )
    return _sparks(named, since)


def _sparks(counted: Iterable[tuple[Name, datetime, int]], since: datetime) -> dict[Name, Spark]:
    values: dict[Name, list[int]] = {}
    for name, moment, count in counted:
        values.setdefault(name, [0] * DAY)[(moment - since) // HOUR] += count
    return {name: sparkline.spark(each) for name, each in values.items()}


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
    """The chart of the held records at the end of each column."""

    chart: Chart
    span: Span


def levels(requested: Span, *, application: str | None = None) -> Levels:
    """Return the chart of held records over a time range."""
    counted = queries.held_over_time(
        since=requested.start,
        until=requested.end,
        step=requested.step,
        application=application,
        max_names=chart.COLOURS,
    )
    series = (
        replace(each, number=each.values[-1], url="" if application else _held(each.name))
        for each in _by_application(counted, requested)
    )
    drawn = Chart(id="levels", title="Held records", span=requested, series=tuple(series))
    return Levels(drawn, requested)


def _held(application: str) -> str:
    if application == chart.OTHERS:
        return ""
    return f"{reverse('held')}?{urlencode({'application': application})}"


def backlog(
    total: int, requested: Span, *, limit: int, application: str | None = None
) -> dict[str, object]:
    """Return the held records over a time range, and the ranking of the tasks that hold most of
    `total`, for a template."""
    holding = queries.held(application, limit=limit).rows
    return {
        "levels": levels(requested, application=application),
        "backlog": ranked((task, task.held) for task in holding),
        "held_total": total,
        "held_more": sum(task.held for task in holding) < total,
    }
