"""Make the pictures in docs/screenshots with real servers, a web process and invented events.

Spark does not run, so that the pictures are made in a minute and show the same each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import Browser, Page, expect

from tests import services

if TYPE_CHECKING:
    from tests.dashboard.story import Story

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURES = REPOSITORY / "docs" / "screenshots"
DESKTOP, PHONE = (1280, 800), (360, 740)
PATIENCE_MS = 60_000
AIRPORTS = ("JFK", "LGA", "EWR", "BOS", "SFO", "SEA", "LAX", "ORD")
#: Tabs and pages without further steps.
TABS = ("commands", "instances", "policy")
LISTS = (
    "applications",
    "tasks",
    "commands",
    "dead-letters",
    "held",
    "instances",
    "alerts",
    "audit",
    "quarantine",
    "settings",
)


def main() -> None:
    """Run servers and a web process, append the events, take the pictures, stop everything."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    with servers():
        import django

        django.setup()
        from tests.dashboard.browser import chromium, web

        with heartbeats(), chromium() as browser, web() as url:
            first_pages(browser, url)
            all_pages(browser, url, story())


@contextmanager
def servers() -> Iterator[None]:
    """Run PostgreSQL and Redis, and set the environment to a fresh database there."""
    with services.running() as urls:
        os.environ |= {
            "DATABASE_URL": urls.database,
            "MIGRATE_DATABASE_URL": urls.migrate_database,
            "REDIS_URL": urls.redis,
            "ARRESTER_SECRET_KEY": "only for pictures " * 3,
            "DJANGO_SETTINGS_MODULE": "arrester.controlplane.settings",
        }
        services.make_template(urls)
        services.clone(urls)
        yield


@contextmanager
def heartbeats() -> Iterator[None]:
    """Renew the heartbeats of all parts as if they ran: this process folds the events."""
    from django.db import connections

    from arrester.controlplane import models

    ended = threading.Event()

    def renew() -> None:
        for name in ("redis", "wake", "worker", "housekeeper"):
            models.Sighting.objects.update_or_create(name=name, defaults={"at": datetime.now(UTC)})

    def keep_renewing() -> None:
        while not ended.wait(1):
            renew()
        connections.close_all()

    renew()
    thread = threading.Thread(target=keep_renewing)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def story() -> str:
    """Append a day of three applications; return the digest of the task on the task page."""
    from msgspec.structs import replace

    from arrester.controlplane import actions
    from arrester.controlplane.redis import redis_client
    from arrester.domain.events import (
        Body,
        FinalResponse,
        RecordFailed,
        RecordsHeld,
        TaskDied,
    )
    from arrester.domain.identity import redis_keys
    from tests.dashboard.story import MODULE, POLICY, STACK, Story, failure

    random = Random(7)
    flights = Story()
    orders = Story(application="orders", pipeline="ingest", checkpoint="5b1c9a70-2e1f")
    payments = Story(application="payments", pipeline="settle", checkpoint="c03d7f12-88ab")
    for each, host in ((flights, "flights-1"), (orders, "orders-1"), (payments, "payments-1")):
        # At any minute of the hour, fewer records than this have failed.
        policy = replace(POLICY, rate_limit=120)
        each.starts(host=host, policy=policy, ago=timedelta(hours=26))
        flow(each, random)
    returns = Story(application="orders", pipeline="returns", checkpoint="e7f00a51-94c0")
    returns.starts(host="orders-2", ago=timedelta(hours=5))
    returns.fails(MODULE, ago=timedelta(minutes=2))
    for minutes in sorted((random.randrange(3, 1430) for _ in range(70)), reverse=True):
        ago = timedelta(minutes=minutes)
        flights.skips(random.choice(AIRPORTS), random.randint(2, 40), ago=ago)
        orders.skips(f"part-{random.randrange(12)}", random.randint(1, 12), ago=ago / 2)
    for minutes in range(57, 0, -3):
        flights.skips(
            random.choice(AIRPORTS), random.randint(1, 25), ago=timedelta(minutes=minutes)
        )
    payments.skips("card", 9, ago=timedelta(minutes=25))
    repaired = flights.pauses("ORD", held=4, ago=timedelta(minutes=50))
    command = actions.resume_task(repaired.digest, actor="ana", reason="the feed is repaired").id
    flights.fetches(command)
    flights.resumes("ORD", command)
    full = failure("produce", "kafka.errors.TimeoutError", "no room", "sink.py:88 in send")
    orders.report(
        RecordFailed(task="part-3", position=88_123, failure=full, response=FinalResponse.FAIL),
        TaskDied(task="part-3", position=88_123, failure=full),
        RecordsHeld(task="part-3", held=96, first_position=88_123),
        body=Body(record={"order": "o-1", "amount": 12.5}, redacted=("card.number",), stack=STACK),
        ago=timedelta(minutes=31),
    )
    flights.skips("JFK", 37)
    task = flights.pauses("JFK", held=1843, ago=timedelta(minutes=12))
    flights.pauses("SEA", held=212, ago=timedelta(minutes=3))
    flights.send(b"\x82\xa4type not an event of ours")
    payments.loses_heartbeat()
    for each in (flights, orders):
        each.beats()
        # As long as the pictures take.
        redis_client.client().expire(redis_keys.heartbeat(each.application, each.instance), 600)
    alert()
    return task.digest


