"""Charts in a browser: values at the pointer, by keys and on touch; zoom by dragging."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, expect

from arrester.controlplane import actions
from tests.dashboard.browser import log_in, new_page, open_live
from tests.dashboard.story import Story

AGES = (9, 21, 40)


@pytest.fixture
def plot(page: Page, story: Story) -> Locator:
    """Open the overview with failed records in three minutes of the last hour."""
    for age in AGES:
        story.skips("EWR", age, ago=timedelta(minutes=age))
    page.goto(reverse("overview"))
    return page.locator("#rate-chart svg.chart")


def _x(plot: Locator, column: float) -> float:
    """Return the place of a column of the last hour on the page."""
    box = plot.bounding_box()
    assert box is not None
    return float(box["x"] + box["width"] * (column + 0.5) / 61)


def _y(plot: Locator) -> float:
    box = plot.bounding_box()
    assert box is not None
    return float(box["y"] + box["height"] / 2)


def _column(plot: Locator, age: int) -> int:
    """Return the column in which records failed."""
    start = plot.locator("xpath=ancestor::figure").get_attribute("data-start")
    first = datetime.fromisoformat(start or "")
    row = plot.page.locator("#rate .table-behind tbody tr", has_text=f"{age}")
    columns = [int(each.get_attribute("data-at") or -1) for each in row.all()]
    near = (timezone.now() - timedelta(minutes=age) - first) / timedelta(minutes=1)
    return min(columns, key=lambda column: abs(column - near))


def test_the_values_of_a_column_are_shown_at_the_pointer(plot: Locator) -> None:
    page, readout = plot.page, plot.page.locator("#rate-chart [data-readout]")
    expect(readout).to_be_hidden()
    page.mouse.move(_x(plot, _column(plot, 21)), _y(plot))
    expect(readout).to_contain_text("flights21")
    page.mouse.move(_x(plot, _column(plot, 21) + 3), _y(plot))
    expect(readout).to_contain_text("flights0")
    page.mouse.move(1, 1)
    expect(readout).to_be_hidden()


def test_a_column_leads_to_its_errors(plot: Locator) -> None:
    plot.page.mouse.click(_x(plot, _column(plot, 40)), _y(plot))
    plot.page.wait_for_url(re.compile(r"/errors\?from="))
    expect(plot.page.locator("[data-rows] > [id]")).to_have_count(1)


def test_keys_read_the_values_and_zoom(plot: Locator) -> None:
    page, wanted = plot.page, _column(plot, 21)
    plot.focus()
    page.keyboard.press("Home")
    for _ in range(wanted):
        page.keyboard.press("ArrowRight")
    expect(plot).to_have_attribute("aria-valuenow", str(wanted))
    expect(plot).to_have_attribute("aria-valuetext", re.compile(r"\d\d:\d\d to .*, flights 21$"))
    page.keyboard.press("Shift+PageUp")
    expect(page.locator("#rate-chart [data-readout]")).to_contain_text("Enter")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\?from="))
    expect(page.locator("#rate .card-head b")).to_have_text("21")


def test_dragging_sets_the_time_range_of_the_page_and_back_restores_it(plot: Locator) -> None:
    page, column = plot.page, _column(plot, 21)
    page.mouse.move(_x(plot, column - 4), _y(plot))
    page.mouse.down()
    page.mouse.move(_x(plot, column + 5), _y(plot), steps=3)
    expect(page.locator("#rate-chart [data-readout]")).to_contain_text("to zoom in")
    page.mouse.up()
    page.wait_for_url(re.compile(r"\?from="))
    asked = {name: value for name, (value,) in parse_qs(urlsplit(page.url).query).items()}
    begin, end = (
        datetime.fromisoformat(asked[name]).replace(tzinfo=UTC) for name in ("from", "to")
    )
    assert asked.keys() == {"from", "to"} and end - begin == timedelta(minutes=10)
    expect(page.locator("#rate .card-head b")).to_have_text("21")
    expect(page.locator("#rate-chart")).to_have_attribute("data-columns", "10")
    page.get_by_role("link", name="Zoom out").click()
    expect(page.locator("#rate-chart")).to_have_attribute("data-columns", "20")
    page.go_back()
    expect(page.locator("#rate-chart")).to_have_attribute("data-columns", "10")
    page.go_back()
    expect(page.locator("#rate .card-head b")).to_have_text(str(sum(AGES)))


def test_a_refresh_keeps_the_shown_values(page: Page, story: Story) -> None:
    failed_at = timezone.now() - timedelta(minutes=9)
    story.skips("EWR", 5, ago=timezone.now() - failed_at)
    open_live(page, reverse("overview"))
    plot, readout = (
        page.locator("#rate-chart svg.chart"),
        page.locator("#rate-chart [data-readout]"),
    )
    page.mouse.move(_x(plot, _column(plot, 5)), _y(plot))
    expect(readout).to_contain_text("flights5")
    # In the same minute, even if one began meanwhile.
    story.skips("EWR", 7, ago=timezone.now() - failed_at)
    expect(readout).to_contain_text("flights12")


def test_a_finger_shows_values_and_zooms(browser: Browser, server: str, story: Story) -> None:
    story.skips("EWR", 5, ago=timedelta(minutes=9))
    page = new_page(
        browser, server, has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844}
    )
    log_in(page, "ana", server)
    page.goto(reverse("overview"))
    plot, readout = (
        page.locator("#rate-chart svg.chart"),
        page.locator("#rate-chart [data-readout]"),
    )
    plot.scroll_into_view_if_needed()
    column = _column(plot, 5)
    page.touchscreen.tap(_x(plot, column), _y(plot))
    expect(readout).to_contain_text("flights5")
    page.touchscreen.tap(5, _y(plot) + 300)
    expect(readout).to_be_hidden()
    client = page.context.new_cdp_session(page)
    for kind, at in (("Start", column - 9), ("Move", column - 2), ("Move", column + 3), ("End", 0)):
        points = [] if kind == "End" else [{"x": _x(plot, at), "y": _y(plot)}]
        client.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    page.wait_for_url(re.compile(r"\?from="))
    expect(page.locator("#rate .card-head b")).to_have_text("5")
    page.context.close()


def test_all_charts_of_a_page_show_the_same_time(plot: Locator, story: Story) -> None:
    story.pauses("JFK", held=5, ago=timedelta(minutes=30))
    page = plot.page
    page.reload()
    page.mouse.move(_x(plot, 20), _y(plot))
    cursors = page.locator("[data-cursor]")
    expect(cursors).to_have_count(2)
    places = {(each.get_attribute("x"), each.get_attribute("width")) for each in cursors.all()}
    assert len(places) == 1 and page.locator("[data-readout]:visible").count() == 1


def test_equal_events_of_a_column_are_one_line_below_the_values(page: Page, story: Story) -> None:
    story.flows(ago=9, records_in=5)
    for key in ("EWR", "JFK", "LGA"):
        story.pauses(key, held=1)
        actions.resume_task(story.task(key).digest, actor="ana")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(reverse("pipeline", args=["flights", "delays"]))
    plot, readout = (
        page.locator("#records-chart svg.chart"),
        page.locator("#records-chart [data-readout]"),
    )
    # A minute may begin between two commands.
    row = page.locator("#records-chart ~ .table-behind tr:has(td.events a ~ a)").first
    column = int(row.get_attribute("data-at") or -1)
    plot.scroll_into_view_if_needed()
    page.mouse.move(_x(plot, column), _y(plot))
    events = readout.locator("dd.events")
    expect(events).to_contain_text("\N{MULTIPLICATION SIGN} RESUME_TASK by ana")
    name = readout.get_by_text("written").bounding_box()
    assert name is not None and name["width"] > name["height"]
