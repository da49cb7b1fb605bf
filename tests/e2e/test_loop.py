"""The whole loop: a record fails, a mail arrives, and a person acts in terminal and browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect, sync_playwright

from arrester.controlplane.alerts import configuration
from arrester.controlplane.alerts.configuration import RuleForm
from tests.controlplane.alerts.receivers import Mailbox, Receiver, http_receiver, mail_server
from tests.e2e.conftest import OPERATOR, PASSWORD
from tests.e2e.stack import Stack, eventually, sink_positions, without_departure
from tests.e2e.test_faults import check_counts, check_sink, no_held, settled
from tests.otlp_receiver import Collector, ReceivedSpan, collecting
from tests.patience import PATIENCE_MS, PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1800)]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@pytest.fixture
def page(stack: Stack) -> Iterator[Page]:
    """Return a page on which the operator has logged in; it fails on any error in the console."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or None, args=QUIET
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{stack.url}/login")
        page.get_by_label("User name").fill(OPERATOR)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        yield page
        browser.close()
    assert not problems


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """Run an SMTP server for the processes of the stack; request it before `stack`."""
    with mail_server() as mailbox:
        monkeypatch.setenv("ARRESTER_SMTP_URL", mailbox.url)
        environment = replace(settings.ENVIRONMENT, smtp_url=mailbox.url)
        monkeypatch.setattr(settings, "ENVIRONMENT", environment)
        yield mailbox


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Run a collector for the processes of the stack; request it before `stack`."""
    with collecting() as collector:
        for name, value in collector.variables.items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
def receiver(mailbox: Mailbox, stack: Stack) -> Iterator[Receiver]:
    """Run a receiver of webhooks, with a channel and a rule for it and for mail."""
    with http_receiver() as receiver:
        configuration.add_channel("ops@example.com", actor="ada")
        hook, _ = configuration.add_channel(receiver.url, actor="ada")
        configuration.save_rule(None, RuleForm(name="hook", channel=hook.id), actor="ada")
        yield receiver


def test_the_loop(
    collector: Collector,
    mailbox: Mailbox,
    receiver: Receiver,
    stack: Stack,
    page: Page,
    rows: list[dict[str, Any]],
) -> None:
    stack.start_driver()
    eventually(
        lambda: stack.get("/api/v1/applications")["results"], what="the application is known"
    )

    # A record fails, and its task turns PAUSED on the open page.
    page.goto(f"{stack.url}/applications/flights")
    cell = page.locator("a.cell[title^='JFK ']")
    expect(cell).to_contain_text("PAUSED")
    cell.click()
    expect(page.get_by_text("left 1301 minutes late, more than 900").first).to_be_visible()
    expect(page.get_by_role("cell", name="HA51")).to_be_visible()
    held_by_jfk(stack)

    # Mail and webhook arrive. The link opens the task, or the error if EWR is PAUSED by it too.
    task_page = page.url
    text = eventually(lambda: text_about(mailbox, "PAUSED"), what="the mail arrives", seconds=60)
    (link,) = re.findall(r"http\S+", text)
    page.goto(link)
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile("JFK|Implausible"))
    eventually(lambda: causes_of(receiver, "alerts.fired"), what="the webhook arrives", seconds=60)
    assert "TASKS_PAUSED" in causes_of(receiver, "alerts.fired")
    page.goto(task_page)

    # Past this record, from a terminal.
    skip = stack.cli(
        "skip",
        "flights/departures/JFK",
        "--reason",
        "HA51 really left that late",
        "--yes",
        "--wait",
    )
    assert "APPLIED; no stop since" in skip
    expect(page.get_by_text("Last command:")).to_contain_text("APPLIED")
    expect(page.get_by_role("heading", level=1)).to_contain_text("RUNNING")
    eventually(lambda: stack.task("JFK")["held"] == 0, what="held records have run")
    page.goto(f"{stack.url}/applications/flights")

    # Failure, fold, command, its application and the fold of its answer are one trace.
    eventually(lambda: traced_skip(collector), what="the trace is complete")
    check_trace(collector, stack)

    # A new run in the same driver, and a pause that the server ends.
    about = {"application": "flights", "pipeline": "departures", "reason": "to see"}
    restarted = stack.command(kind="RESTART_PIPELINE", **about)
    assert (restarted["status"], restarted["outcome"]) == (
        "APPLIED",
        "run 2 of departures is RUNNING",
    )
    paused = stack.cli("pause", "flights/departures/JFK", "--for", "1s", "--wait")
    assert paused == "flights/departures/JFK: PAUSE_TASK APPLIED\n"
    eventually(lambda: stack.task("JFK")["status"] == "RUNNING", what="the pause has ended")

    # The pipeline, whose pause the agent ends; and a key without a record.
    paused = stack.cli("pause", "--pipeline", "flights/departures", "--for", "2s", "--wait")
    assert paused == "flights/departures: PAUSE_PIPELINE APPLIED\n"
    assert stack.get("/api/v1/pipelines/flights/departures")["run"] == "PAUSED"
    paused = stack.cli("pause", "flights/departures/XYZ", "--wait")
    assert paused == "flights/departures/XYZ: PAUSE_TASK APPLIED\n"
    assert stack.is_paused("XYZ")
    stack.cli("resume", "flights/departures/XYZ", "--wait")
    eventually(
        lambda: stack.get("/api/v1/pipelines/flights/departures")["run"] == "RUNNING",
        what="the pause of the pipeline has ended",
    )

    # Another task: a rollout changes the record, which keeps its place.
    eventually(lambda: stack.is_paused("EWR"), what="EWR is PAUSED")
    page.goto(f"{stack.url}/applications/flights")
    page.get_by_role("button", name="Start rollout").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Edit records and resume tasks").check()
    dialog.get_by_label("JSON Patch").fill(on_time(rows, 8239))
    dialog.get_by_label("Seconds to observe").fill("0")
    dialog.get_by_label("Reason").fill("a typo")
    dialog.get_by_role("button", name="Start rollout").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("APPLIED")
    expect(page.get_by_text("1 of 1 task applied the command").first).to_be_visible()
    assert stack.task("EWR")["status"] == "RUNNING"
    eventually(lambda: settled(stack, rows) and no_held(stack), what="all rows are somewhere")
    assert 8239 in sink_positions(stack.folder, "EWR")
    assert 7072 not in sink_positions(stack.folder, "JFK")
    check_sink(stack, rows, without=1)
    check_counts(stack, rows)
    check_page_counts(stack, page, failed=without_departure(rows) + 2)
    check_never_interrupted(stack, "LGA")

    eventually(
        lambda: "TASKS_PAUSED" in causes_of(receiver, "alerts.resolved"), what="the alert ends"
    )
    shut_down(stack, page)
    stack.manage("rebuild", "--verify")


def text_about(mailbox: Mailbox, what: str) -> str:
    """Return the paragraph of a received mail that has a text; empty without one."""
    paragraphs = [each for mail in mailbox.messages for each in mail.get_content().split("\n\n")]
    return next((each for each in paragraphs if what in each), "")


def causes_of(receiver: Receiver, kind: str) -> set[str]:
    """Return the causes of the received alerts of a kind of message."""
    messages = [json.loads(each.content) for each in receiver.requests]
    return {
        alert["cause"]
        for each in messages
        if each["type"] == kind
        for alert in each["data"]["alerts"]
    }


def on_time(rows: list[dict[str, Any]], position: int) -> str:
    """Return the JSON Patch that corrects the delay of a flight."""
    (text,) = (row["value"] for row in rows if row["position"] == position)
    values = text.split(",")
    values[5] = "5"
    patch = [
        {"op": "test", "path": "/value", "value": text},
        {"op": "replace", "path": "/value", "value": ",".join(values)},
    ]
    return json.dumps(patch)


def held_by_jfk(stack: Stack) -> None:
    """Check that what JFK holds is what it has not written, while others go on."""
    eventually(
        lambda: len(sink_positions(stack.folder, "LGA")) > 2_000, what="LGA goes on to the end"
    )
    assert max(sink_positions(stack.folder, "JFK")) < 7072


def check_page_counts(stack: Stack, page: Page, *, failed: int) -> None:
    """Check that the groups' counts on the page sum up to the failed records."""
    page.goto(f"{stack.url}/errors")
    counts = page.locator("tbody td.number").all_inner_texts()
    assert sum(int(count.removeprefix("about ").replace(",", "")) for count in counts) == failed