def flow(story: Story, random: Random) -> None:
    """Report what flowed in the last three hours; a backlog appears and is worked off."""
    from arrester.domain.durations import Phase, added, key_of

    usual = {Phase.TOTAL: 900, Phase.SOURCE: 60, Phase.EVALUATE: 200, Phase.WRITE: 450}
    for ago in range(179, 0, -1):
        read = random.randrange(5_000, 6_500) + 900 * (60 < ago < 75)
        held = random.randrange(20) if ago < 12 else 0
        failed = random.randrange(1, 40) if ago % 3 == 0 else 0
        longer = 2.4 if 60 < ago < 75 else 1.0
        story.flows(
            ago=ago,
            micro_batches=6,
            records_in=read,
            records_out=read - failed - held,
            failed=failed + (held > 0),
            skipped=failed,
            held=held,
            durations=added(
                {key_of(phase, random.lognormvariate(0, 0.2) * ms * longer): 1}
                for phase, ms in usual.items()
                for _ in range(6)
            ),
            backlog=max(0, 14_000 - 1_000 * abs(ago - 62)) + random.randrange(400),
            backlog_unit="records",
            last_batch_at=datetime.now(UTC) - timedelta(minutes=ago - 1, seconds=9),
            watermark=datetime.now(UTC) - timedelta(minutes=ago + 10),
        )


def alert() -> None:
    """Find the alerts, and show their message as if Slack had accepted it."""
    from arrester.controlplane import alerts, models
    from arrester.controlplane.alerts import configuration

    address = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    configuration.add_channel(address, "data on call", actor="ana")
    now = datetime.now(UTC)
    alerts.update(now=now)
    models.AlertMessage.objects.update(status="SENT", attempts=1, sent_at=now)


