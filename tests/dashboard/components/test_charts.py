"""Charts without a database: time ranges, shapes, gaps, markers, ticks and values."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.template.loader import render_to_string
from hypothesis import given
from hypothesis import strategies as st

from arrester.dashboard.components import time_range
from arrester.dashboard.components.charts import chart, chart_shapes, sparkline
from arrester.dashboard.components.charts.chart import (
    Chart,
    Compared,
    Marker,
    MarkerKind,
    Series,
    Shape,
    Unit,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
#: Ten minutes.
SPAN = time_range.span(
    {"from": "2026-11-20T12:00", "to": "2026-11-20T12:10"}, now=NOON + timedelta(hours=1)
)
FLOW = Chart(
    id="flow",
    title="Records",
    span=SPAN,
    shape=Shape.LINES,
    series=(
        Series(name="in", values=(5, 7, None, None, 3, None, 2, 2, 0, 4), colour="2"),
        Series(name="failed", values=(0, 1, None, None, 0, None, 0, 0, 0, 0), colour="failed"),
    ),
)


@pytest.mark.parametrize(
    ("asked", "columns", "unit"),
    [
        ({}, 61, "minute"),
        ({"range": "15m"}, 16, "minute"),
        ({"range": "6h"}, 73, "5 minutes"),
        ({"range": "24h"}, 25, "hour"),
        ({"range": "7d"}, 57, "3 hours"),
        ({"range": "30d"}, 61, "12 hours"),
        ({"from": "2026-11-20T09:00", "to": "2026-11-20T11:00"}, 24, "5 minutes"),
        ({"from": "2026-11-20T10:02", "to": "2026-11-20T12:02"}, 25, "5 minutes"),
        ({"from": "2025-01-01T00:00", "to": "2026-11-20T11:00"}, 26, "4 weeks"),
    ],
)
def test_a_chart_has_a_limited_number_of_equal_steps(
    asked: dict[str, str], columns: int, unit: str
) -> None:
    span = time_range.span(asked, now=NOON + timedelta(seconds=17))
    assert (span.columns, span.unit) == (columns, unit)
    assert span.start.timestamp() % span.step.total_seconds() == 0
    # The requested range, and less than a step more at either end.
    since = span.range.since
    assert since is not None and span.start <= since < span.start + span.step
    assert span.end - span.step < (span.range.until or NOON + timedelta(seconds=17)) <= span.end


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_a_chart_of_any_time_range_is_drawn(one: datetime, other: datetime) -> None:
    since, until = sorted([one, other])
    asked = {"from": since.isoformat(), "to": until.isoformat()} if since < until else {}
    span = time_range.span(asked, now=NOON)
    assert 1 <= span.columns <= time_range.MOST_COLUMNS + 1


def test_a_wider_range_has_twice_the_length_and_ends_now_at_the_latest() -> None:
    late, now = NOON + 90 * MINUTE, NOON + 12 * MINUTE + timedelta(seconds=7)
    assert SPAN.wider(now=late)[:2] == (NOON - 5 * MINUTE, NOON + 15 * MINUTE)
    assert SPAN.wider(now=now)[:2] == (NOON - 5 * MINUTE, NOON + 13 * MINUTE)
    assert SPAN.wider(now=NOON)[:2] == (NOON - 5 * MINUTE, NOON + 10 * MINUTE)


counts = st.lists(
    st.tuples(
        st.integers(0, 9).map(lambda minute: NOON + timedelta(minutes=minute)),
        st.sampled_from("abcdefgh"),
        st.integers(1, 10**6),
    )
)


def _numbers(path: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?[\d.]+", path)]


@given(counts)
def test_a_chart_shows_every_record_and_stays_inside(
    counted: list[tuple[datetime, str, int]],
) -> None:
    drawn = Chart(id="x", title="Failed records", span=SPAN, series=chart.by_name(counted, SPAN))
    total = sum(count for _, _, count in counted)
    assert drawn.total == total == sum(each.number or 0 for each in drawn.series)
    assert total == sum(value or 0 for row in drawn.rows for value in row.values)
    assert len(drawn.series) <= chart.COLOURS
    for _, path in chart_shapes.bars(drawn):
        for x, y, across, down, _ in zip(*[iter(_numbers(path))] * 5, strict=True):
            assert x >= 0 and x + across <= chart_shapes.WIDTH
            assert y >= -0.01 and y + down <= chart_shapes.HEIGHT + 0.02


def test_unknown_values_are_gaps_and_never_zero() -> None:
    (_, line), _ = chart_shapes.lines(FLOW)
    # A line, a single point, and a line.
    assert [part.count("L") for part in line.split("M")[1:]] == [1, 0, 3]
    assert chart_shapes.gaps(FLOW) == "M120 0h120v100h-120zM300 0h60v100h-60z"
    by_row = {row.number: row.values for row in FLOW.rows}
    assert by_row[2] == (None, None) and 8 not in by_row
    page = render_to_string("dashboard/plot.html", {"chart": FLOW})
    assert page.count(f"<td>{chart.UNKNOWN}</td>") == 6
    unknown = replace(FLOW, series=tuple(replace(each, values=[None] * 10) for each in FLOW.series))
    assert "No data" in render_to_string("dashboard/plot.html", {"chart": unknown})


def test_markers_are_drawn_by_column_and_are_in_the_table() -> None:
    def marker(minute: float, kind: MarkerKind, text: str) -> Marker:
        return Marker(moment=NOON + minute * MINUTE, kind=kind, text=text, url=f"/of/{minute}")

    marked = replace(
        FLOW,
        markers=(
            marker(8.5, MarkerKind.RELEASE, "Release <1.4.2>"),
            marker(3, MarkerKind.COMMAND, "paused by ana"),
            marker(8.75, MarkerKind.RELEASE, "Release 1.4.3"),
            marker(3.5, MarkerKind.START, "started"),
            marker(99, MarkerKind.END, "later"),
        ),
    )
    assert chart_shapes.marker_lines(marked) == "M180 0v100M510 0v100"
    page = render_to_string("dashboard/plot.html", {"chart": marked})
    flags = re.findall(r'<a href="([^"]+)"[^>]*class="flag".*?>([CSER+])</text>', page)
    assert flags == [("/of/3.5", "+"), ("/of/8.75", "R")]
    assert '<a href="/of/8.5">Release &lt;1.4.2&gt;</a><br>' in page
    assert "command</li>" in page and "release</li>" in page and "later" not in page


def test_compared_values_have_a_line_a_column_and_a_place_in_the_legend() -> None:
    before = Compared(name="in, 24 h earlier", values=(90, *[None] * 8, 1))
    both = replace(FLOW, compared=before)
    assert chart_shapes.compared(both).startswith("M0 10h60M540 ")
    assert chart_shapes.value_ticks(both) == ("100", "50", "0")
    page = render_to_string("dashboard/plot.html", {"chart": both})
    assert page.count("in, 24 h earlier") == 3 and "<td>90</td>" in page


@pytest.mark.parametrize("asked", time_range.RELATIVE)
def test_each_time_range_has_four_to_nine_ticks(asked: str) -> None:
    for minutes in range(0, 1440, 7):
        span = time_range.span({"range": asked}, now=NOON + timedelta(minutes=minutes))
        ticks = chart_shapes.time_ticks(span)
        assert 4 <= len(ticks) <= 9
        assert all(0 <= each.percent <= 100 for each in ticks)


@given(st.datetimes(timezones=st.just(UTC)), st.timedeltas(MINUTE, timedelta(days=3000)))
def test_any_time_range_has_a_limited_number_of_ticks(begin: datetime, length: timedelta) -> None:
    end = begin + min(length, datetime.max.replace(tzinfo=UTC) - begin)
    span = time_range.span({"from": begin.isoformat(), "to": end.isoformat()}, now=NOON)
    assert len(chart_shapes.time_ticks(span)) <= 9


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Unit.RECORDS, chart.UNKNOWN),
        (0, Unit.RECORDS, "0"),
        (1234, Unit.RECORDS, "1,234"),
        (0.25, Unit.RECORDS_PER_SECOND, "0.25/s"),
        (1234.5, Unit.RECORDS_PER_SECOND, "1,234/s"),
        (0.0031, Unit.SECONDS, "3.1 ms"),
        (1.25, Unit.SECONDS, "1.25 s"),
        (1200, Unit.SECONDS, "1,200 s"),
        (0, Unit.SECONDS, "0 s"),
        (1_500_000, Unit.BYTES, "1.5 MB"),
        (12, Unit.BYTES, "12 B"),
    ],
)
def test_values_are_written_in_their_unit(value: float | None, unit: Unit, text: str) -> None:
    assert chart_shapes.text(value, unit) == text


@given(st.floats(0, 1e12), st.sampled_from(Unit))
def test_the_value_axis_ends_at_a_round_number_above_all_values(value: float, unit: Unit) -> None:
    one = Series(name="x", values=[value] * 10, colour="1")
    end = chart_shapes.top(replace(FLOW, series=(one,), unit=unit))
    assert end >= value * (1 - 1e-6) and (value < 1 or end <= 2.5 * max(value, 1))
    if unit.is_whole:
        assert end % 2 == 0


@given(st.lists(st.integers(0, 10**12), max_size=48))
def test_a_sparkline_has_its_sum_as_text_and_stays_inside(values: list[int]) -> None:
    drawn = sparkline.spark(values)
    assert (drawn.total, drawn.most) == (sum(values), max(values, default=0))
    heights = [int(each) for each in re.findall(r"v-(\d+)h", drawn.path)]
    assert len(heights) == sum(1 for value in values if value)
    assert all(0 < each <= sparkline.HEIGHT for each in heights)
