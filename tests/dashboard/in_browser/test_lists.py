"""Error groups and lists in a real browser: acts, dialogs, roles, sizes, themes."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from arrester.controlplane import actions, queries
from arrester.controlplane.ingest import fold_stream
from arrester.domain.state.states import CommandStatus, GroupStatus
from tests.dashboard.browser import Windows, expect_no_reload, open_live
from tests.dashboard.story import TYPO, Story, failure

pytestmark = pytest.mark.e2e
ERROR = ["flights", TYPO.fingerprint]
COUNT_CLICKS = """addEventListener("click", ({ detail }) => {
    if (detail) sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1;
}, true)"""


def state() -> GroupStatus:
    return queries.group(*ERROR).state.status


def test_a_resolved_group_is_reopened_by_the_next_failure(page: Page, story: Story) -> None:
    story.pauses("JFK")
    open_live(page, reverse("error", args=ERROR))
    page.get_by_role("button", name="Resolve").click()
    expect(page.locator("h1 .state")).to_have_text("RESOLVED")
    story.pauses("LGA")
    expect(page.locator("h1")).to_contain_text("RECURRED")
    page.get_by_role("link", name="Notes and history").click()
    page.get_by_label("Note").fill("the fix was not deployed")
    story.skips("EWR", 12)
    expect(page.locator("#position")).to_contain_text(
        f"flights @ {queries.log_positions()['flights']}"
    )
    expect(page.get_by_label("Note")).to_have_value("the fix was not deployed")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator(".acts")).to_contain_text("the fix was not deployed")
    expect(page.get_by_label("Note")).to_have_value("")


def test_a_group_is_muted_in_a_dialog_and_unmuted(page: Page, story: Story) -> None:
    story.pauses("JFK")
    open_live(page, reverse("error", args=ERROR))
    page.get_by_role("button", name="Mute").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=end][value=failures]").check()
    dialog.get_by_role("spinbutton").fill("40")
    dialog.get_by_role("button", name="Mute group", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_text("ends at 40 failed records within one hour")).to_be_visible()
    page.get_by_role("button", name="Unmute").click()
    expect(page.locator("h1 .state")).to_have_text("UNRESOLVED")
    expect_no_reload(page)


def test_all_tasks_of_an_error_are_resumed_with_three_clicks(page: Page, story: Story) -> None:
    for key in ("JFK", "LGA", "EWR"):
        story.pauses(key, held=3)
    page.goto(reverse("errors"))
    page.get_by_role("link", name="ImplausibleDelay").click()
    page.get_by_role("button", name="Resume paused tasks").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Commands are applied between two micro-batches by")).to_be_visible()
    dialog.get_by_role("button", name="Resume 3 tasks").click()
    expect(page.get_by_text("3 resume commands issued.")).to_be_visible()
    assert len(queries.open_commands("flights")) == 3


def test_a_command_is_cancelled(page: Page, story: Story) -> None:
    command = actions.resume_task(story.pauses("JFK").digest, actor="ana").id
    open_live(page, reverse("command", args=[command]))
    page.get_by_role("button", name="Cancel command").click()
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")
    assert queries.command(command).status is CommandStatus.CANCELLED


def test_a_test_error_appears_without_reload(page: Page, story: Story) -> None:
    open_live(page, reverse("settings"))
    page.get_by_role("button", name="Send test error").click()
    expect(page.get_by_text("Test error sent")).to_be_visible()
    fold_stream.fold_stream("test")
    expect(page.get_by_role("link", name="TestError")).to_be_visible()


def test_an_account_is_made_and_its_password_shown_once(windows: Windows, story: Story) -> None:
    with windows.open("ada") as page:
        page.goto(reverse("settings"))
        page.get_by_label("New account").fill("eve")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_text("Password of eve")).to_be_visible()
        # Neither a fold nor the clock refreshes it.
        expect(page.locator("[data-live], [data-poll]")).to_have_count(0)
        page.reload()
        expect(page.get_by_role("cell", name="eve", exact=True)).to_be_visible()
        expect(page.get_by_text("Password of eve")).to_be_hidden()


@pytest.mark.long
def test_frequent_jobs_need_three_clicks_at_most(windows: Windows, story: Story) -> None:
    """Each begins on the overview; typing, also Enter, is no click."""
    for key in ("JFK", "LGA"):
        story.pauses(key, cause=failure(f"process:{key}", f"app.{key}", "so it is"))
    with windows.open("ada") as page, page.add_init_script(COUNT_CLICKS):
        dialog = page.get_by_role("dialog")

        def begin() -> None:
            page.goto("/")
            page.evaluate("delete sessionStorage.clicks")

        def clicks() -> int:
            return int(page.evaluate("sessionStorage.clicks"))

        def open_application() -> None:
            page.locator("[data-search]").click()
            page.keyboard.type("flights")
            expect(page.locator("#found a").first).to_be_visible()
            page.keyboard.press("Enter")
            page.wait_for_url("**/applications/flights*")

        begin()
        page.locator("#needs a", has_text="JFK").click()
        page.get_by_role("button", name="Resume task").click()
        expect(page.get_by_text("waiting for an instance")).to_be_visible()
        assert clicks() == 2
        begin()
        page.locator("#needs a", has_text="LGA").click()
        page.locator("#skip").click()
        dialog.get_by_label("Reason").fill("a typo")
        dialog.get_by_role("button", name="Skip record and resume").click()
        expect(page.get_by_text("“a typo”")).to_be_visible()
        assert clicks() == 3
        begin()
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Audit").click()
        expect(page.locator("main")).to_contain_text("a typo")
        assert clicks() == 2
        begin()
        page.locator(".tile", has_text="Failures, last").click()
        page.get_by_label("Class", exact=True).fill("app.JFK")
        page.keyboard.press("Enter")
        expect(page.locator("#groups > tr")).to_have_count(1)
        with page.expect_download() as download:
            page.locator(".exports", has_text="failed records").get_by_text("CSV").click()
        assert "app.JFK" in download.value.path().read_text()
        assert clicks() == 2
        begin()
        page.locator("#causes a").first.click()
        page.locator("#mute").click()
        dialog.get_by_role("button", name="Mute group").click()
        expect(page.locator("h1 .state")).to_have_text("MUTED")
        assert clicks() == 3
        begin()
        page.locator("#needs a").first.click()
        page.locator("summary", has_text="As of").click()
        # The application of this test is younger.
        page.route("**as_of=5m", lambda route: route.fulfill(body="the state 5 minutes ago"))
        page.get_by_role("link", name="5 minutes ago").click()
        expect(page.get_by_text("the state 5 minutes ago")).to_be_visible()
        assert clicks() == 3
        page.unroute_all()
        begin()
        open_application()
        page.locator("#shut-down").click()
        dialog.get_by_label("Type flights").fill("flights")
        dialog.get_by_label("Reason").fill("maintenance")
        dialog.locator(".danger").click()
        expect(page.locator("h1 .state")).to_have_text("Application LATCHED")
        assert clicks() == 3
        story.stops(command=queries.commands().rows[0].id)
        begin()
        open_application()
        page.locator("#start").click()
        dialog.get_by_role("button", name="Start flights").click()
        expect(page.locator("h1 .state")).to_have_text("Application OPEN")
        assert clicks() == 3
        begin()
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Settings").click()
        page.get_by_label("New account").fill("eve")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_text("Password of eve")).to_be_visible()
        assert clicks() == 3
        begin()
        page.get_by_text("More", exact=True).click()
        page.get_by_role("link", name="Settings").click()
        page.get_by_label("Token name").fill("nightly")
        page.get_by_role("button", name="Create token").click()
        expect(page.get_by_text("Token nightly")).to_be_visible()
        assert clicks() == 3


def test_a_narrow_header_truncates_the_name_and_then_the_lag(page: Page, story: Story) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(reverse("tasks"))
    expect(page.locator("#feed .lag")).to_contain_text("fold lag")
    write = "(each, text) => { each.textContent = text }"
    is_truncated = "each => each.scrollWidth > each.clientWidth"
    end = "each => Math.round(each.getBoundingClientRect().right)"
    position, lag = page.locator("#position"), page.locator("#feed .lag")
    position.evaluate(write, "flights @ 12,345")
    assert not position.evaluate(is_truncated) and not lag.evaluate(is_truncated)
    for width, word, text, lag_is_truncated in (
        (1280, "Polling", "queue 0 s · fold lag 0 s", False),
        (1024, "Unreachable", "queue 86400 s · fold lag 86400 s", True),
    ):
        page.set_viewport_size({"width": width, "height": 800})
        page.locator("[data-live-switch] [data-word]").evaluate(write, word)
        position.evaluate(write, "long-name " * 40)
        lag.evaluate(write, f" · {text}")
        assert position.evaluate(is_truncated)
        assert lag.evaluate(is_truncated) == lag_is_truncated
        assert lag.evaluate(end) <= page.locator("#feed").evaluate(end)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_longest_name_of_a_pipeline_hides_no_number(page: Page) -> None:
    Story(pipeline="p" * 63).starts()
    page.set_viewport_size({"width": 1440, "height": 800})
    for url in (reverse("pipelines"), reverse("overview")):
        page.goto(url)
        expect(page.locator("#pipelines")).to_contain_text("p" * 63)
        table = page.locator("table", has=page.locator("#pipelines"))
        hidden = "each => each.scrollWidth - each.parentElement.clientWidth"
        assert table.evaluate(hidden) <= 0
