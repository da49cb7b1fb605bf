"""REST tokens: hashed, named, with a scope and an end; and the limit of requests."""

from __future__ import annotations

import hashlib
import importlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from arrester.controlplane import actions, embedded, models
from arrester.controlplane.access.roles import TokenScope
from arrester.controlplane.actions.access import tokens
from arrester.dashboard.rest.authentication import Throttle
from arrester.domain.errors import InvalidValue
from tests.dashboard.accounts import logged_in, make_user, token
from tests.dashboard.story import Story

JSON = "application/json"


@pytest.fixture
def admin(db: None) -> Client:
    return logged_in(make_user("ada", "admin"))


def by(text: str) -> Any:
    return {"Authorization": f"Bearer {text}"}


def status(text: str) -> int:
    return Client().get("/api/v1/applications", headers=by(text)).status_code


def test_a_token_is_created_used_and_revoked(viewer: Client, admin: Client) -> None:
    created = viewer.post("/api/v1/tokens", {"name": "ci", "days": 30}, content_type=JSON)
    assert created.status_code == 201
    row = created.json()
    text = row.pop("token")
    assert text.startswith(tokens.PREFIX) and (row["name"], row["scope"]) == ("ci", "read")
    assert row["last_used_at"] is None
    assert text not in str(list(models.RestToken.objects.values()))
    [own] = Client().get("/api/v1/tokens", headers=by(text)).json()["results"]
    assert own["last_used_at"] is not None
    assert own | {"last_used_at": None} == row
    token("ada", "another")
    assert [each["account"] for each in admin.get("/api/v1/tokens").json()["results"]] == [
        "ada",
        "ben",
    ]
    assert [each["account"] for each in viewer.get("/api/v1/tokens").json()["results"]] == ["ben"]
    [other] = [
        each["id"]
        for each in admin.get("/api/v1/tokens").json()["results"]
        if each["id"] != row["id"]
    ]
    assert viewer.delete(f"/api/v1/tokens/{other}").status_code == 403
    assert admin.delete("/api/v1/tokens/999999").status_code == 404
    assert admin.delete(f"/api/v1/tokens/{row['id']}").status_code == 204
    assert status(text) == 401
    acts = models.AuditEntry.objects.order_by("id").values_list("actor", "about", "act")
    assert list(acts) == [
        ("ben", "ben", "TOKEN_CREATED"),
        ("ada", "ada", "TOKEN_CREATED"),
        ("ada", "ben", "TOKEN_REVOKED"),
    ]


def test_a_token_lists_and_revokes_tokens_with_no_more_than_its_own_applications(
    viewer: Client,
) -> None:
    lists = {"own": ["a", "b"], "less": ["a"], "more": ["a", "b", "c"], "other": ["c"], "all": None}
    created = {
        name: actions.create_token(
            "ben", name, actor="ben", scope=TokenScope.OPERATE, applications=applications
        )
        for name, applications in lists.items()
    }
    limited = Client(headers=by(created["own"].text))
    shown = limited.get("/api/v1/tokens").json()["results"]
    assert {each["name"]: each["applications"] for each in shown} == {
        "less": ["a"],
        "own": ["a", "b"],
    }
    for name in ("more", "other", "all"):
        assert limited.delete(f"/api/v1/tokens/{created[name].row.id}").status_code == 403
        assert status(created[name].text) == 200
    assert limited.delete(f"/api/v1/tokens/{created['less'].row.id}").status_code == 204
    assert [each["name"] for each in viewer.get("/api/v1/tokens").json()["results"]] == [
        "all", "more", "other", "own",
    ]  # fmt: skip


def test_a_token_ends(viewer: Client) -> None:
    text = token("ben")
    assert status(text) == 200
    models.RestToken.objects.update(expires_at=timezone.now())
    assert status(text) == 401
    assert "expired" in viewer.get(reverse("settings")).content.decode()
    models.RestToken.objects.update(expires_at=None)
    assert status(text) == 200
    User.objects.update(is_active=False)
    assert status(text) == 401


def test_the_last_use_is_written_at_most_once_a_minute(viewer: Client) -> None:
    text = token("ben")

    def used() -> Any:
        assert status(text) == 200
        return models.RestToken.objects.values_list("last_used_at", flat=True).get()

    first = used()
    assert used() == first
    earlier = first - timedelta(minutes=2)
    models.RestToken.objects.update(last_used_at=earlier)
    assert used() >= first


