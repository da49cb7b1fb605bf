"""Make the pictures in docs/screenshots from the running product and its demo pipeline.

It starts everything in a temporary folder, waits for the first PAUSED task, acts as an operator
would, and photographs what is there.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
PICTURES = REPOSITORY / "docs" / "screenshots"
DESKTOP, PHONE = (1280, 800), (360, 740)
PATIENCE_MS = 300_000
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    """Run the product, take the pictures, stop it."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=PATIENCE_MS)
    # Under /tmp itself: the account that PostgreSQL runs under has to get there.
    with tempfile.TemporaryDirectory(prefix="arrester-pictures-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        home = Path(folder) / "home"
        with product(home) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=os.environ.get("CHROMIUM") or None, args=QUIET
            )
            password = json.loads((home / "credentials.json").read_text())["operator"]
            story(browser, url, password)
            browser.close()


@contextmanager
def product(home: Path) -> Iterator[str]:
    """Run `manage.py up` while the block runs; give the dashboard's URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    env = os.environ | {"ARRESTER_HOME": str(home), "ARRESTER_PORT": str(port)}
    up = subprocess.Popen([sys.executable, "manage.py", "up"], cwd=REPOSITORY, env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url)
        yield url
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(120)


def wait_for(url: str) -> None:
    """Return when the web process answers; raises TimeoutError after two minutes."""
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"nothing answers at {url}")


def story(browser: Browser, url: str, password: str) -> None:
    """Photograph what an operator sees, from the alarm to the resumed task."""
    page = signed_in(browser, url, password, size=DESKTOP, scheme="light")
    page.goto(f"{url}/applications/flights")
    expect(page.get_by_role("link", name="PAUSED")).to_have_count(2)
    photograph(page, "application")
    page.goto(url)
    photograph(page, "overview")
    page.get_by_role("link", name="departures_JFK").first.click()
    expect(page.get_by_role("button", name="Resume past this record")).to_be_visible()
    task = page.url
    photograph(page, "task", whole=True)
    for name, scheme, size in (("task-dark", "dark", DESKTOP), ("task-phone", "light", PHONE)):
        other = signed_in(browser, url, password, size=size, scheme=scheme)
        other.goto(task)
        photograph(other, name)
        other.close()
    resume_past(page)
    page.goto(f"{url}/errors")
    photograph(page, "errors")
    page.get_by_role("link", name="SparkException").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("SparkException")
    photograph(page, "error")
    page.goto(f"{url}/applications/flights")
    page.get_by_role("button", name="Shut down application").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    photograph(page, "shut-down")


def resume_past(page: Page) -> None:
    """Skip the record with a reason, and photograph the dialog and the command's page."""
    page.get_by_role("button", name="Resume past this record").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("HA51 did leave 21 hours late; the row is right")
    photograph(page, "resume-past")
    dialog.get_by_role("button", name="Resume past this record").click()
    last = page.get_by_text("Last command")
    expect(last).to_contain_text("APPLIED")
    last.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("APPLIED")
    photograph(page, "command")


def signed_in(
    browser: Browser, url: str, password: str, *, size: tuple[int, int], scheme: str
) -> Page:
    """Return a page of the given size and colours on which the operator has logged in."""
    dark = scheme == "dark"
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}/login")
    page.get_by_label("User name").fill("operator")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    return page


def photograph(page: Page, name: str, *, whole: bool = False) -> None:
    """Write the picture `name`, once what moves has come to rest."""
    page.wait_for_timeout(600)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=whole, animations="disabled")
    print(f"docs/screenshots/{name}.png")


if __name__ == "__main__":
    main()
