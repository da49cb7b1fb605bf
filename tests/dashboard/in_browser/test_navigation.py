"""Navigation in a real browser: empty pages, dialogs, filters, selection, copies, times."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import reverse
from playwright.sync_api import APIResponse, Browser, Page, Route, expect
from redis import Redis

from arrester.controlplane import embedded, queries
from arrester.domain.wire import codec
from tests.dashboard.accessibility import violations
from tests.dashboard.accounts import make_user
from tests.dashboard.browser import (
    Windows,
    expect_no_reload,
    log_in,
    new_page,
    open_live,
    web,
)
from tests.dashboard.story import TYPO, Story, failure
from tests.patience import PATIENCE_MS

pytestmark = pytest.mark.e2e


def test_an_empty_page_names_its_reason(
    windows: Windows, fresh_database: embedded.Urls, redis: Redis
) -> None:
    make_user("ana", "operator")
    with windows.open("ana") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto("/")
        # No application yet.
        expect(page.get_by_text("No applications yet")).to_be_visible()
        page.get_by_role("button", name="Copy").click()
        assert "agent.pipeline(" in copied(page)
        expect(page.get_by_role("button", name="Send test error")).to_be_visible()
        # No failures.
        story = Story()
        story.starts()
        page.goto("/errors")
        expect(page.get_by_text("No failed records")).to_be_visible()
        page.goto("/")
        expect(page.get_by_text("Nothing needs attention")).to_be_visible()
        # No matches.
        story.skips("EWR", 3)
        page.goto("/errors?text=nothing+says+this")
        expect(page.get_by_text("No matches")).to_be_visible()
        page.get_by_role("link", name="Clear").click()
        expect(page.get_by_role("link", name="SparkNumberFormatException")).to_be_visible()
        # Events wait in Redis.
        lag_behind(redis)
        page.goto("/")
        expect(page.get_by_text("Processing delay: flights has 1 batch waiting")).to_be_visible()
        expect(
            page.get_by_text("Nothing needs attention in the events processed so far")
        ).to_be_visible()


def copied(page: Page) -> str:
    """Return the text in the clipboard after a copy, and clear it."""
    for _ in range(PATIENCE_MS // 50):
        text = str(page.evaluate("navigator.clipboard.readText()"))
        if text:
            break
        page.wait_for_timeout(50)
    page.evaluate("navigator.clipboard.writeText('')")
    return text


def lag_behind(redis: Redis) -> None:
    """Put a batch into Redis that has waited for twenty seconds."""
    seconds, _ = redis.time()
    batch = codec.encode_batch([])
    entry = f"{(seconds - 20) * 1000}-0"
    stream = "arrester:flights:events"
    if redis.exists(stream):
        redis.delete(stream)
    redis.xadd(stream, {"batch": "late", "spool": "late", "events": batch}, id=entry)


def test_skipping_a_record_and_shutting_down_need_a_reason(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    page.goto(reverse("task", args=[task.digest]))
    page.locator("#skip").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".primary").click()
    expect(dialog).to_be_visible()
    page.goto(reverse("application", args=["flights"]))
    page.locator("#shut-down").click()
    dialog.get_by_label("Type flights to confirm").fill("flight")
    expect(dialog.locator(".danger")).to_be_disabled()
    dialog.get_by_label("Type flights to confirm").fill("flights")
    dialog.locator(".danger").click()
    expect(dialog).to_be_visible()
    assert queries.commands().rows == ()


def test_filters_are_in_the_url_and_a_range_stays_relative(page: Page, story: Story) -> None:
    story.skips("EWR", 3)
    story.pauses("JFK")
    page.goto("/errors")
    page.get_by_label("Class or message contains").fill("1301 minutes")
    page.locator("select[name=range]").select_option("24h")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**text=1301+minutes**range=24h**")
    assert "from=2" not in page.url
    expect(page.locator("#groups > tr")).to_have_count(1)
    page.reload()
    expect(page.get_by_label("Class or message contains")).to_have_value("1301 minutes")
    page.go_back()
    expect(page.locator("#groups > tr")).to_have_count(2)
    page.get_by_role("link", name="Records").click()
    page.wait_for_url("**sort=-count**")
    page.goto("/")
    page.get_by_role("link", name="24h", exact=True).click()
    page.wait_for_url("**range=24h**")


def test_an_error_is_copied_as_markdown_json_and_curl(page: Page, story: Story) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    story.pauses("JFK")
    page.goto(reverse("error", args=["flights", TYPO.fingerprint]))
    copies = {}
    for form in ("Markdown", "JSON", "curl"):
        page.get_by_text("Copy group", exact=True).click()
        page.get_by_role("button", name=f"as {form}").click()
        copies[form] = copied(page)
        page.goto(page.url)
    assert "ImplausibleDelay" in copies["Markdown"]
    assert json.loads(copies["JSON"])["fingerprint"] == TYPO.fingerprint
    assert copies["curl"].startswith("curl ")


def test_brackets_open_older_and_newer_examples(page: Page, story: Story) -> None:
    for key in ("JFK", "LGA", "SEA"):
        story.pauses(key)
    page.goto(reverse("error", args=["flights", TYPO.fingerprint]))
    expect(page.get_by_text("Newest example")).to_be_visible()
    page.keyboard.press("[")
    page.wait_for_url("**at=*")
    expect(page.get_by_text("Selected example")).to_be_visible()
    older = page.url
    page.keyboard.press("[")
    page.wait_for_url(lambda url: url != older)
    page.keyboard.press("]")
    page.wait_for_url(older)


def test_relative_times_are_updated_and_have_the_time_as_title(page: Page, story: Story) -> None:
    task = story.pauses("JFK")
    page.goto(reverse("task", args=[task.digest]))
    since = page.locator(".under time:not([data-form=clock])").first
    expect(since).to_have_attribute("title", queries_clock(task.digest))
    first = since.text_content()
    expect(since).not_to_have_text(first or "", timeout=PATIENCE_MS)


def queries_clock(digest: str) -> str:
    since = queries.task(digest).state.since
    assert since is not None
    return f"{since:%Y-%m-%d %H:%M:%S} UTC"


def test_rows_are_selected_by_key_and_resumed_together(page: Page, story: Story) -> None:
    for key in ("JFK", "LGA", "SEA"):
        story.pauses(key, held=2)
    story.skips("EWR", 1)
    open_live(page, "/tasks")
    expect(page.get_by_role("button", name="Resume selected")).to_be_disabled()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    button = page.get_by_role("button", name="Resume 2 selected")
    expect(button).to_be_enabled()
    # The selection survives a refresh.
    story.pauses("LGA", held=77)
    expect(page.locator("#tasks")).to_contain_text("77")
    expect(page.locator("#tasks input:checked")).to_have_count(2)
    button.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Resume 2 tasks")).to_be_visible()
    dialog.get_by_role("button", name="Resume 2 tasks").click()
    expect(page.get_by_text("2 resume commands issued.")).to_be_visible()
    assert len(queries.open_commands("flights")) == 2
    expect_no_reload(page)


def test_all_stopped_tasks_are_selected_at_once(page: Page, story: Story) -> None:
    for key in ("JFK", "LGA"):
        story.pauses(key)
    story.dies_alone("SEA", cause=failure("produce", "app.Full", "no room"))
    page.goto("/tasks")
    page.get_by_label("Select all stopped tasks").check()
    expect(page.get_by_role("button", name="Resume 3 selected")).to_be_enabled()
    page.get_by_label("Select all stopped tasks").uncheck()
    expect(page.get_by_role("button", name="Resume selected")).to_be_disabled()


def test_error_groups_are_selected_and_muted_or_resolved_together(page: Page, story: Story) -> None:
    for name in ("Empty", "Full", "Late"):
        story.pauses(name, cause=failure("process:x", f"app.{name}", "so it is"))
    open_live(page, "/errors?application=flights")
    expect(page.get_by_role("button", name="Resolve selected")).to_be_disabled()
    page.get_by_label("Select Empty").check()
    page.get_by_label("Select Full").check()
    # The key opens the dialog.
    page.keyboard.press("m")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Mute 2 groups")).to_be_visible()
    dialog.get_by_label("for 7 days").check()
    dialog.get_by_role("button", name="Mute 2 groups").click()
    expect(page.get_by_text("2 groups muted.")).to_be_visible()
    # The filter of the list and of its links is kept.
    expect(page.locator("#groups > tr")).to_have_count(1)
    page.get_by_role("link", name="Muted").click()
    expect(page).to_have_url(re.compile("application=flights"))
    page.get_by_label("Select all").check()
    page.get_by_role("button", name="Resolve 2 selected").click()
    dialog.get_by_label("Reason").fill("the feed is repaired")
    dialog.get_by_role("button", name="Resolve 2 groups").click()
    expect(page.get_by_text("2 groups resolved.")).to_be_visible()
    resolved = queries.groups(queries.GroupFilter(status="RESOLVED")).rows
    assert {each.exception_class for each in resolved} == {"app.Empty", "app.Full"}
    assert {each.reason for each in resolved} == {"the feed is repaired"}


def test_a_page_survives_a_server_restart_and_catches_up(browser: Browser, story: Story) -> None:
    task = story.pauses("JFK", held=5)
    with web() as url:
        page = new_page(browser, url)
        switch, banner = page.locator("[data-live-switch]"), page.locator("#offline")
        dialog = page.get_by_role("dialog")
        confirm = dialog.get_by_role("button", name="Skip record and resume")
        log_in(page, "ana", url)
        open_live(page, reverse("task", args=[task.digest]))
        expect(banner).to_be_hidden()
        page.locator("#skip").click()
        dialog.get_by_label("Reason").fill("a typo in the source")
    expect(banner).to_contain_text("The server does not answer.", timeout=PATIENCE_MS)
    expect(banner).to_contain_text(
        re.compile(r"Since \d\d:\d\d:\d\d \(\d+ s\)\. (Next try in|Trying)")
    )
    expect(switch).to_have_attribute("data-state", "unreachable")
    expect(dialog.get_by_role("alert")).to_contain_text("Typed text stays here")
    expect(confirm).to_be_disabled()
    expect(confirm).to_have_attribute("title", "The server does not answer.")
    # A click is stopped, too.
    confirm.click(force=True)
    dialog.get_by_role("button", name="Cancel").focus()
    assert violations(page) == []
    story.pauses("JFK", held=77)
    with web(port=int(url.rpartition(":")[2])):
        expect(banner).to_be_hidden(timeout=PATIENCE_MS)
        expect(switch).to_have_attribute("data-state", "on", timeout=PATIENCE_MS)
        expect(page.locator(".facts b").first).to_have_text("77")
        assert queries.commands().rows == ()
        expect(dialog.get_by_role("alert")).to_have_count(0)
        expect(dialog.get_by_label("Reason")).to_have_value("a typo in the source")
        confirm.click()
        expect(dialog).to_be_hidden()
        expect(page.get_by_text("“a typo in the source”")).to_be_visible()
        expect_no_reload(page)
        page.context.close()


def test_each_failed_request_is_named_and_loses_no_text(windows: Windows, story: Story) -> None:
    digest = story.pauses("JFK", held=5).digest
    with windows.open("ana", checks_console=False) as page:
        check_failed_requests(page, story, digest)


def check_failed_requests(page: Page, story: Story, digest: str) -> None:
    dialog, banner = page.get_by_role("dialog"), page.locator("#offline")
    skip = reverse("skip", args=[digest])
    open_live(page, reverse("task", args=[digest]))
    # A dialog that cannot be opened.
    page.route("**/ask", lambda route: route.fulfill(status=500, body="broken"))
    page.locator("#skip").click()
    notices = page.locator("#notices")
    expect(notices).to_contain_text("Skip record and resume: 500")
    page.unroute("**/ask")
    page.locator("#skip").click()
    expect(notices).to_be_empty()
    reason = dialog.get_by_label("Reason")
    reason.fill("a typo in the source")
    confirm = dialog.get_by_role("button", name="Skip record and resume")
    # The connection breaks after the server has executed the form.
    page.route(f"**{skip}", lambda route: route.fetch() and route.abort())
    confirm.click()
    expect(dialog.locator("[data-failed]")).to_contain_text(
        "It is unknown whether the server has executed it. Repeat it when the server answers:"
        " the same form is executed once."
    )
    page.unroute(f"**{skip}")
    page.route(f"**{skip}", lambda route: route.fulfill(status=403, body="<main><p>No role.</p>"))
    confirm.click()
    expect(dialog.locator("[data-failed]")).to_have_text(re.compile("resume: No role."))
    expect(reason).to_have_value("a typo in the source")
    expect(banner).to_be_hidden()
    page.unroute(f"**{skip}")
    confirm.click()
    expect(dialog).to_be_hidden()
    assert [each.reason for each in queries.commands().rows] == ["a typo in the source"]
    # A page that cannot be refreshed names the reason until it is refreshed again.
    page.route(f"**{reverse('task', args=[digest])}", lambda route: route.fulfill(status=500))
    story.pauses("LGA")
    expect(notices).to_contain_text("This page cannot be updated, and shows an earlier state: 500")
    page.unroute(f"**{reverse('task', args=[digest])}")
    expect(notices).to_be_empty(timeout=PATIENCE_MS)
    page.route("**/problems", lambda route: route.fulfill(status=502, body="<main><p>No way."))
    page.route(f"**{skip}", lambda route: route.fulfill(status=504))
    page.evaluate(f"htmx.ajax('POST', '{skip}', '#live')")
    expect(banner).to_contain_text("No way. This page shows its last known state.")
    expect(notices).to_contain_text("504")
    page.unroute_all()
    banner.get_by_role("button", name="Try now").click()
    expect(banner).to_be_hidden()
    page.context.set_offline(True)
    expect(banner).to_contain_text("This device has no network.", timeout=PATIENCE_MS)
    page.context.set_offline(False)
    expect(banner).to_be_hidden(timeout=PATIENCE_MS)
    expect_no_reload(page)


def test_a_refresh_from_before_a_click_does_not_replace_its_result(
    page: Page, story: Story
) -> None:
    task = story.pauses("JFK", held=5)
    story.resumes("JFK", story.command(task))
    story.pauses("JFK", held=5)
    own = reverse("task", args=[task.digest])
    open_live(page, own)
    waiting: list[tuple[Route, APIResponse]] = []

    def delay(route: Route) -> None:
        if waiting or route.request.method != "GET":
            route.continue_()
        else:
            waiting.append((route, route.fetch()))

    page.route(f"**{own}", delay)
    story.pauses("JFK", held=6)
    for _ in range(PATIENCE_MS // 50):
        if waiting:
            break
        page.wait_for_timeout(50)
    page.locator("#resume").click()
    expect(page.get_by_text("waiting for an instance")).to_be_visible()
    ((route, response),) = waiting
    assert "APPLIED" in response.text()
    with page.expect_response(lambda each: each.request == route.request):
        route.fulfill(response=response)
    page.wait_for_timeout(100)
    expect(page.locator("#actions")).not_to_contain_text("APPLIED", timeout=1)
    expect(page.get_by_text("waiting for an instance")).to_be_visible()
    page.unroute_all()
