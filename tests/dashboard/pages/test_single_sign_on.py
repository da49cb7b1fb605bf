"""Log-in by a real OpenID Connect provider on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from arrester.controlplane import actions, models
from arrester.controlplane.access.roles import Role
from arrester.controlplane.env import Environment, InvalidSetting, SignOn
from arrester.dashboard.pages.login import single_sign_on
from tests.dashboard.accounts import make_user
from tests.patience import PATIENCE_SECONDS
from tests.ports import free_port

VARIABLES = {
    "ARRESTER_OIDC_ISSUER": "https://sso.example",
    "ARRESTER_OIDC_CLIENT_ID": "arrester",
    "ARRESTER_OIDC_CLIENT_SECRET": "only for tests",
}


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Run a provider; yield its issuer."""
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://localhost:{port}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            try:
                requests.get(f"{url}/.well-known/openid-configuration", timeout=5)
                break
            except requests.ConnectionError:
                assert time.monotonic() < deadline, "the provider does not answer"
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


@pytest.fixture
def sign_on(provider: str, db: None, settings: Any) -> SignOn:
    """Configure the provider."""
    variables = VARIABLES | {
        "ARRESTER_OIDC_ISSUER": provider,
        "ARRESTER_OIDC_ROLES": "viewer=staff,operator=sre,operator=oncall,admin=platform",
    }
    found = Environment.read(variables).sign_on
    assert found is not None
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_on=found)
    return found


def subject(provider: str, sub: str, **claims: Any) -> None:
    """Set what the provider signs about a subject."""
    requests.put(f"{provider}/users/{sub}", json=claims, timeout=10).raise_for_status()


def at_the_provider(client: Client, sub: str, following: str = "") -> str:
    """Begin a log-in and allow it at the provider; return where it sends the browser back to."""
    begun = client.get(reverse("sign-on"), {"next": following})
    assert begun.status_code == 302
    allowed = requests.post(
        begun.headers["Location"], data={"sub": sub}, timeout=10, allow_redirects=False
    )
    assert allowed.status_code == 302, allowed.text
    parts = urlsplit(allowed.headers["Location"])
    return f"{parts.path}?{parts.query}"


def log_in(client: Client, sub: str, following: str = "") -> Any:
    return client.get(at_the_provider(client, sub, following), REMOTE_ADDR="10.0.0.5")


def test_a_subject_gets_an_account_with_the_role_of_its_claim(
    sign_on: SignOn, provider: str
) -> None:
    client = Client()
    assert reverse("sign-on") in client.get(reverse("login")).content.decode()
    subject(provider, "s1", preferred_username="mia@example.org", groups=["sre", "other"])
    back = log_in(client, "s1", "/tasks")
    assert (back.status_code, back.headers["Location"]) == (302, "/tasks")
    assert client.get("/api/v1/status").json()["role"] == "operator"
    user = User.objects.get()
    assert (user.get_username(), user.has_usable_password()) == ("mia@example.org", False)
    subject(provider, "s1", preferred_username="renamed", groups=["staff"])
    assert log_in(Client(), "s1").status_code == 302
    assert client.get("/api/v1/status").json()["role"] == "viewer"
    assert User.objects.get() == user
    entries = models.AuditEntry.objects.order_by("id").values_list("actor", "act", "detail")
    assert list(entries) == [
        ("single sign-on", "CREATED", "operator"),
        ("mia@example.org", "LOGGED_IN", "from 10.0.0.5"),
        ("single sign-on", "ROLE_CHANGED", "viewer"),
        ("mia@example.org", "LOGGED_IN", "from 10.0.0.5"),
    ]


def test_a_subject_without_a_role_or_with_a_taken_name_is_refused(
    sign_on: SignOn, provider: str
) -> None:
    make_user("ada", "admin")
    subject(provider, "s2", preferred_username="ada", groups=["platform"])
    refused = log_in(Client(), "s2")
    assert refused.status_code == 400 and "no other account has" in refused.content.decode()
    subject(provider, "s3", preferred_username="eve", groups=["unknown"])
    refused = log_in(Client(), "s3")
    assert refused.status_code == 403
    assert User.objects.count() == 1
    entries = models.AuditEntry.objects.order_by("id").values_list("about", "act")
    assert list(entries) == [("ada", "LOGIN_REFUSED"), ("eve", "LOGIN_REFUSED")]


def test_a_deactivated_account_and_a_foreign_address_are_refused(
    sign_on: SignOn, provider: str
) -> None:
    subject(provider, "s4", preferred_username="leo", groups="staff")
    client = Client()
    back = log_in(client, "s4", "https://evil.example/")
    assert back.headers["Location"] == "/"
    User.objects.update(is_active=False)
    assert log_in(Client(), "s4").status_code == 403


