"""Webhooks of events over REST, for admins of all applications."""

from __future__ import annotations

from django.test import Client

from arrester.controlplane import models
from arrester.controlplane.access.roles import Role
from tests.dashboard.accounts import logged_in, make_user, person
from tests.dashboard.story import Story

PATH, JSON = "/api/v1/event-subscriptions", "application/json"
FORM = {"address": "https://example.com/hook?token=s", "event_types": ["TaskPaused"]}


def test_a_webhook_is_added_read_replayed_and_deleted(flights: Story) -> None:
    admin = logged_in(make_user("ada", "admin"))
    answer = admin.post(PATH, FORM | {"application": "flights"}, content_type=JSON)
    added = answer.json()
    assert answer.status_code == 201 and added["key"].startswith("whsec_")
    assert answer["Location"] == f"{PATH}/{added['id']}"
    shown = {name: value for name, value in added.items() if name != "key"}
    assert admin.get(answer["Location"]).json() == shown
    assert admin.get(PATH).json() == {"results": [shown], "next": None}
    assert (shown["address"], shown["unread"]) == ("https://example.com/…", 0)

    body = {"since": "2026-11-20T09:00:00Z"}
    replayed = admin.post(f"{answer['Location']}/replay", body, content_type=JSON)
    assert replayed.json()["unread"] > 0
    assert admin.delete(answer["Location"]).status_code == 204
    assert admin.delete(answer["Location"]).status_code == 404
    assert not models.AlertChannel.objects.exists()


def test_an_invalid_webhook_is_refused_by_the_name_of_the_value(flights: Story) -> None:
    admin = logged_in(make_user("ada", "admin"))
    for given, param in (
        ({"event_types": ["Nothing"]}, "event_types[0]"),
        ({"event_types": []}, "event_types"),
        ({"address": "ftp://example.com"}, "address"),
    ):
        answer = admin.post(PATH, FORM | given, content_type=JSON)
        assert (answer.status_code, answer.json()["param"]) == (400, param)
    unknown = admin.post(PATH, FORM | {"application": "unknown"}, content_type=JSON)
    assert unknown.status_code == 404


def test_webhooks_need_the_role_admin_on_all_applications(flights: Story, operator: Client) -> None:
    for client in (operator, person("eve", roles={"flights": Role.ADMIN})):
        assert client.get(PATH).status_code == 403
        assert client.post(PATH, FORM, content_type=JSON).status_code == 403
