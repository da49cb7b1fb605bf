"""Every action by each role: offered and performed, or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from playwright.sync_api import Browser, expect
from redis import Redis

from arrester.controlplane import queries
from arrester.controlplane.ingest import drain
from arrester.controlplane.roles import Role
from tests.dashboard.browser import window
from tests.dashboard.conftest import logged_in, make_user
from tests.dashboard.every_action import Offered, UserAction, only_posts, user_actions
from tests.dashboard.story import Story
from tests.patience import PATIENCE_MS

#: Forms that are no actions of the control plane.
SESSIONS = {"login", "logout"}
#: The feed accepts a long cursor in the body.
READS = {"api-feed", "preview-redrive", "review-mend", "review-record"}


def done() -> int:
    """Return the number of performed actions: each leaves an event or a row."""
    return len(queries.audit(queries.AuditFilter(), limit=200).rows)


def offered(client: Client, action: UserAction) -> bool:
    return action.offered in Offered(client.get(action.page).content.decode()).urls


def ask(client: Client, action: UserAction) -> int:
    assert action.rest is not None
    path, body = action.rest
    return client.post(path, body, content_type="application/json").status_code


def allowed(action: UserAction, role: Role) -> bool:
    return list(Role).index(role) >= list(Role).index(action.least)


@pytest.mark.parametrize("role", Role)
def test_forbidden_actions_are_neither_offered_nor_performed(flights: Story, role: Role) -> None:
    everything = user_actions(flights)
    client = logged_in(make_user("zoe", role.value))
    before = done()
    for action in everything:
        assert offered(client, action) == allowed(action, role), action
        if not allowed(action, role):
            assert client.post(action.url, action.form).status_code == 403, action
            assert client.get(action.offered).status_code in (403, 405), action
            assert action.rest is None or ask(client, action) == 403, action
    assert done() == before


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_allowed_actions_are_performed_by_rest(flights: Story, role: Role) -> None:
    client = logged_in(make_user("zoe", role.value))
    for action in user_actions(flights):
        if action.rest is not None and allowed(action, role):
            before = done()
            assert ask(client, action) in (200, 201, 202), action
            assert done() > before, action


@pytest.mark.parametrize(
    ("page", "role", "invitation", "others"),
    [
        ("alert-settings", "admin", "Add a mail address or a URL", "An admin adds a mail address"),
        ("commands", "operator", "To issue one, open a task", "Operators issue them"),
        ("quarantine", "operator", "requeue them here", "Operators requeue them"),
    ],
)
def test_only_who_may_act_is_invited_to(
    db: None, redis: Redis, page: str, role: str, invitation: str, others: str
) -> None:
    for client, invited in (
        (logged_in(make_user("zoe", role)), True),
        (logged_in(make_user("ben", "viewer")), False),
    ):
        shown = client.get(reverse(page)).content.decode()
        assert (invitation in shown, others in shown) == (invited, not invited)


def test_other_accounts_cannot_act(flights: Story, client: Client) -> None:
    everything = user_actions(flights)
    before = done()
    without_role = logged_in(make_user("cleo"))
    for action in everything:
        assert client.post(action.url, action.form).status_code == 302
        assert without_role.post(action.url, action.form).status_code == 403
        if action.rest is not None:
            assert (ask(client, action), ask(without_role, action)) == (401, 403)
    assert done() == before


def test_a_cross_site_form_is_refused(flights: Story) -> None:
    user = make_user("ana", "operator")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    everything = user_actions(flights)
    before = done()
    for action in everything:
        assert strict.post(action.url, action.form).status_code == 403, action
        assert action.rest is None or ask(strict, action) == 403, action
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
def test_allowed_actions_are_performed_with_the_mouse(
    browser: Browser,
    server: str,
    story: Story,
    name: str,
    role: Role,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    everything = [action for action in user_actions(story) if allowed(action, role)]
    with window(browser, server, name, size=size, scheme=scheme) as page:
        for action in everything:
            before = done()
            action.press(page)
            if action.name == "test-error":
                page.wait_for_url("**/errors?application=test*")
                continue
            for _ in range(PATIENCE_MS // 50):
                if done() > before:
                    break
                page.wait_for_timeout(50)
            assert done() > before, action
            expect(page.get_by_role("dialog")).to_be_hidden()
    drain.drain("test")
    assert queries.application("test").state.failed == 1


@pytest.mark.long
@pytest.mark.e2e
def test_a_viewer_has_no_enabled_button(browser: Browser, server: str, story: Story) -> None:
    everything = user_actions(story)
    before = done()
    with window(browser, server, "ben") as page:
        for url in {action.page for action in everything}:
            page.goto(url)
            for button in page.locator("main button:enabled").all():
                text = button.inner_text()
                # Each user has tokens of the own account.
                form = button.locator(
                    f"xpath=ancestor::form[@method='post' and @action!='{reverse('create-token')}']"
                )
                assert form.count() == 0, (url, text)
                assert button.get_attribute("hx-get") is None, (url, text)
    assert done() == before


def test_every_action_is_covered(flights: Story) -> None:
    everything = user_actions(flights)
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
    """Return whether a view accepts POST."""
    rest = getattr(view, "cls", None)
    return only_posts(view) if rest is None else hasattr(rest, "post")


def _fits(pattern: str, path: str) -> bool:
    mine, its = pattern.strip("/").split("/"), path.strip("/").split("/")
    return len(mine) == len(its) and all(
        a == b or a.startswith("<") for a, b in zip(mine, its, strict=True)
    )
