"""Everything that people do, by each role: offered and done, or neither offered nor obeyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from playwright.sync_api import Browser, expect

from arrester.controlplane import queries
from arrester.controlplane.ingest import drain
from arrester.controlplane.roles import Role
from tests.dashboard.browser import window
from tests.dashboard.conftest import logged_in, make_user
from tests.dashboard.every_action import Deed, Offered, deeds, only_posts
from tests.dashboard.story import Story

#: Forms that are no deeds of the control plane.
SESSIONS = {"login", "logout"}
#: The feed takes its cursor in a body where it is too long for an address.
READS = {"api-feed"}
PATIENCE_MS = 15_000


def done() -> int:
    """Return how many things people have done, of which each leaves an event or a row."""
    return len(queries.audit(queries.AuditFilter(), limit=200).rows)


def offered(client: Client, deed: Deed) -> bool:
    return deed.offered in Offered(client.get(deed.page).content.decode()).urls


def ask(client: Client, deed: Deed) -> int:
    assert deed.rest is not None
    path, body = deed.rest
    return client.post(path, body, content_type="application/json").status_code


def allowed(deed: Deed, role: Role) -> bool:
    return list(Role).index(role) >= list(Role).index(deed.least)


@pytest.mark.parametrize("role", Role)
def test_what_a_role_may_not_do_is_neither_offered_nor_obeyed(flights: Story, role: Role) -> None:
    everything = deeds(flights)
    client = logged_in(make_user("zoe", role.value))
    before = done()
    for deed in everything:
        assert offered(client, deed) == allowed(deed, role), deed
        if not allowed(deed, role):
            assert client.post(deed.url, deed.form).status_code == 403, deed
            assert client.get(deed.offered).status_code in (403, 405), deed
            assert deed.rest is None or ask(client, deed) == 403, deed
    assert done() == before


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_what_a_role_may_do_is_done_by_rest(flights: Story, role: Role) -> None:
    client = logged_in(make_user("zoe", role.value))
    for deed in deeds(flights):
        if deed.rest is not None:
            before = done()
            assert ask(client, deed) in (200, 201, 202), deed
            assert done() > before, deed


def test_nobody_else_does_anything(flights: Story, client: Client) -> None:
    everything = deeds(flights)
    before = done()
    without_role = logged_in(make_user("cleo"))
    for deed in everything:
        assert client.post(deed.url, deed.form).status_code == 302
        assert without_role.post(deed.url, deed.form).status_code == 403
        if deed.rest is not None:
            assert (ask(client, deed), ask(without_role, deed)) == (401, 403)
    assert done() == before


def test_a_form_that_another_site_sends_is_refused(flights: Story) -> None:
    user = make_user("ana", "operator")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    everything = deeds(flights)
    before = done()
    for deed in everything:
        assert strict.post(deed.url, deed.form).status_code == 403, deed
        assert deed.rest is None or ask(strict, deed) == 403, deed
    assert done() == before


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "role", "size", "scheme"),
    [
        ("ana", Role.OPERATOR, (1280, 800), "light"),
        pytest.param("ana", Role.OPERATOR, (360, 740), "dark", marks=pytest.mark.long),
        pytest.param("ada", Role.ADMIN, (1280, 800), "dark", marks=pytest.mark.long),
        pytest.param("ada", Role.ADMIN, (360, 740), "light", marks=pytest.mark.long),
    ],
)
def test_what_a_role_may_do_is_done_with_the_mouse(
    browser: Browser,
    server: str,
    story: Story,
    name: str,
    role: Role,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    everything = [deed for deed in deeds(story) if allowed(deed, role)]
    with window(browser, server, name, size=size, scheme=scheme) as page:
        for deed in everything:
            before = done()
            deed.press(page)
            if deed.name == "test-error":
                page.wait_for_url("**/errors?application=test*")
                continue
            for _ in range(PATIENCE_MS // 50):
                if done() > before:
                    break
                page.wait_for_timeout(50)
            assert done() > before, deed
            expect(page.get_by_role("dialog")).to_be_hidden()
    drain.drain("test")
    assert queries.application("test").state.failed == 1


@pytest.mark.e2e
def test_a_viewer_can_press_nothing(browser: Browser, server: str, story: Story) -> None:
    everything = deeds(story)
    before = done()
    with window(browser, server, "ben") as page:
        for url in {deed.page for deed in everything}:
            page.goto(url)
            for button in page.locator("main button:enabled").all():
                text = button.inner_text()
                form = button.locator("xpath=ancestor::form[@method='post']")
                assert form.count() == 0, (url, text)
                assert button.get_attribute("hx-get") is None, (url, text)
    assert done() == before


def test_no_deed_is_left_out(flights: Story) -> None:
    everything = deeds(flights)
    named = {each.name for each in everything} | SESSIONS | READS
    endpoints = {each.rest[0] for each in everything if each.rest}
    for path, callback, name in _views(get_resolver(), ""):
        if _posts(callback):
            known = name in named or any(_fits(path, each) for each in endpoints)
            assert known, f"nobody tries {name} ({path})"


def _views(resolver: URLResolver, before: str) -> list[tuple[str, Callable[..., Any], str]]:
    found = []
    for each in resolver.url_patterns:
        if isinstance(each, URLPattern):
            found.append((before + str(each.pattern), each.callback, each.name or ""))
        else:
            found += _views(each, before + str(each.pattern))
    return found


def _posts(view: Callable[..., Any]) -> bool:
    """Return whether a view takes forms or bodies: one that says so, or REST with a `post`."""
    rest = getattr(view, "cls", None)
    return only_posts(view) if rest is None else hasattr(rest, "post")


def _fits(pattern: str, path: str) -> bool:
    mine, its = pattern.strip("/").split("/"), path.strip("/").split("/")
    return len(mine) == len(its) and all(
        a == b or a.startswith("<") for a, b in zip(mine, its, strict=True)
    )
