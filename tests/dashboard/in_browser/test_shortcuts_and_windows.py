"""Shortcuts, many windows, waiting rows, time zones and remembered choices in a real browser."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from django.db import connection
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from arrester.controlplane import queries
from tests.dashboard.accessibility import violations
from tests.dashboard.browser import Windows, expect_no_reload, log_in, new_page, open_live
from tests.dashboard.story import NA, TYPO, Story, failure

pytestmark = pytest.mark.e2e


@pytest.mark.long
def test_ten_windows_are_live_on_one_stream(browser: Browser, server: str, story: Story) -> None:
    context = new_page(browser, server).context
    pages = [*context.pages, *(context.new_page() for _ in range(9))]
    log_in(pages[0], "ana", server)
    for page in pages:
        open_live(page, "/")
    story.pauses("JFK")
    for page in pages:
        expect(page.locator("#needs .state")).to_have_text("PAUSED")
        expect_no_reload(page)
    # The window that opened the stream is closed; the others stay live.
    pages[0].close()
    story.pauses("LGA")
    for page in pages[1:]:
        expect(page.locator("#needs").get_by_text("2 tasks of delays")).to_be_visible()
    context.close()


def test_without_shared_workers_a_page_is_live_by_itself(
    browser: Browser, server: str, story: Story
) -> None:
    page = new_page(browser, server)
    page.add_init_script("delete window.SharedWorker")
    log_in(page, "ana", server)
    open_live(page, "/")
    story.pauses("JFK")
    expect(page.locator("#needs").get_by_text("delays_JFK")).to_be_visible()
    page.context.close()


def test_enter_opens_the_first_result_of_what_was_typed_last(page: Page, story: Story) -> None:
    story.pauses("JFK", held=5)
    story.pauses("EWR", record={"invoice": "INV-001-0017"})
    open_live(page, "/errors")
    page.keyboard.press("Control+k")
    # Faster than the results come.
    page.keyboard.type("jf")
    page.keyboard.type("k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="delays_JFK")).to_be_visible()

    page.keyboard.press("Control+k")
    page.keyboard.type("invoice:INV-001-0017")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Record of delays_EWR at 151,974")).to_be_visible()
    expect(page.get_by_text("Its task is stopped at this record.")).to_be_visible()
    assert violations(page) == []

    page.keyboard.press("Control+k")
    page.keyboard.type("invoice:INV-001-0018")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Search")).to_be_visible()
    expect(page.get_by_text("No matches")).to_be_visible()


def test_the_search_and_an_earlier_state_need_the_keyboard_only(page: Page, story: Story) -> None:
    story.pauses("JFK", held=5)
    open_live(page, "/errors")
    page.get_by_label("Class or message contains").focus()
    page.keyboard.press("Control+k")
    page.keyboard.type("jfk")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("link", name="delays_JFK flights")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("link", name="delays_JFK flights")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="delays_JFK")).to_be_visible()
    page.locator("summary", has_text="As of").focus()
    page.keyboard.press("Enter")
    assert violations(page) == []
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("0s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Back to now")).to_be_visible()


def test_new_rows_wait_behind_a_button(page: Page, story: Story) -> None:
    story.pauses("JFK")
    open_live(page, "/tasks")
    expect(page.locator("#tasks > tr")).to_have_count(1)
    story.pauses("LGA")
    story.pauses("SEA", held=7)
    story.pauses("JFK", held=99)
    pill = page.get_by_role("button", name="2 changes")
    expect(pill).to_be_visible()
    expect(page.locator("#tasks > tr")).to_have_count(1)
    # The content of a row is updated at once.
    expect(page.locator("#tasks > tr").first).to_contain_text("99")
    pill.click()
    expect(page.locator("#tasks > tr")).to_have_count(3)
    expect(pill).to_be_hidden()
    expect_no_reload(page)


def test_nothing_moves_under_the_pointer(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    open_live(page, "/")
    row = page.locator("#needs > li").first
    row.hover()
    before = row.bounding_box()
    story.pauses("LGA", cause=failure("produce", "app.Full", "no room"))
    story.resumes("JFK", story.command(task))
    expect(page.get_by_role("button", name="2 changes")).to_be_visible()
    expect(row).to_have_class("removed")
    assert row.bounding_box() == before
    page.mouse.move(5, 5)
    expect(page.locator("#needs > li")).to_have_count(1)
    expect(page.locator("#needs")).to_contain_text("delays_LGA")


def test_opened_details_and_the_scroll_position_survive_a_refresh(page: Page, story: Story) -> None:
    task = story.pauses("JFK", held=5)
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_text("1 frame of Spark and Python").click()
    page.evaluate("scrollTo(0, 300)")
    story.pauses("JFK", held=77)
    expect(page.locator(".facts b").first).to_have_text("77")
    expect(page.locator("#fold-2").get_by_text("in guarded")).to_be_visible()
    assert page.evaluate("scrollY") == 300
    expect_no_reload(page)


def test_keys_move_and_open_but_never_act(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    story.pauses("LGA", cause=failure("produce", "app.Full", "no room"))
    open_live(page, "/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("#needs > li").first.locator("a")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{reverse('task', args=[task.digest])}")
    open_live(page, page.url)
    page.keyboard.press("r")
    expect(page.locator("#resume")).to_be_focused()
    for key in "jkxrem[]/":
        page.keyboard.press(key)
    assert queries.commands().rows == ()
    page.keyboard.press(".")
    expect(page.locator("[data-live-switch]")).to_have_attribute("data-state", "off")
    page.keyboard.press(".")
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url("**/errors")
    expect(page.locator("[data-live-switch]")).to_have_attribute("data-state", "on")
    page.keyboard.press("/")
    page.keyboard.type("gjk?")
    expect(page.get_by_role("searchbox").first).to_have_value("gjk?")
    page.get_by_role("searchbox").first.blur()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard")
    expect(keys).to_be_visible()
    keys.get_by_label("Keyboard shortcuts are on in this browser").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_timeout(300)
    assert page.url.endswith("/errors")


def test_keys_focus_the_buttons_of_an_error(page: Page, story: Story) -> None:
    story.skips("EWR", 3)
    open_live(page, reverse("error", args=["flights", NA.fingerprint]))
    page.keyboard.press("e")
    expect(page.locator("#resolve")).to_be_focused()
    page.keyboard.press("m")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert queries.group("flights", NA.fingerprint).state.status == "UNRESOLVED"


def test_times_are_in_utc_or_in_the_zone_of_the_browser(
    browser: Browser, server: str, story: Story
) -> None:
    story.pauses("JFK")
    page = new_page(browser, server, timezone_id="Asia/Kolkata")
    log_in(page, "ana", server)
    page.goto(reverse("task", args=[story.task("JFK").digest]))
    clock = page.locator("#events time").first
    utc = clock.text_content()
    page.locator("[data-zone-switch]").click()
    expect(page.locator(".foot")).to_contain_text("UTC+05:30")
    assert clock.text_content() != utc
    page.reload()
    expect(clock).not_to_have_text(utc or "")
    clock.hover()
    expect(clock).to_have_attribute("title", re.compile(r"UTC\+05:30$"))
    page.locator("[data-zone-switch]").click()
    expect(clock).to_have_text(utc or "")
    page.context.close()


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_the_reference_of_rest_has_the_colours_of_the_system(
    windows: Windows, story: Story, size: tuple[int, int]
) -> None:
    with windows.open("ben", size=size) as page:
        page.goto(reverse("api-docs"))
        title = page.locator(".info .title")
        expect(title).to_contain_text("Arrester")
        views: tuple[tuple[Literal["dark", "light"], str, re.Pattern[str]], ...] = (
            ("dark", "rgb(28, 32, 34)", re.compile(r"rgb\(2\d\d, 2\d\d, 2\d\d\)")),
            ("light", "rgb(250, 250, 250)", re.compile(r"rgb\(\d\d, \d\d, \d\d\)")),
        )
        for scheme, ground, ink in views:
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("body")).to_have_css("background-color", ground)
            expect(title).to_have_css("color", ink)
            expect(page.locator(".opblock-summary-path").first).to_have_css("color", ink)


def test_the_form_of_a_trace_and_of_a_record_is_remembered(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    url = reverse("task", args=[task.digest])
    open_live(page, url)
    expect(page.locator("#trace")).to_be_hidden()
    page.locator("[data-choice=trace]").get_by_role("button", name="Raw").click()
    page.get_by_role("button", name="Hex").click()
    expect(page.locator("#trace")).to_be_visible()
    story.pauses("JFK", held=12)
    expect(page.locator(".facts b").first).to_have_text("12")
    expect(page.locator("#trace")).to_be_visible()
    page.goto(reverse("error", args=["flights", TYPO.fingerprint]))
    expect(page.locator("#trace")).to_be_visible()
    page.goto(reverse("error", args=["flights", TYPO.fingerprint]) + "?tab=record")
    expect(page.get_by_text("00000000").first).to_be_visible()


def test_a_hidden_window_leaves_the_stream_and_catches_up(page: Page, story: Story) -> None:
    open_live(page, "/")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    page.evaluate(hide % "true" + "document.dispatchEvent(new Event('visibilitychange'))")
    # At once if the browser reports a closed page, else after a timeout.
    for _ in range(300):
        if not listening():
            break
        page.wait_for_timeout(100)
    assert not listening()
    story.skips("EWR", 3)
    story.pauses("JFK")
    page.wait_for_timeout(700)
    expect(page.get_by_text("Nothing needs attention")).to_be_visible()
    page.evaluate(hide % "false" + "document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#needs").get_by_text("delays_JFK")).to_be_visible()
    expect_no_reload(page)


def listening() -> int:
    """Return how many connections listen for a web process."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])


def test_printed_pages_have_the_tables_of_the_charts(page: Page, story: Story) -> None:
    story.skips("EWR", 12)
    page.goto(reverse("error", args=["flights", NA.fingerprint]))
    table = page.get_by_role("columnheader", name="From (UTC)")
    expect(table).to_be_hidden()
    page.emulate_media(media="print")
    expect(table).to_be_visible()