def test_an_answer_that_was_not_requested_or_not_signed_for_us_is_refused(
    sign_on: SignOn, provider: str, settings: Any
) -> None:
    subject(provider, "s5", preferred_username="ina", groups=["staff"])
    first = Client()
    url = at_the_provider(first, "s5")
    assert Client().get(url).status_code == 403  # the session of another browser
    assert first.get(url).status_code == 302
    assert first.get(url).status_code == 403  # a second time
    denied = f"{reverse('sign-on-callback')}?error=access_denied"
    assert first.get(denied).status_code == 403
    foreign = replace(sign_on, issuer=f"{provider}/")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_on=foreign)
    assert log_in(Client(), "s5").status_code == 403  # it is signed by another issuer


def test_an_unreachable_provider_is_503(sign_on: SignOn, settings: Any) -> None:
    away = replace(sign_on, issuer=f"http://127.0.0.1:{free_port()}")
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_on=away)
    answer = Client().get(reverse("sign-on"))
    assert answer.status_code == 503 and away.issuer in answer.content.decode()


def test_without_a_provider_there_is_no_single_sign_on(db: None) -> None:
    assert Client().get(reverse("sign-on")).status_code == 404
    assert reverse("sign-on") not in Client().get(reverse("login")).content.decode()


def test_a_claim_gives_roles_on_the_applications_of_the_settings(
    sign_on: SignOn, provider: str, settings: Any
) -> None:
    roles = (
        "operator@movies=team-movies,admin@movies=leads,viewer@orders=team-movies,admin=platform"
    )
    found = Environment.read(VARIABLES | {"ARRESTER_OIDC_ROLES": roles}).sign_on
    assert found is not None and found.roles == ((Role.ADMIN, "platform"),)
    mapped = replace(sign_on, roles=found.roles, application_roles=found.application_roles)
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, sign_on=mapped)
    for groups, expected in (
        (["team-movies"], {"movies": "operator", "orders": "viewer"}),
        (["leads", "team-movies"], {"movies": "admin", "orders": "viewer"}),
        (["leads"], {"movies": "admin"}),
    ):
        subject(provider, "m1", preferred_username="mia", groups=groups)
        client = Client()
        assert log_in(client, "m1").status_code == 302
        assert client.get("/api/v1/status").json()["roles"] == expected
    # A role on another application is not the provider's: a log-in keeps it.
    actions.grant_role("mia", "billing", Role.VIEWER, actor="ada")
    assert log_in(client, "m1").status_code == 302
    assert client.get("/api/v1/status").json()["roles"] == {"movies": "admin", "billing": "viewer"}
    subject(provider, "m1", preferred_username="mia", groups=[])
    assert log_in(Client(), "m1").status_code == 403


@pytest.mark.parametrize("text", ["operator@=x", "king@movies=x", "viewer@two words=x"])
def test_a_role_on_an_application_is_checked(text: str) -> None:
    with pytest.raises(InvalidSetting, match="operator@movies=VALUE"):
        Environment.read(VARIABLES | {"ARRESTER_OIDC_ROLES": text})


def test_the_highest_role_of_a_claim_counts() -> None:
    sign_on = Environment.read(VARIABLES).sign_on
    assert sign_on is not None
    for given, role in (
        (["arrester-viewer", "arrester-admin"], Role.ADMIN),
        ("arrester-operator", Role.OPERATOR),
        ([], None),
        ({"arrester-viewer": 1}, Role.VIEWER),
        (7, None),
    ):
        assert single_sign_on.role_of({"groups": given}, sign_on) is role


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("ARRESTER_OIDC_CLIENT_ID", "", "the client that the provider has registered"),
        ("ARRESTER_OIDC_CLIENT_SECRET", "", "the secret of the client"),
        ("ARRESTER_OIDC_ISSUER", "sso.example", "starts with http:// or https://"),
        ("ARRESTER_OIDC_ROLES", "king=staff", "viewer=VALUE"),
        ("ARRESTER_OIDC_ROLES", "viewer", "viewer=VALUE"),
    ],
)
def test_settings_of_single_sign_on_are_checked(name: str, value: str, allowed: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        Environment.read(VARIABLES | {name: value})
    assert str(error.value).startswith(name) and allowed in str(error.value)


def test_the_code_of_the_redirect_is_protected(sign_on: SignOn) -> None:
    begun = Client().get(reverse("sign-on")).headers["Location"]
    asked = parse_qs(urlsplit(begun).query)
    assert asked["code_challenge_method"] == ["S256"] and asked["nonce"] and asked["state"]
