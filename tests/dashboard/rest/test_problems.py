"""REST: each error is a problem detail (RFC 9457) with a stable code."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import pytest
from django.test import Client

from arrester.controlplane import queries
from arrester.dashboard.rest import field_types
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import NA, TYPO, Story

JSON = "application/json"
MEMBERS = {"type", "title", "status", "detail", "code"}


def problem(response: Any) -> tuple[int, str, set[str]]:
    """Return status, code and further members of an error, whose form is checked."""
    assert response["Content-Type"] == "application/problem+json"
    content = response.json()
    assert content.keys() >= MEMBERS
    assert content["status"] == response.status_code
    assert content["type"] == f"urn:arrester:problem:{content['code']}"
    assert content["title"]
    assert content["detail"]
    return response.status_code, content["code"], content.keys() - MEMBERS


def test_errors_of_a_request_are_problems(flights: Story, operator: Client, viewer: Client) -> None:
    flights.pauses("JFK")
    value = {"param", "value", "allowed"}
    post: dict[str, Any] = {"content_type": JSON}
    assert problem(Client().get("/api/v1/tasks")) == (401, "not_authenticated", set())
    bad = Client(headers={"Authorization": "Bearer nothing"})
    refused = bad.get("/api/v1/tasks")
    assert problem(refused) == (401, "authentication_failed", set())
    assert refused["WWW-Authenticate"] == "Bearer"
    denied = viewer.post("/api/v1/commands", {}, **post)
    assert problem(denied) == (403, "permission_denied", set())
    assert problem(viewer.get("/api/v1/nothing")) == (404, "not_found", set())
    assert problem(viewer.get(f"/api/v1/tasks/{'0' * 32}")) == (404, "not_found", set())
    wrong = operator.delete("/api/v1/tasks")
    assert problem(wrong) == (405, "method_not_allowed", set())
    assert "GET" in wrong["Allow"]
    assert problem(viewer.get("/api/v1/tasks", headers={"Accept": "text/csv"}))[:2] == (
        406,
        "not_acceptable",
    )
    form = operator.post("/api/v1/commands", {"kind": "RESUME_TASK"})
    assert problem(form) == (415, "unsupported_media_type", set())
    assert problem(operator.post("/api/v1/commands", "{", **post)) == (400, "parse_error", set())
    assert problem(viewer.get("/api/v1/tasks?limit=0")) == (400, "invalid_value", value)
    assert problem(viewer.get("/api/v1/failures?application=%00"))[:2] == (400, "invalid_value")


@pytest.mark.parametrize("name", ["application", "cursor", "as_of", "owner"])
def test_a_parameter_without_a_value_is_refused(name: str, viewer: Client) -> None:
    refused = viewer.get(f"/api/v1/tasks?{name}=")
    assert problem(refused)[:2] == (400, "invalid_value")
    assert refused.json()["param"] == name


@pytest.mark.parametrize("path", ["a%0Ab", "errors/flights/a%0Ab/fields", ""])
def test_an_unknown_path_is_a_problem_also_with_a_line_break(path: str, viewer: Client) -> None:
    assert problem(viewer.get(f"/api/v1/{path}")) == (404, "not_found", set())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("resume", {"id": False, "application": "flights"}, "id"),
        ("resume", {"tasks": [5]}, "tasks[0]"),
        ("resume", {"application": "flights", "dry_run": "yes"}, "dry_run"),
        ("feed", {"limit": "5"}, "limit"),
        ("feed", {"limit": True}, "limit"),
        ("feed", {"application": 0}, "application"),
        ("errors/acts", {"act": 1, "groups": []}, "act"),
        ("tokens", {"name": "ci", "applications": []}, "applications"),
    ],
)
def test_a_value_of_another_json_type_is_refused(
    path: str, body: dict[str, Any], param: str, operator: Client
) -> None:
    refused = operator.post(f"/api/v1/{path}", body, content_type=JSON)
    assert problem(refused)[:2] == (400, "invalid_value")
    assert refused.json()["param"] == param


def test_a_refused_command_names_itself_and_the_one_in_progress(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK").digest
    body = {"kind": "RESUME_TASK", "task": task}
    first = operator.post("/api/v1/commands", body, content_type=JSON).json()
    refused = operator.post("/api/v1/commands", body, content_type=JSON)
    members = {"state", "sequence", "command", "pending"}
    assert problem(refused) == (409, "command_forbidden", members)
    assert refused.json()["pending"]["id"] == first["id"]
    log = operator.get(f"/api/v1/commands/{refused.json()['command']}").json()
    assert (log["status"], log["kind"]) == ("REFUSED", "RESUME_TASK")


def test_an_unexpected_exception_is_a_problem_of_the_server(viewer: Client) -> None:
    quiet = Client(raise_request_exception=False)
    quiet.cookies = viewer.cookies
    with patch.object(queries, "tasks", side_effect=RuntimeError("at /home/me")):
        failed = quiet.get("/api/v1/tasks")
    assert problem(failed) == (500, "internal_error", set())
    assert "/home" not in failed.content.decode()


@pytest.mark.parametrize("path", ["/tasks/none", "/api", "/apis/v1"])
def test_other_paths_have_pages(viewer: Client, path: str) -> None:
    assert viewer.get(path)["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("levels", [field_types.LEVELS + 1, 980, 100_000])
def test_a_deep_body_is_refused(operator: Client, levels: int) -> None:
    """Python reads some 980 levels, and fails at later work with so many."""
    deep = "[" * (levels - 3) + "]" * (levels - 3)
    patch = f'[{{"op": "add", "path": "/x", "value": {deep}}}]'
    body = f'{{"kind": "TEST_RECORD", "task": "{"0" * 32}", "patch": {patch}}}'
    refused = operator.post("/api/v1/commands", body, content_type=JSON)
    assert problem(refused) == (400, "parse_error", set())
    assert "at most 100 levels" in refused.json()["detail"]
    allowed = body.replace(deep, "[" * (field_types.LEVELS - 3) + "]" * (field_types.LEVELS - 3))
    assert problem(operator.post("/api/v1/commands", allowed, content_type=JSON))[0] == 404


def test_the_problem_of_an_item_of_a_list_has_the_item(fresh_database: object) -> None:
    admin = logged_in(make_user("ada", "admin"))
    body = {"address": "https://example.com/hook", "event_types": ["TaskPaused", "PipelineDied"]}
    refused = admin.post("/api/v1/event-subscriptions", body, content_type=JSON)
    assert problem(refused)[:2] == (400, "invalid_value")
    members = refused.json()
    assert (members["param"], members["value"]) == ("event_types[1]", "PipelineDied")


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"text": "%"}, "text"),
        ({"text": '"', "record_key": "a"}, "text"),
        ({"text": "a" * 600}, "text"),
        ({"record_key": "a" * 600, "text": "b"}, "record_key"),
    ],
)
def test_the_problem_of_a_search_names_its_parameter(
    flights: Story, viewer: Client, parameters: dict[str, str], param: str
) -> None:
    refused = viewer.get("/api/v1/failures", parameters)
    assert problem(refused)[:2] == (400, "invalid_value")
    assert refused.json()["param"] == param


def test_the_cursor_of_another_list_is_refused(flights: Story, viewer: Client) -> None:
    """Keys of some lists have the same types, and would continue at any row of another one."""
    for task, cause in (("JFK", TYPO), ("LGA", NA)):
        flights.command(flights.pauses(task, cause=cause))
    flights.skips("EWR", 3)
    Story(application="billing", pipeline="invoices").starts()
    lists = (
        *("audit", "commands", "errors", "errors?sort=count", "failures"),
        *("failures?text=late", "instances", "pipelines", "records?q=task:JFK", "tasks"),
        *("tasks?sort=held", "tasks?sort=-held", "tasks?sort=urgency"),
        *("dead-letters", "dead-letters/totals?by=task", "quarantine"),
    )

    def read(path: str, **parameters: Any) -> Any:
        return viewer.get(f"/api/v1/{path}{'&' if '?' in path else '?'}{urlencode(parameters)}")

    first = {path: read(path, limit=1) for path in lists}
    assert {path: each.status_code for path, each in first.items()} == dict.fromkeys(lists, 200)
    cursors = {path: cursor for path in lists if (cursor := first[path].json()["next"])}
    assert {"audit", "commands", "dead-letters", "errors", "failures", "tasks"} <= {*cursors}
    for path, cursor in cursors.items():
        assert read(path, cursor=cursor).status_code == 200, path
        for other in {*lists} - {path}:
            refused = read(other, cursor=cursor)
            assert problem(refused)[:2] == (400, "invalid_value"), (path, other)
            assert refused.json()["param"] == "cursor"
