"""Live pages, dialogs, roles, sizes and themes in a real browser."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from arrester.controlplane import queries
from arrester.domain.state.states import CommandStatus
from tests.dashboard.accessibility import violations
from tests.dashboard.browser import (
    Windows,
    expect_no_reload,
    log_in,
    new_page,
    open_live,
)
from tests.dashboard.story import NA, Story
from tests.patience import PATIENCE_MS

pytestmark = pytest.mark.e2e


def test_a_pause_appears_without_reload(page: Page, story: Story) -> None:
    open_live(page, "/")
    expect(page.get_by_text("Nothing needs attention")).to_be_visible()
    story.pauses("JFK", held=5)
    expect(page.get_by_role("heading", name="1 item needs attention")).to_be_visible()
    expect(page.locator(".needs .state")).to_have_text("PAUSED")
    expect(page.locator("#position")).to_have_text("flights @ 6")
    expect(page).to_have_title("(1) Overview · Arrester")
    expect_no_reload(page)


def test_the_title_of_a_hidden_page_has_the_number_of_problems(page: Page, story: Story) -> None:
    open_live(page, "/errors")
    expect(page).to_have_title("Errors · Arrester")
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", { get: () => true });
        document.dispatchEvent(new Event("visibilitychange"));
        const now = Date.now;
        Date.now = () => now() + 60000;
    }""")
    story.pauses("JFK")
    story.pauses("LGA", cause=NA)
    expect(page).to_have_title("(2) Errors · Arrester")
    expect_no_reload(page)


def test_resume_from_the_click_to_running(page: Page, story: Story) -> None:
    task = story.pauses("JFK", held=5)
    open_live(page, reverse("task", args=[task.digest]))
    expect(page.get_by_text("Commands are applied by spark-driver-0")).to_be_visible()
    page.get_by_role("button", name="Resume task", exact=True).click()
    expect(page.get_by_text("waiting for an instance")).to_be_visible()
    command = queries.commands().rows[0].id
    story.fetches(command)
    expect(page.get_by_text("waiting for an answer")).to_be_visible()
    story.resumes("JFK", command)
    expect(page.locator("h1 .state")).to_have_text("RUNNING")
    expect(page.locator("#actions .state")).to_have_text("APPLIED")
    expect(page.get_by_role("button", name="Resume task", exact=True)).to_be_disabled()
    expect_no_reload(page)


def test_text_typed_in_a_dialog_survives_a_refresh(page: Page, story: Story) -> None:
    task = story.pauses("JFK", held=5)
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Skip record and resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("is not processed")).to_be_visible()
    expect(dialog.get_by_text("N384HA", exact=True)).to_be_visible()
    dialog.get_by_label("Reason").fill("a typo in the source")
    story.skips("JFK", 250)
    expect(page.get_by_text("251", exact=True).first).to_be_attached()
    expect(dialog.get_by_label("Reason")).to_have_value("a typo in the source")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Enter")
    assert queries.commands().rows == ()
    dialog.get_by_role("button", name="Skip record and resume").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("“a typo in the source”")).to_be_visible()
    assert queries.commands().rows[0].reason == "a typo in the source"
    expect_no_reload(page)


def test_closing_a_dialog_does_nothing(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    open_live(page, reverse("task", args=[task.digest]))
    page.get_by_role("button", name="Skip record and resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Skip record and resume").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert queries.commands().rows == ()


def test_a_policy_is_set_on_its_tab_and_shown_with_user_and_time(page: Page, story: Story) -> None:
    open_live(page, reverse("application", args=["flights"]) + "?tab=policy")
    stage = page.locator(".policy tr", has_text="process:validate")
    stage.get_by_role("button", name="Set the answer of process:validate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Commands are applied by spark-driver-0")).to_be_visible()
    assert violations(page) == []
    dialog.get_by_label("PAUSE").check()
    dialog.get_by_label("Reason").fill("a new carrier")
    dialog.get_by_role("button", name="Set policy", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("waiting for an instance")).to_be_visible()
    command = queries.commands().rows[0].id
    story.fetches(command)
    story.applies_policy(command)
    expect(stage.locator(".state").first).to_have_text("PAUSE")
    expect(stage.get_by_text("command by ana")).to_be_visible()
    expect(stage.get_by_text("“a new carrier”")).to_be_visible()
    assert violations(page) == []
    expect_no_reload(page)