def first_pages(browser: Browser, url: str) -> None:
    """Take the pictures of a new installation."""
    from tests.dashboard.accounts import make_user

    make_user("ana", "operator", "admin")
    make_user("ben", "viewer")
    page = browser.new_page(base_url=url, viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    page.goto("/login")
    take_picture(page, "login")
    take_picture(signed_in(browser, url), "beginning")


def all_pages(browser: Browser, url: str, task: str) -> None:
    """Take all pictures: the pages, and the dialogs of an operator."""
    page = signed_in(browser, url)
    for path, name in (
        ("/", "overview"),
        ("/pipelines", "pipelines"),
        ("/applications/flights", "application"),
        ("/applications/flights?tab=timeline", "application-timeline"),
        ("/applications/flights?tab=errors&range=24h", "application-errors"),
        *((f"/applications/flights?tab={tab}", f"application-{tab}") for tab in TABS),
        *((f"/{name}", name) for name in LISTS),
        ("/alerts/settings", "alert-settings"),
        ("/errors", "errors"),
    ):
        page.goto(path)
        take_picture(page, name)
    page.goto("/pipelines/flights/delays")
    take_picture(page, "pipeline", whole=True)
    page.goto("/errors")
    page.get_by_role("link", name="ImplausibleDelay").first.click()
    take_picture(page, "error")
    for tab in ("Record", "Affected tasks", "Grouping", "Notes and history"):
        page.locator(".tabs").get_by_role("link", name=tab).click()
        take_picture(page, f"error-{tab.split()[0].lower()}")
    for name, button in (("mute", "Mute"), ("resume-many", "Resume paused tasks")):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        take_picture(page, name)
        page.keyboard.press("Escape")
    page.goto("/dead-letters")
    page.locator("#letters a").first.click()
    take_picture(page, "dead-letter")
    page.goto("/quarantine")
    page.get_by_role("button", name="Dismiss").click()
    take_picture(page, "dismiss")
    page.goto("/applications/flights?tab=policy")
    page.get_by_role("button", name="Set the answer of process:validate").click()
    take_picture(page, "set-policy")
    page.goto(f"/tasks/{task}/history?view=full")
    take_picture(page, "task-history")
    page.goto(f"/tasks/{task}")
    take_picture(page, "task", whole=True)
    phone = signed_in(browser, url, size=PHONE)
    dark = signed_in(browser, url, scheme="dark")
    for other, where in ((phone, "phone"), (dark, "dark")):
        for path, what in (
            (f"/tasks/{task}", "task"),
            ("/", "overview"),
            ("/errors", "errors"),
            ("/pipelines", "pipelines"),
            ("/pipelines/flights/delays", "pipeline"),
        ):
            other.goto(path)
            take_picture(other, f"{what}-{where}")
    page.locator("#events a[href*=as_of]").last.click()
    expect(page.get_by_text("Back to now")).to_be_visible()
    take_picture(page, "task-as-of")
    page.goto(page.url.replace(f"/tasks/{task}", "/applications/flights"))
    expect(page.get_by_text("Back to now")).to_be_visible()
    take_picture(page, "application-as-of")
    page.goto(f"/tasks/{task}")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Edit record and resume").click()
    dialog.get_by_label("dep_delay", exact=True).fill("130")
    dialog.get_by_role("button", name="Review changes").click()
    expect(dialog.get_by_label("Reason")).to_be_visible()
    take_picture(page, "mend")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Skip record and resume").click()
    dialog.get_by_label("Reason").fill("HA51 did leave 21 hours late; the row is right")
    take_picture(page, "resume-past")
    dialog.get_by_role("button", name="Skip record and resume").click()
    expect(dialog).to_be_hidden()
    page.goto("/commands")
    page.get_by_role("link", name="Skip record and resume").first.click()
    take_picture(page, "command")
    page.goto("/dead-letters")
    for number in range(3):
        page.locator("[data-select][name=record]").nth(number).check()
    page.get_by_role("button", name="Redrive 3 selected").click()
    dialog.get_by_label("Reason").fill("the build accepts these rows")
    take_picture(page, "redrive")
    dialog.get_by_role("button", name="Redrive 3 dead letters").click()
    expect(page.locator("h1")).to_contain_text("Redrive dead letters")
    take_picture(page, "redrive-progress")
    page.goto("/applications/orders")
    page.get_by_role("button", name="Shut down application").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    take_picture(page, "shut-down")


def signed_in(
    browser: Browser,
    url: str,
    *,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
) -> Page:
    """Return a page of the given size and colours on which the operator has logged in."""
    from tests.dashboard.browser import log_in

    width, height = size
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": height}, color_scheme=scheme
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    log_in(page, "ana", url)
    page.goto("/")
    return page


def take_picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Write the picture `name`, after animations have ended."""
    page.wait_for_timeout(600)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=whole, animations="disabled")
    print(f"docs/screenshots/{name}.png", flush=True)


if __name__ == "__main__":
    main()
