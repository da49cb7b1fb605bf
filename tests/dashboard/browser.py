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
from typing import Any, Literal

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.patience import PATIENCE_MS, PATIENCE_SECONDS
from tests.ports import free_port
from tests.services import REPOSITORY

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
def web(
    port: int | None = None, *, application: str = "arrester.controlplane.web.asgi:application"
) -> Iterator[str]:
    """Run uvicorn on a free port or that one, on the servers of the environment; yield its URL."""
    port = port or free_port()
    command = [sys.executable, "-m", "uvicorn", application]
    options = ["--lifespan", "off", "--no-access-log", "--timeout-graceful-shutdown", "1"]
    options += ["--http", "arrester.controlplane.web.http_protocol:TimedHeaders"]
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


class Windows:
    """Windows of one browser on one server, one after the other.

    They share a page: a new context costs as much as ten page loads.
    """

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url
        self._unused: Page | None = None
        self._console: list[str] = []

    @contextmanager
    def open(
        self,
        name: str,
        *,
        size: tuple[int, int] = (1280, 800),
        scheme: Literal["light", "dark"] = "light",
        checks_console: bool = True,
    ) -> Iterator[Page]:
        """Return a window of a user; check at the end that the console is empty."""
        page, self._unused = self._unused or self._new_page(), None
        width, height = size
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="null", color_scheme=scheme, reduced_motion="null")
        log_in(page, name, self._url)
        self._console.clear()
        try:
            yield page
        except BaseException:
            page.context.close()
            raise
        console = [*self._console]
        self._clean(page)
        self._unused = page
        assert not checks_console or console == [], console

    def _note(self, line: str) -> None:
        """Keep a line of the console, unless a dialog came before the first frame of its page.

        Chromium leaves out its own focus then; the dialog sets it.
        """
        if not line.startswith("Autofocus processing was blocked"):
            self._console.append(line)

    def _new_page(self) -> Page:
        page = new_page(self._browser, self._url)
        page.on("console", lambda line: self._note(line.text))
        page.on("pageerror", lambda error: self._console.append(str(error)))
        return page

    def _clean(self, page: Page) -> None:
        """End the requests of a page, and remove all that the next one would see."""
        page.unroute_all()
        page.mouse.move(0, 0)
        # A text of the same server: the browser keeps the process of the page.
        page.goto("/healthz")
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.context.clear_cookies()
        page.context.clear_permissions()


def new_page(browser: Browser, url: str, **options: Any) -> Page:
    """Open a page in a context of its own."""
    context = browser.new_context(base_url=url, **options)
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    return context.new_page()


def log_in(page: Page, name: str, url: str) -> None:
    """Log in by a session, without the form: a password check is slow on purpose."""
    from django.contrib.auth.models import User

    client = Client()
    client.force_login(User.objects.get(username=name))
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": url}])


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
