"""Chromium, a web process, and helpers that log in and open pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.patience import PATIENCE_MS, PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

PASSWORD = "a password for tests"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
#: Headless in a container, without network requests of its own.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium."""
    # With a running loop Django uses other connections; the earlier ones would stay open.
    connections.close_all()
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright keeps a loop running in this thread; Django refuses to work with it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def web(port: int | None = None) -> Iterator[str]:
    """Run uvicorn on a free port or that one, on the servers of the environment; yield its URL."""
    port = port or free_port()
    command = [sys.executable, "-m", "uvicorn", "arrester.controlplane.web.asgi:application"]
    options = ["--lifespan", "off", "--no-access-log", "--timeout-graceful-shutdown", "1"]
    process = subprocess.Popen([*command, "--port", str(port), *options], cwd=REPOSITORY)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{url}/healthz")
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the web process does not answer"
            time.sleep(0.1)


@contextmanager
def window(
    browser: Browser,
    url: str,
    name: str,
    *,
    size: tuple[int, int] = (1280, 800),
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Page]:
    """Open a window, log in, and check at the end that the console is empty."""
    console: list[str] = []
    width, height = size
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": height}, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page = context.new_page()
    page.on("console", lambda line: console.append(line.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    try:
        log_in(page, name)
        yield page
    finally:
        context.close()
    assert console == [], console


def log_in(page: Page, name: str) -> None:
    """Log in by a session, without the form: a password check is slow on purpose."""
    from django.contrib.auth.models import User

    client = Client()
    client.force_login(User.objects.get(username=name))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    page.goto("/login")
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": page.url}]
    )
    page.goto("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_attached()


def open_live(page: Page, url: str) -> None:
    """Open a page, wait until it is live, and set a mark that a reload would remove."""
    page.goto(url)
    expect(page.locator("[data-live-switch]")).to_have_attribute("data-state", "on")
    page.evaluate("window.mark = 'not reloaded'")


def open_dialog(page: Page, clicked: Sequence[str]) -> None:
    """Open a dialog of the page: check boxes, click the rest; without any, by key."""
    for each in clicked:
        if each.startswith("[data-select"):
            page.locator(each).check()
        else:
            page.locator(each).click()
    if not clicked:
        page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()


def expect_no_reload(page: Page) -> None:
    assert page.evaluate("window.mark") == "not reloaded"


def violations(page: Page, *, only: Sequence[str] = ()) -> list[str]:
    """Return the violated rules of accessibility (WCAG 2.2 A and AA, good practice).

    All rules, or only those that are named.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    # A past state is greyed on purpose; a label has the same information.
    context = {"exclude": [[".removed"]]}
    options = {"resultTypes": ["violations"]} | ({"runOnly": [*only]} if only else {})
    found = page.evaluate(
        "([context, options]) => axe.run(context, options).then((result) => result.violations)",
        [context, options],
    )
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"][:2]
    ]