def check_never_interrupted(stack: Stack, key: str) -> None:
    """Check that a task no record of which asked for a person has run all the time."""
    task = stack.task(key)
    assert (task["status"], task["status_changed_at"], task["held"]) == ("RUNNING", None, 0)


def shut_down(stack: Stack, page: Page) -> None:
    """Shut the application down by force, its name typed; every instance ends, and the states are
    final."""
    page.goto(f"{stack.url}/applications/flights")
    page.get_by_role("button", name="Shut down application").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Shut down flights")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("to confirm").fill("flights")
    dialog.get_by_label("Reason").fill("the test is over")
    dialog.get_by_label("Force").check()
    confirm.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("LATCHED")
    assert stack.wait_for_driver(seconds=PATIENCE_SECONDS) == 0
    command = stack.get("/api/v1/commands?limit=1")["results"][0]
    command = stack.answer(command["id"])
    assert (command["status"], command["force"]) == ("APPLIED", True)
    assert [part["status"] for part in command["deliveries"]] == ["APPLIED"]
    page.goto(f"{stack.url}/applications/flights?tab=instances")
    expect(page.get_by_text("No live instance").first).to_be_visible()
    application = stack.get("/api/v1/applications/flights")
    assert (application["status"], application["instances"]) == ("LATCHED", 0)


def traced_skip(collector: Collector) -> ReceivedSpan | None:
    """Return the span of the command to skip, if all that follows from it has been received."""
    expected = {"apply SKIP_RECORD", "fold CommandDelivered", "fold CommandApplied"}
    for issued in collector.named("issue SKIP_RECORD"):
        if collector.children(issued) == expected:
            return issued
    return None


def check_trace(collector: Collector, stack: Stack) -> None:
    """Check the trace of the record that stopped JFK."""
    issued = traced_skip(collector)
    assert issued is not None
    (stopped,) = (each for each in collector.named("task PAUSED") if each.trace == issued.trace)
    assert (stopped.service, issued.service) == ("flights", "arrester")
    assert (stopped.parent, issued.parent) == ("", stopped.span)
    assert collector.children(stopped) == {"fold TaskPaused", "issue SKIP_RECORD"}
    position = stack.task("JFK")["position"] or 7072
    assert (stopped.attributes["arrester.task"], stopped.attributes["arrester.position"]) == (
        "JFK",
        position,
    )
    # The decision about the micro-batch is a trace of its own: it may stop many tasks.
    (decision,) = (each for each in collector.named("decide") if stopped.links == [each_id(each)])
    assert each_id(stopped) in decision.links
    assert collector.children(decision) >= {"failed records: PAUSE", "fold RecordFailed"}


def each_id(span: ReceivedSpan) -> tuple[str, str]:
    """Return the trace and the span, as links have them."""
    return span.trace, span.span
