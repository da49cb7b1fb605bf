"""Every action by everybody who may not perform it: neither offered nor performed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from arrester.controlplane.access.roles import Role
from tests.dashboard.accounts import logged_in, make_user, person
from tests.dashboard.every_action import Offered, UserAction, done, only_posts, user_actions
from tests.dashboard.story import Story
from tests.parameters import long_for

#: Forms that are no actions of the control plane.
SESSIONS = {"login", "logout"}
#: The feed accepts a long cursor in the body.
READS = {"api-feed", "preview-redrive", "review-mend", "review-record"}
#: An application that is no subject of an action.
OTHER = "apple"
#: Confined to another application, these refuse each error group by itself, or find no task.
EACH = {"act-on-groups", "resume-many"}
#: Their dialogs are about the selected things: here none.
WITHOUT_SUBJECT = {"act-on-groups", "discard", "dismiss-many"}
#: Each account has tokens, and filters of lists.
OWN = {"create-token", "save-filter"}
#: Only a server with a mail server offers it.
WITH_MAIL = {"own-alerts"}


@pytest.fixture(scope="module")
def everything(shared_data: None) -> list[UserAction]:
    """Create the data of each action, once: refused actions change nothing."""
    story = Story()
    story.starts()
    return user_actions(story)


def offered(client: Client, some: Sequence[UserAction]) -> dict[str, set[str]]:
    """Return the URLs of the enabled controls of each page of some actions."""
    pages = {each.page for each in some}
    return {page: Offered(client.get(page).content.decode()).urls for page in pages}


@pytest.mark.parametrize("role", long_for(Role, [Role.ADMIN]))
def test_forbidden_actions_are_neither_offered_nor_performed(
    everything: list[UserAction], db: None, role: Role
) -> None:
    client = logged_in(make_user("zoe", role.value))
    before = done()
    found = offered(client, everything)
    for action in everything:
        assert (action.offered in found[action.page]) == action.is_allowed(role), action
        if not action.is_allowed(role):
            assert client.post(action.url, action.form).status_code == 403, action
            assert client.get(action.offered).status_code in (403, 405), action
            assert action.rest is None or action.ask(client) == 403, action
    assert done() == before


def test_other_accounts_cannot_act(everything: list[UserAction], db: None, client: Client) -> None:
    before = done()
    without_role = logged_in(make_user("cleo"))
    for action in everything:
        assert client.post(action.url, action.form).status_code == 302
        assert without_role.post(action.url, action.form).status_code == 403
        if action.rest is not None:
            assert (action.ask(client), action.ask(without_role)) == (401, 403)
    assert done() == before


def test_a_cross_site_form_is_refused(everything: list[UserAction], db: None) -> None:
    user = make_user("ana", "operator")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    before = done()
    for action in everything:
        assert strict.post(action.url, action.form).status_code == 403, action
        assert action.rest is None or action.ask(strict) == 403, action
    assert done() == before


def test_acts_on_other_applications_change_nothing(everything: list[UserAction], db: None) -> None:
    everything = [each for each in everything if each.name not in OWN]
    clients = {
        "sees nothing else": person("oli", roles={OTHER: Role.ADMIN}),
        "views all": person("gus", "viewer", roles={OTHER: Role.OPERATOR}),
        "operates all": person("pia", "operator", roles={OTHER: Role.ADMIN}),
    }
    before = done()
    for name, client in clients.items():
        for action in everything:
            if name == "operates all" and action.least is not Role.ADMIN:
                continue
            statuses = [client.post(action.url, action.form).status_code]
            statuses += [] if action.rest is None else [action.ask(client)]
            if action.name in EACH and name != "views all":
                assert {*statuses} <= {200, 302, 403, 404}, (name, action)
            else:
                assert {*statuses} <= {401, 403, 404}, (name, action, statuses)
            status = client.get(action.offered).status_code
            assert status in (302, 403, 404, 405) or action.name in WITHOUT_SUBJECT, (name, action)
        assert done() == before, name
    found = set().union(*offered(clients["views all"], everything).values())
    assert [each.name for each in everything if each.offered in found] == []


def test_every_action_is_covered(everything: list[UserAction]) -> None:
    named = {each.name for each in everything} | SESSIONS | READS | WITH_MAIL
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
