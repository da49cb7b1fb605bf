"""Every page and dialog as each role, at both widths, in both themes: one sweep, one browser.

It looks for findings of axe, messages in the console, contents that do not fit, and violations of
the Content-Security-Policy. The long form leaves pictures of each page in `build/sweep/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import pytest
from django.urls import URLPattern, resolve
from playwright.sync_api import Browser, Page, expect

from arrester.dashboard import urls
from tests.dashboard import every_page
from tests.dashboard.accessibility import OF_COLOUR, Inspection, axe_script
from tests.dashboard.accounts import make_user
from tests.dashboard.browser import Windows, open_dialog
from tests.dashboard.every_action import done, only_posts
from tests.dashboard.every_page import Scene
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
    "api-unversioned", "assign-dialog", "filter-dialog", "owner-rule-dialog",
    "discard-dialog", "edit-record-dialog", "preview-redrive", "redrive-dialog", "review-record",
    "mend-dialog", "review-mend", "test-result",
    "dead-letter-record", "dismiss-entry-dialog", "dismiss-many-dialog", "dismiss-task-dialog",
    "export", "groups-dialog", "healthz", "limits-dialog", "live", "login", "logout", "metrics",
    "mute-dialog", "pause-dialog", "policy-dialog", "problems", "readyz", "restart-pipeline-dialog",
    "pause-key-dialog", "pause-pipeline-dialog", "resume-pipeline-dialog",
    "reveal-dialog", "sign-on", "sign-on-callback",
    "resume-at-dialog", "resume-many-dialog", "rollout-dialog", "rule-dialog", "shut-down-dialog",
    "shut-down-instance-dialog", "skip-dialog", "start-dialog", "subscription-dialog",
}  # fmt: skip


class View(NamedTuple):
    """A size of the window and a theme of the system."""

    size: str
    theme: Literal["light", "dark"]


ALL_VIEWS = [View(*each) for each in product(SIZES, GROUNDS)]
WIDE, PHONE = View("wide", "light"), View("phone", "dark")
#: Each size and each theme once for the role that sees everything.
VIEWS = [WIDE, PHONE]


@pytest.fixture(scope="module")
def scene(shared_data: None, browser: Browser) -> Scene:
    """Build what all pages show, once for all tests."""
    for role, name in PEOPLE.items():
        make_user(name, role)
    story = Story()
    story.starts()
    return every_page.build(story)


@pytest.mark.parametrize(
    ("role", "views"),
    [
        ("admin", VIEWS),
        *(pytest.param(role, ALL_VIEWS, marks=pytest.mark.long) for role in PEOPLE),
    ],
    ids=["admin-some", *(f"{role}-all" for role in PEOPLE)],
)
def test_every_page_is_accessible_for_each_role_size_and_theme(
    role: str, views: list[View], windows: Windows, scene: Scene
) -> None:
    pages, look, wrong = every_page.pages(scene), Look(role, views), []
    with windows.open(PEOPLE[role]) as page, page.add_init_script(look.script):
        for name, url in pages.items():
            wrong += [f"{name}: {each}" for each in look.at(page, url, name)]
    assert wrong == []


@pytest.mark.parametrize(
    "views", [[PHONE], pytest.param(ALL_VIEWS, marks=pytest.mark.long)], ids=["phone", "all"]
)
def test_every_dialog_is_accessible_and_does_not_act_when_it_is_closed_or_on_enter(
    views: list[View], windows: Windows, scene: Scene
) -> None:
    before, wrong, look = done(), [], Look("admin", views)
    dialogs = sorted(every_page.dialogs(scene).items(), key=lambda each: each[1])
    with windows.open("ada") as page, page.add_init_script(look.script):
        dialog, shown = page.get_by_role("dialog"), ""
        for name, (url, clicked) in dialogs:
            if url != shown:
                page.goto(url)
                shown = url
            open_dialog(page, clicked)
            wrong += [f"{name}: {each}" for each in look.seen(page, name, within="dialog[open]")]
            page.keyboard.press("Escape")
            expect(dialog, name).to_be_hidden()
            open_dialog(page, clicked)
            for field in dialog.locator("input:visible").all():
                field.focus()
                page.keyboard.press("Enter")
            expect(dialog, name).to_be_visible()
            dialog.locator("[data-close]").click()
            expect(dialog, name).to_be_hidden()
    assert (wrong, done()) == ([], before)


class Look:
    """Looks at pages in some views; at those of an admin also with axe."""

    def __init__(self, role: str, views: Sequence[View]) -> None:
        self._views = views
        self._folder = PICTURES / role
        self._folder.mkdir(parents=True, exist_ok=True)
        self._inspections = {theme: Inspection() for theme in GROUNDS} if role == "admin" else {}
        #: Live pages are checked elsewhere; a stream for each page costs more than the page.
        self.script = "localStorage['arrester-live'] = 'off';"
        self.script += axe_script() if role == "admin" else ""

    def at(self, page: Page, url: str, name: str) -> list[str]:
        """Open a page; return its faults."""
        response = page.goto(url)
        assert response is not None
        assert response.status == 200, url
        policy = response.headers["content-security-policy"]
        wrong = [policy] if "unsafe" in policy or "default-src 'self'" not in policy else []
        if len(response.body()) > MOST_BYTES:
            wrong.append(f"{len(response.body()):,} bytes")
        return wrong + self.seen(page, name)

    def seen(self, page: Page, name: str, *, within: str | None = None) -> list[str]:
        """Return the faults of the current page, or of a part of it, in each view."""
        wrong = []
        for view in self._views:
            width, height = SIZES[view.size]
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=view.theme, reduced_motion="reduce")
            wrong += _cut(page, width)
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            if ground != GROUNDS[view.theme]:
                wrong.append(f"{ground} in {view.theme}")
            if view.theme in self._inspections:
                rules = OF_COLOUR if view.theme == "dark" else ()
                found = self._inspections[view.theme].violations(page, only=rules, within=within)
                wrong += [f"{view.size} {view.theme} {each}" for each in found]
            if self._views == ALL_VIEWS:
                path = self._folder / f"{name}-{view.size}-{view.theme}.jpg"
                page.screenshot(path=path, type="jpeg", quality=70, full_page=True)
        return wrong


def _cut(page: Page, width: int) -> list[str]:
    """Return what does not fit in a window of a width."""
    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    cut = page.locator("dd").evaluate_all(CUT)
    return [
        *([f"{over} px too wide at {width}"] if over > 0 else []),
        *([f"cut at {width}: {cut}"] if cut else []),
    ]


def test_the_sweep_covers_every_page(scene: Scene) -> None:
    paths = [url.partition("?")[0] for url in every_page.pages(scene).values()]
    patterns = [each for each in urls.urlpatterns if isinstance(each, URLPattern)]
    forms = {each.name for each in patterns if only_posts(each.callback)}
    shown = {resolve(path).url_name for path in paths}
    assert {each.name for each in patterns} == shown | forms | NO_PAGES
