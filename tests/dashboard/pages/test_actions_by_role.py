"""Every action by each role that may perform it. Other modules refuse, and use the mouse."""

from __future__ import annotations

import pytest
from django.urls import reverse
from redis import Redis

from arrester.controlplane.access.roles import Role
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.every_action import done, user_actions
from tests.dashboard.story import Story


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_allowed_actions_are_performed_by_rest(flights: Story, role: Role) -> None:
    client = logged_in(make_user("zoe", role.value))
    for action in user_actions(flights):
        if action.rest is not None and action.is_allowed(role):
            before = done()
            assert action.ask(client) in (200, 201, 202), action
            assert done() > before, action


@pytest.mark.parametrize(
    ("page", "role", "invitation", "others"),
    [
        ("alert-settings", "admin", "Add a URL: its rule sends it", "An admin adds a URL."),
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
