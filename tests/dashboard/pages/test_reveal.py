"""Masked fields are shown once, with a reason, to who may; the audit has each look."""

from __future__ import annotations

import dataclasses

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from arrester.agents.failures.payload import Redaction, Reveal
from arrester.controlplane import actions, models, queries, signing
from arrester.controlplane.access.roles import Role, TokenScope
from arrester.controlplane.history import audit_verification, erasure
from arrester.domain.errors import NotFound
from arrester.domain.wire.signed_messages import parse_keys
from tests.dashboard.accounts import logged_in, make_user, token
from tests.dashboard.story import Story

pytestmark = pytest.mark.usefixtures("fresh_database")
ROW = {"pin": "4711-0815", "card": {"no": "<b>77</b>\u202e"}}


@pytest.fixture
def admin(db: None) -> Client:
    return logged_in(make_user("ada", "admin"))


@pytest.fixture
def failed(flights: Story) -> int:
    """Return the position of a failed record with masked fields, in the log."""
    reveal = Reveal("flights", parse_keys(signing.public_key())[0])
    body = Redaction(drop=("pin", "$.card.no"), reveal=reveal).body(ROW, stack=None)
    task = flights.pauses("JFK", sealed=body.sealed)
    found = queries.task(task.digest).failure
    assert found is not None
    return found.sequence


def url(failed: int, name: str = "reveal") -> str:
    return reverse(name, args=["flights", failed])


def acts() -> list[tuple[str, str, str, str]]:
    entries = models.AuditEntry.objects.filter(act="RECORD_REVEALED").order_by("id")
    return list(entries.values_list("actor", "about", "act", "detail"))


def test_an_admin_sees_the_fields_once_with_a_reason(failed: int, admin: Client) -> None:
    page = admin.get(reverse("dead-letters")).content + admin.get(reverse("audit")).content
    assert b"4711" not in page
    dialog = admin.get(url(failed, "reveal-dialog"))
    assert b"The audit records your name" in dialog.content
    assert b"stored in the audit" in dialog.content
    refused = admin.post(url(failed), {"reason": " "})
    assert (refused.status_code, acts()) == (400, [])
    shown = admin.post(url(failed), {"reason": "a complaint"})
    text = shown.content.decode()
    assert "4711-0815" in text
    # A value cannot act on the page.
    assert "&lt;b&gt;77&lt;/b&gt;" in text and "\u202e" not in text
    assert "no-store" in shown.headers["Cache-Control"]
    detail = "pin, card.no: a complaint"
    assert acts() == [("ada", f"flights @ {failed}", "RECORD_REVEALED", detail)]
    assert not audit_verification.verify().problem
    audit = admin.get(reverse("audit"), {"kind": "reveals"}).content.decode()
    assert "Record revealed" in audit and detail in audit and "4711" not in audit


def test_the_page_of_the_task_offers_it_to_who_may(
    failed: int, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = logged_in(make_user("ana", "operator"))
    [task] = queries.tasks(queries.TaskFilter(application="flights")).rows
    page = reverse("task", args=[task.id.digest])
    link = url(failed, "reveal-dialog")
    assert link in admin.get(page).content.decode()
    assert link not in operator.get(page).content.decode()
    assert b"4711" not in admin.get(page).content
    assert operator.post(url(failed), {"reason": "x"}).status_code == 403
    environment = dataclasses.replace(settings.ENVIRONMENT, reveal=Role.OPERATOR)
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)
    assert link in operator.get(page).content.decode()
    assert "4711" in operator.post(url(failed), {"reason": "x"}).content.decode()
    viewer = logged_in(make_user("ben", "viewer"))
    assert viewer.post(url(failed), {"reason": "x"}).status_code == 403
    assert [actor for actor, *_ in acts()] == ["ana"]


def test_an_admin_of_one_application_reveals_its_fields_only(failed: int) -> None:
    for name, application in (("zoe", "flights"), ("yan", "orders")):
        make_user(name)
        actions.grant_role(name, application, Role.ADMIN, actor="ada")
    zoe, yan = (logged_in(User.objects.get(username=name)) for name in ("zoe", "yan"))
    assert "4711" in zoe.post(url(failed), {"reason": "x"}).content.decode()
    assert yan.post(url(failed), {"reason": "x"}).status_code == 404
    assert yan.get(url(failed, "reveal-dialog")).status_code == 404
    path = f"/api/v1/failures/flights/{failed}/reveal"
    assert yan.post(path, {"reason": "x"}, content_type="application/json").status_code == 404
    assert [actor for actor, *_ in acts()] == ["zoe"]


def test_rest_reveals_with_a_reason_and_the_scope_operate(failed: int, admin: Client) -> None:
    path = f"/api/v1/failures/flights/{failed}/reveal"
    kind = "application/json"
    answer = admin.post(path, {"reason": "a complaint"}, content_type=kind)
    assert answer.json() == {
        "masked": [
            {"path": "pin", "value": "4711-0815"},
            {"path": "card.no", "value": ROW["card"]["no"]},  # type: ignore[index]
        ],
        "omitted": 0,
    }
    assert "no-store" in answer.headers["Cache-Control"]
    for reason in ({}, {"reason": ""}, {"reason": " "}):
        assert admin.post(path, reason, content_type=kind).status_code == 400
    reader = {"HTTP_AUTHORIZATION": f"Bearer {token('ada', scope=TokenScope.READ)}"}
    refused = Client().post(path, {"reason": "x"}, content_type=kind, **reader)  # type: ignore[arg-type]
    assert refused.status_code == 403
    assert len(acts()) == 1


def test_fields_of_another_key_or_an_erased_body_are_not_shown(
    failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = settings.SECRET_KEY
    with monkeypatch.context() as patch:
        patch.setattr(settings, "SECRET_KEY", "another one " * 4)
        with pytest.raises(NotFound, match="encrypted to another key"):
            revealed(failed)
        with_old = dataclasses.replace(settings.ENVIRONMENT, old_secret_keys=(old,))
        patch.setattr(settings, "ENVIRONMENT", with_old)
        assert revealed(failed) == 2
    with erasure.as_owner():
        erasure.erase("flights", failed, actor="ada", reason="asked for")
    with pytest.raises(NotFound, match="has no encrypted masked fields"):
        revealed(failed)
    assert len(acts()) == 1


def revealed(failed: int) -> int:
    """Reveal without a session, which a change of the key ends; return the number of fields."""
    return len(actions.reveal("flights", failed, actor="ops", reason="x").fields)
