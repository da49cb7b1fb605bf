"""The first three users: created once, and roles that were removed stay removed."""

from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models.signals import m2m_changed
from redis import Redis

from arrester.controlplane import actions, embedded, signing
from arrester.controlplane.access.roles import Role
from arrester.controlplane.management.commands.bootstrap import (
    DEMO_AGENT_PASSWORD,
    USERS,
    password_variable,
)
from arrester.controlplane.redis import redis_urls

pytestmark = pytest.mark.usefixtures("fresh_database")


def bootstrap() -> str:
    """Run the command; return its output."""
    output = StringIO()
    call_command("bootstrap", stdout=output)
    return output.getvalue()


def roles(name: str) -> set[str]:
    return set(User.objects.get(username=name).groups.values_list("name", flat=True))


def test_the_first_start_makes_three_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(password_variable("viewer"), "viewer-secret")
    output = bootstrap()
    assert "created user viewer, password from ARRESTER_VIEWER_PASSWORD" in output
    assert "viewer-secret" not in output
    assert User.objects.get(username="viewer").check_password("viewer-secret")
    assert {name: roles(name) for name in USERS} == {name: {name} for name in USERS}
    assert bootstrap() == f"public key for agents: ARRESTER_SERVER_KEY={signing.public_key()}\n"


def test_the_agent_of_the_demo_gets_its_credential_once(
    redis: Redis, services: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEMO_AGENT_PASSWORD, "agent-secret")
    assert "a credential for agents of flights from ARRESTER_DEMO_AGENT_PASSWORD" in bootstrap()
    assert "credential" not in bootstrap()
    url = redis_urls.with_login(services.redis, "arrester-agent-flights", "agent-secret")
    with Redis.from_url(url) as agent:
        assert agent.ping()


def test_a_later_start_restores_no_removed_role() -> None:
    bootstrap()
    actions.change_role("operator", Role.VIEWER, actor="admin")
    User.objects.get(username="viewer").groups.clear()
    actions.deactivate_account("viewer", actor="admin")
    bootstrap()
    assert roles("operator") == {"viewer"}
    assert roles("viewer") == set()
    assert not User.objects.get(username="viewer").is_active


def test_an_existing_user_of_that_name_does_not_become_admin() -> None:
    User.objects.create_user("admin", password="a password of the user")
    assert "created user admin" not in bootstrap()
    assert roles("admin") == set()
    assert User.objects.get(username="admin").check_password("a password of the user")


def test_an_account_is_created_completely_or_not_at_all() -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    m2m_changed.connect(interrupt, sender=User.groups.through)
    try:
        with pytest.raises(KeyboardInterrupt):
            bootstrap()
    finally:
        m2m_changed.disconnect(interrupt, sender=User.groups.through)
    assert not User.objects.exists()
    bootstrap()
    assert roles("admin") == {"admin"}
