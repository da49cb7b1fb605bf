"""Every page and dialog as each role, at both widths, in both themes: one sweep, one browser.

It looks for findings of axe, messages in the console, contents that do not fit, and violations of
the Content-Security-Policy. The long form leaves pictures of each page in `build/sweep/`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from django.urls import URLPattern, resolve
from playwright.sync_api import Browser, Page

from arrester.dashboard import urls
from tests.dashboard import every_page
from tests.dashboard.browser import open_dialog, violations, window
from tests.dashboard.every_action import only_posts
from tests.dashboard.story import Story
from tests.services import REPOSITORY

pytestmark = pytest.mark.e2e
PICTURES = REPOSITORY / "build" / "sweep"
SIZES = {"wide": (1280, 800), "phone": (360, 740)}
GROUNDS: dict[Literal["light", "dark"], str] = {
    "light": "rgb(247, 247, 245)",
    "dark": "rgb(18, 19, 22)",
}
#: The texts of values that are wider than their place.
CUT = "all => all.filter(dd => dd.scrollWidth > dd.clientWidth).map(dd => dd.innerText)"
#: A page with its HTML, style and scripts, in bytes.
MOST_BYTES = 250_000
PEOPLE = {"viewer": "ben", "operator": "ana", "admin": "ada"}
#: URLs without a page: parts of pages, files, endpoints for machines.
NO_PAGES = {
    "discard-dialog", "edit-record-dialog", "preview-redrive", "redrive-dialog", "review-record",
    "mend-dialog", "review-mend",
    "dead-letter-record", "dismiss-entry-dialog", "dismiss-many-dialog", "dismiss-task-dialog",
    "export", "groups-dialog", "healthz", "limits-dialog", "live", "login", "logout", "metrics",
    "mute-dialog", "pause-dialog", "policy-dialog", "problems", "readyz", "restart-pipeline-dialog",
    "reveal-dialog", "sign-on", "sign-on-callback",
    "resume-at-dialog", "resume-many-dialog", "rollout-dialog", "rule-dialog", "shut-down-dialog",
    "shut-down-instance-dialog", "skip-dialog", "start-dialog",
}  # fmt: skip


class View(NamedTuple):
    """A size of the window and a theme of the system."""

    size: str
    theme: Literal["light", "dark"]


ALL_VIEWS = [View(*each) for each in product(SIZES, GROUNDS)]
WIDE, PHONE = View("wide", "light"), View("phone", "dark")
#: Each size and each theme once for the role that sees everything; the others miss buttons only.
VIEWS = {"viewer": [PHONE], "admin": [WIDE, PHONE]}
#: Rules that depend on the theme.
OF_COLOUR = ["color-contrast", "link-in-text-block"]


@pytest.mark.parametrize(
    ("role", "views"),
    [
        *VIEWS.items(),
        *(pytest.param(role, ALL_VIEWS, marks=pytest.mark.long) for role in PEOPLE),
    ],
    ids=[*(f"{role}-some" for role in VIEWS), *(f"{role}-all" for role in PEOPLE)],
)
def test_every_page_is_accessible_for_each_role_size_and_theme(
    role: str, views: list[View], browser: Browser, server: str, story: Story
) -> None:
    scene = every_page.build(story)
    folder = PICTURES / role
    folder.mkdir(parents=True, exist_ok=True)
    with window(browser, server, PEOPLE[role]) as page:
        wrong = [
            f"{name}: {each}"
            for name, url in every_page.pages(scene).items()
            for each in _look_at(page, url, folder / name, views, axe=role == "admin")
        ]
        if role == "admin":
            for name, (url, clicked) in every_page.dialogs(scene).items():
                page.goto(url)
                open_dialog(page, clicked)
                wrong += [f"{name}: {each}" for each in _seen(page, folder / name, views, axe=True)]
    assert wrong == []


def _look_at(page: Page, url: str, picture: Path, views: list[View], *, axe: bool) -> list[str]:
    response = page.goto(url)
    assert response is not None
    assert response.status == 200, url
    policy = response.headers["content-security-policy"]
    wrong = [policy] if "unsafe" in policy or "default-src 'self'" not in policy else []
    if len(response.body()) > MOST_BYTES:
        wrong.append(f"{len(response.body()):,} bytes")
    return wrong + _seen(page, picture, views, axe=axe)


def _seen(page: Page, picture: Path, views: list[View], *, axe: bool) -> list[str]:
    """Return the faults of the current page in each view."""
    wrong = []
    for view in views:
        width, height = SIZES[view.size]
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=view.theme, reduced_motion="reduce")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            wrong.append(f"{over} px too wide at {width}")
        if cut := page.locator("dd").evaluate_all(CUT):
            wrong.append(f"cut at {width}: {cut}")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        if ground != GROUNDS[view.theme]:
            wrong.append(f"{ground} in {view.theme}")
        if axe:
            rules = OF_COLOUR if view.theme == "dark" else []
            wrong += [f"{view.size} {view.theme} {each}" for each in violations(page, only=rules)]
        if views == ALL_VIEWS:
            name = f"{picture}-{view.size}-{view.theme}.jpg"
            page.screenshot(path=name, type="jpeg", quality=70, full_page=True)
    return wrong


def test_the_sweep_covers_every_page(story: Story) -> None:
    paths = [url.partition("?")[0] for url in every_page.pages(every_page.build(story)).values()]
    patterns = [each for each in urls.urlpatterns if isinstance(each, URLPattern)]
    forms = {each.name for each in patterns if only_posts(each.callback)}
    shown = {resolve(path).url_name for path in paths}
    assert {each.name for each in patterns} == shown | forms | NO_PAGES