def test_a_token_with_the_scope_read_changes_nothing(flights: Story, operator: Client) -> None:
    reader, worker = token("ana", "r", TokenScope.READ), token("ana", "o", TokenScope.OPERATE)
    task = flights.pauses("JFK").digest
    command = {"kind": "RESUME_TASK", "task": task, "id": str(uuid4())}

    def post(path: str, body: Any, text: str) -> Any:
        return Client().post(f"/api/v1/{path}", body, content_type=JSON, headers=by(text))

    refused = post("commands", command, reader)
    assert refused.status_code == 403
    assert "'r' has the scope read" in refused.json()["detail"]
    assert post("tokens", {"name": "more"}, reader).status_code == 403
    mine = models.RestToken.objects.get(name="o").id
    assert Client().delete(f"/api/v1/tokens/{mine}", headers=by(reader)).status_code == 403
    assert post("feed", {}, reader).status_code == 200
    assert Client().get("/api/v1/installation", headers=by(reader)).status_code == 200
    assert post("commands", command, worker).status_code == 202


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 51}, "1 to 50 printable characters"),
        ({"name": "a\u202eb"}, "printable"),
        ({"name": "x", "days": 0}, "a whole number from 1 to 365"),
        ({"name": "x", "days": 366}, "a whole number from 1 to 365"),
        ({"name": "x", "days": None}, "for admins only"),
        ({"name": "x", "scope": "admin"}, "one of read, operate"),
        ({"name": "old"}, "no other token of the account"),
    ],
)
def test_values_of_a_new_token_are_checked(viewer: Client, given: Any, allowed: str) -> None:
    token("ben", "old")
    answer = viewer.post("/api/v1/tokens", given, content_type=JSON)
    assert answer.status_code == 400 and allowed in str(answer.json())
    assert models.RestToken.objects.count() == 1


def test_only_admins_create_tokens_without_an_end(viewer: Client, admin: Client) -> None:
    endless = {"name": "x", "days": None}
    assert admin.post("/api/v1/tokens", endless, content_type=JSON).json()["expires_at"] is None
    form = {"name": "x", "scope": "read", "days": "never"}
    create = reverse("create-token")
    assert "for admins only" in viewer.post(create, form).content.decode()
    assert "Token y" in admin.post(create, form | {"name": "y"}).content.decode()
    assert models.RestToken.objects.filter(user__username="ben").count() == 0


def test_an_account_has_a_limit_of_tokens(viewer: Client) -> None:
    user = User.objects.get(username="ben")
    models.RestToken.objects.bulk_create(
        models.RestToken(
            user=user, name=str(number), digest=str(number), scope="read", created_at=timezone.now()
        )
        for number in range(tokens.PER_ACCOUNT)
    )
    with pytest.raises(InvalidValue, match="revoke one first"):
        actions.create_token("ben", "one more", actor="ben")


def test_a_token_is_created_on_the_machine_of_the_server(
    viewer: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("create_token", "ben", "ci", "--days", "7")
    assert status(capsys.readouterr().out.strip()) == 200
    with pytest.raises(CommandError, match="there is no account 'nobody'"):
        call_command("create_token", "nobody", "ci")


def test_the_tokens_of_0_2_work_on_as_hashes(fresh_database: embedded.Urls) -> None:
    old, user = "b78ca954b142b692960f66050f26cb0f056ff94a", make_user("ben", "viewer")
    take_over = importlib.import_module("arrester.migrations.0009_rest_tokens").TAKE_OVER
    with psycopg.connect(fresh_database.migrate_database) as owner:
        owner.execute(
            "CREATE TABLE authtoken_token (key varchar(40), created timestamptz, user_id integer)"
        )
        owner.execute("INSERT INTO authtoken_token VALUES (%s, now(), %s)", [old, user.pk])
        owner.execute(take_over)
        assert owner.execute("SELECT to_regclass('authtoken_token')").fetchone() == (None,)
    assert status(old) == 200
    row = models.RestToken.objects.get()
    assert (row.digest, row.scope) == (hashlib.sha256(old.encode()).hexdigest(), "operate")
    assert row.expires_at is not None


def test_too_many_requests_are_refused_for_a_time(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.clear()
    monkeypatch.setattr(Throttle, "rate", "2/min")
    text = token("ben")
    assert [status(text) for _ in range(2)] == [200, 200]
    refused = Client().get("/api/v1/applications", headers=by(text))
    assert refused.status_code == 429 and 0 < int(refused.headers["Retry-After"]) <= 60
    cache.clear()


def test_answers_of_rest_are_not_stored(viewer: Client) -> None:
    for path in ("applications", "nowhere", "schema/"):
        assert viewer.get(f"/api/v1/{path}").headers["Cache-Control"] == "no-store"
    assert Client().get("/api/v1/applications").headers["Cache-Control"] == "no-store"
