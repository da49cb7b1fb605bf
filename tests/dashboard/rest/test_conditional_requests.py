"""REST: ETag, Location, and ids that come with another request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.test import Client
from django.utils import timezone

from arrester.controlplane import actions
from arrester.controlplane.models import ActRequest
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import TYPO, Story

JSON = "application/json"


def test_an_unchanged_answer_is_304(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    path = "/api/v1/errors?application=flights"
    first = viewer.get(path)
    tag = first["ETag"]
    assert first["Cache-Control"] == "no-store"
    again = viewer.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", tag)
    # As a proxy, or our compression, may weaken it.
    assert viewer.get(path, headers={"If-None-Match": f'"x", W/{tag}'}).status_code == 304
    flights.pauses("LGA")
    other = viewer.get(path, headers={"If-None-Match": tag})
    assert (other.status_code, other["ETag"] == tag) == (200, False)
    assert "ETag" not in viewer.get("/api/v1/tasks?limit=0")


def test_an_answer_names_what_it_created(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest

    def made(client: Client, path: str, body: dict[str, Any], status: int) -> Any:
        answer = client.post(f"/api/v1/{path}", body, content_type=JSON)
        assert answer.status_code == status, answer.content
        found = client.get(answer["Location"])
        assert found.status_code == 200
        return answer.json(), found.json()

    issued, found = made(operator, "commands", {"kind": "RESUME_TASK", "task": task}, 202)
    assert found["id"] == issued["id"]
    token, found = made(operator, "tokens", {"name": "ci"}, 201)
    assert (found["id"], "token" in found) == (token["id"], False)
    admin = logged_in(make_user("ada", "admin"))
    agent, found = made(admin, "agents", {"application": "flights"}, 201)
    assert (found["id"], "redis_url" in found) == (agent["id"], False)
    _, found = made(operator, "notes", {"text": "seen", "task": task}, 201)
    assert found["id"] == task
    for path in ("tokens/0", "agents/0"):
        assert admin.get(f"/api/v1/{path}").status_code == 404


def test_a_key_with_another_body_is_422(flights: Story, operator: Client) -> None:
    task, other = flights.pauses("JFK").digest, flights.pauses("LGA").digest

    def post(path: str, body: dict[str, Any], key: str | None = "night") -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return operator.post(f"/api/v1/{path}", body, content_type=JSON, headers=headers)

    body = {"kind": "SKIP_RECORD", "task": task, "reason": "a typo"}
    assert post("commands", body | {"dry_run": True}).status_code == 200
    assert post("commands", body | {"reason": ""}).status_code == 400
    first = post("commands", body)
    turned = {name: body[name] for name in reversed(body)}
    repeated = post("commands", turned)
    assert (first.status_code, repeated.status_code) == (202, 202)
    assert repeated.json()["id"] == first.json()["id"]
    for wrong in ({"task": other}, {"reason": "another"}, {"kind": "RESUME_TASK"}):
        refused = post("commands", body | wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "id_reused")
        assert refused.json()["param"] == "Idempotency-Key"
    assert len(operator.get("/api/v1/commands").json()["results"]) == 1
    # The same holds for an id, and for another endpoint.
    id = str(uuid4())
    assert post("notes", {"id": id, "text": "a", "task": task}, key=None).status_code == 201
    refused = post("notes", {"id": id, "text": "b", "task": task}, key=None)
    assert (refused.status_code, refused.json()["param"]) == (422, "id")
    act = {"id": id, "act": "RESOLVE"}
    refused = post(f"errors/flights/{TYPO.fingerprint}/acts", act, key=None)
    assert refused.status_code == 422


def test_requests_are_forgotten(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    body = {"text": "seen", "task": task}
    headers = {"Idempotency-Key": "night"}
    operator.post("/api/v1/notes", body, content_type=JSON, headers=headers)
    actions.forget_requests(before=timezone.now() - timedelta(minutes=1))
    assert ActRequest.objects.count() == 1
    actions.forget_requests(before=timezone.now())
    assert ActRequest.objects.count() == 0