def test_an_application_is_shut_down_by_its_name_and_started_again(
    page: Page, story: Story
) -> None:
    open_live(page, reverse("application", args=["flights"]) + "?tab=instances")
    page.get_by_role("button", name="Shut down application").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Shut down flights")
    expect(dialog.get_by_label("Type flights to confirm")).to_be_focused()
    dialog.get_by_label("Reason").fill("maintenance")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type flights to confirm").fill("flights")
    confirm.click()
    expect(dialog).to_be_hidden()
    expect(page.locator("h1 .state")).to_have_text("Application LATCHED")
    command = queries.commands().rows[0].id
    story.stops(command=command)
    expect(page.get_by_text("No live instance.").first).to_be_visible()
    assert queries.command(command).status is CommandStatus.APPLIED
    page.get_by_role("button", name="Start application").click()
    dialog.get_by_role("button", name="Start flights").click()
    expect(page.locator("h1 .state")).to_have_text("Application OPEN")
    expect_no_reload(page)


def test_a_viewer_sees_why_buttons_are_disabled(windows: Windows, story: Story) -> None:
    task = story.pauses("JFK")
    with windows.open("ben") as page:
        open_live(page, reverse("task", args=[task.digest]))
        for name in ("Resume task", "Skip record and resume…"):
            button = page.get_by_role("button", name=name, exact=True)
            expect(button).to_be_disabled()
            expect(button).to_have_attribute("title", "requires the role operator")
        expect(page.get_by_text("Requires the role operator.")).to_be_visible()


def test_opened_details_and_typed_text_survive_a_refresh(page: Page, story: Story) -> None:
    story.skips("EWR", 3)
    open_live(page, "/errors")
    page.get_by_label("Class or message contains").fill("half a wo")
    story.skips("EWR", 1000)
    expect(page.get_by_text("1,003", exact=True)).to_be_visible()
    expect(page.get_by_label("Class or message contains")).to_have_value("half a wo")
    open_live(page, reverse("error", args=["flights", NA.fingerprint]))
    page.get_by_text("As a table").click()
    story.skips("EWR", 2)
    expect(page.locator("#rate b")).to_have_text("1,005")
    expect(page.get_by_role("columnheader", name="From (UTC)")).to_be_visible()
    expect_no_reload(page)


def test_the_live_switch_stops_and_catches_up(page: Page, story: Story) -> None:
    open_live(page, "/")
    switch = page.locator("[data-live-switch]")
    switch.click()
    expect(switch).to_have_attribute("data-state", "off")
    story.pauses("JFK")
    page.wait_for_timeout(1000)
    expect(page.get_by_text("Nothing needs attention")).to_be_visible()
    page.reload()
    expect(switch).to_have_attribute("data-state", "off")
    page.evaluate("window.mark = 'not reloaded'")
    story.pauses("LGA", cause=NA)
    switch.click()
    expect(page.locator("#needs").get_by_text("delays_LGA")).to_be_visible()
    expect_no_reload(page)


def test_without_the_stream_the_page_polls(browser: Browser, server: str, story: Story) -> None:
    page = new_page(browser, server)
    # Playwright intercepts the requests of a page's own worker, and not those of a shared one.
    page.add_init_script("delete window.SharedWorker")
    page.route("**/live?*", lambda route: route.abort())
    log_in(page, "ana", server)
    page.goto("/")
    switch = page.locator("[data-live-switch]")
    expect(switch).to_have_attribute("data-state", "polling", timeout=PATIENCE_MS)
    expect(switch).to_have_attribute("title", re.compile("updated every 5 s"))
    story.pauses("JFK")
    expect(page.locator("#needs").get_by_text("delays_JFK")).to_be_visible(timeout=PATIENCE_MS)
    page.context.close()


def test_a_session_that_ends_leads_to_the_login(windows: Windows, story: Story) -> None:
    with windows.open("ana", checks_console=False) as page:
        open_live(page, "/")
        page.context.clear_cookies()
        story.pauses("JFK")
        page.wait_for_url("**/login*")


def test_the_theme_switch_is_remembered(page: Page) -> None:
    open_live(page, "/")
    switch = page.locator("[data-theme-switch]")
    for theme in ("light", "dark"):
        switch.click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
    page.goto("/errors")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    switch.click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")
