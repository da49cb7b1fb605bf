"""REST: reads, filters, cursors, commands, roles, and the status of each error."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
import yaml
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from drf_spectacular.views import SpectacularAPIView
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries, signing
from arrester.controlplane.queries.failure_history import failures as failure_queries
from arrester.controlplane.store import failures
from arrester.dashboard.http_errors import ERROR_KINDS, kind_of
from arrester.dashboard.rest import schema
from arrester.dashboard.rest.command_fields import fields_of
from arrester.dashboard.rest.field_types import A_TIME
from arrester.dashboard.rest.resources.commands import NewCommandSerializer
from arrester.domain.commands.kinds import KINDS, Subject
from arrester.domain.errors import ArresterError
from arrester.domain.events import CommandKind
from tests.dashboard.accounts import logged_in, make_user, token
from tests.dashboard.story import NA, TYPO, Story
from tests.services import REPOSITORY

JSON = "application/json"


def read(client: Client, path: str, *, code: int = 200, **filters: Any) -> Any:
    """Return the JSON of an endpoint."""
    response = client.get(f"/api/v1/{path}?{urlencode(filters)}")
    assert response.status_code == code, response.content
    return response.json()


def every(client: Client, path: str, **filters: Any) -> Iterator[Any]:
    """Return the rows of all pages."""
    cursor: dict[str, Any] = {}
    while True:
        page = read(client, path, **filters, **cursor)
        yield from page["results"]
        if page["next"] is None:
            return
        cursor = {"cursor": page["next"]}


def command(client: Client, *, key: str = "", **body: Any) -> tuple[int, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    response = client.post("/api/v1/commands", body, content_type=JSON, headers=headers)
    return response.status_code, response.json()


def test_applications_and_tasks_have_the_values_of_the_pages(
    flights: Story, viewer: Client
) -> None:
    task = flights.pauses("JFK", held=12).digest
    flights.skips("EWR", 40)
    (application,) = read(viewer, "applications")["results"]
    assert application == read(viewer, "applications/flights")
    assert (application["name"], application["status"]) == ("flights", "OPEN")
    assert (application["paused"], application["held"], application["failed"]) == (1, 12, 41)
    one = read(viewer, f"tasks/{task}")
    assert (one["name"], one["status"], one["position"]) == ("delays_JFK", "PAUSED", 151_974)
    assert one["failure"]["exception_class"] == "checks.ImplausibleDelay"
    assert one["counters"]["record_failures"] == 1


def test_tasks_are_filtered_and_paged(flights: Story, viewer: Client) -> None:
    for number in range(7):
        flights.pauses(f"gate-{number}")
    flights.skips("EWR", 1)
    assert len(list(every(viewer, "tasks", limit=3))) == 8
    assert [row["key"] for row in every(viewer, "tasks", status="RUNNING")] == ["EWR"]
    assert list(every(viewer, "tasks", pipeline="delays", application="flights", limit=2))


def test_the_counts_of_failures_sum_up_to_the_failed_records(
    flights: Story, viewer: Client
) -> None:
    for records in (1, 2, 8255, 17):
        flights.skips("EWR", records)
    flights.pauses("JFK")
    rows = list(every(viewer, "failures", limit=2))
    assert sum(row["count"] for row in rows) == 8276
    assert read(viewer, "applications/flights")["failed"] == 8276
    groups = {row["fingerprint"]: row["count"] for row in every(viewer, "errors")}
    assert groups == {NA.fingerprint: 8275, TYPO.fingerprint: 1}


def test_failures_are_filtered(flights: Story, viewer: Client) -> None:
    old = timedelta(hours=2)
    flights.skips("EWR", 10, ago=old)
    flights.skips("LGA", 20)
    task = flights.pauses("JFK").digest
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    def total(**filters: object) -> int:
        return sum(row["count"] for row in every(viewer, "failures", **filters))

    assert total(application="flights") == 31
    assert total(pipeline="delays", since=hour_ago) == 21
    assert total(until=hour_ago) == 10
    assert total(stage="deserialize") == 30
    assert total(exception_class=TYPO.exception_class) == 1
    assert total(fingerprint=NA.fingerprint) == 30
    (row,) = every(viewer, "failures", task=task)
    assert (row["task"], row["key"], row["first_position"]) == (task, "JFK", 151_974)
    assert row["failure"]["message"] == TYPO.message


def test_a_page_of_failures_reports_how_far_it_searched(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights.pauses("JFK", ago=timedelta(hours=2))
    for _ in range(3):
        flights.skips("EWR", 2)
    monkeypatch.setattr(failure_queries, "FEW", 0)
    monkeypatch.setattr(failures, "CANDIDATES", 3)
    asked: dict[str, Any] = {"exception_class": TYPO.exception_class, "limit": 2}
    first = read(viewer, "failures", **asked)
    assert first["results"] == []
    assert first["next"]
    looked_at = list(every(viewer, "failures"))[2]
    assert first["oldest_searched_at"] == looked_at["occurred_at"]
    (found,) = every(viewer, "failures", **asked)
    assert found["failure"]["fingerprint"] == TYPO.fingerprint


@pytest.mark.parametrize(
    ("path", "filters", "field"),
    [
        ("failures", {"since": "yesterday"}, "since"),
        ("failures", {"limit": 0}, "limit"),
        ("failures", {"limit": 501}, "limit"),
        ("failures", {"cursor": "made-up"}, "cursor"),
        ("failures", {"aplication": "flights"}, "aplication"),
        ("failures", {"task": "JFK"}, "task"),
        ("tasks", {"status": "SLEEPY"}, "status"),
        ("commands", {"task": "JFK"}, "task"),
        ("failures", {"exception_class": "NoSuch"}, "exception_class"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    path: str, filters: dict[str, object], field: str, viewer: Client
) -> None:
    problem = read(viewer, path, code=400, **filters)
    assert problem["param"] == field
    assert problem["value"] == str(filters[field]) or problem["value"] == filters[field]
    assert problem["allowed"]


@pytest.mark.parametrize(
    ("path", "filters", "allowed"),
    [
        ("tasks", {"status": "SLEEPY"}, "one of RUNNING, PAUSED, DEAD, DISMISSED, NO_RUN"),
        ("errors", {"status": "open"}, "one of UNRESOLVED, RESOLVED, MUTED, all"),
        ("failures", {"limit": 501}, "a whole number from 1 to 500"),
        ("failures", {"limit": "few"}, "a whole number from 1 to 500"),
        ("feed", {"limit": 501}, "a whole number from 1 to 500"),
        ("failures", {"since": "yesterday"}, f"a time in ISO 8601: {A_TIME}"),
        ("audit", {"until": "2026-13-01"}, f"a time in ISO 8601: {A_TIME}"),
        (
            "errors",
            {"since": "2026-11-20T10:00Z", "until": "2026-11-20T09:00Z"},
            "a time before until, 2026-11-20T09:00Z",
        ),
    ],
)
def test_the_allowed_values_are_listed_in_full(
    path: str, filters: dict[str, object], allowed: str, viewer: Client
) -> None:
    assert read(viewer, path, code=400, **filters)["allowed"] == allowed


def test_a_repeated_filter_is_refused_and_named(viewer: Client) -> None:
    answer = viewer.get("/api/v1/failures?application=a&application=b")
    assert (answer.status_code, answer.json()["param"]) == (400, "application")
    assert answer.json()["value"] == "a, b"


def test_a_class_without_its_package_is_refused_with_the_full_names(
    flights: Story, viewer: Client
) -> None:
    flights.pauses("JFK")
    short = TYPO.exception_class.rpartition(".")[2]
    problem = read(viewer, "failures", exception_class=short, code=400)
    assert problem["allowed"] == f"the whole name, with its package: {TYPO.exception_class}"
    # A class may have none.
    flights.pauses("LGA", cause=replace(TYPO, fingerprint="1-bare", exception_class=short))
    (row,) = every(viewer, "failures", exception_class=short)
    assert row["failure"]["fingerprint"] == "1-bare"


LISTS = ("tasks", "failures", "errors", "commands", "audit", "dead-letters", "held", "instances")


@pytest.mark.parametrize("path", LISTS)
def test_an_unknown_application_is_404_and_named(path: str, viewer: Client) -> None:
    problem = read(viewer, path, application="nowhere", code=404)
    assert problem["detail"] == "there is no application 'nowhere'"


def test_failures_of_an_unknown_error_group_are_404(flights: Story, viewer: Client) -> None:
    orders = Story(application="orders")
    orders.starts()
    flights.pauses("JFK")
    mark = TYPO.fingerprint
    for asked, named in (
        ({"fingerprint": "1-x"}, "'1-x'"),
        ({"fingerprint": mark, "application": "orders"}, f"orders '{mark}'"),
    ):
        problem = read(viewer, "failures", code=404, **asked)
        assert problem["detail"] == f"there is no error group {named}"


def test_an_unknown_path_is_404_in_json(viewer: Client) -> None:
    detail = "no endpoint /api/v1/task; see /api/v1/docs/"
    assert read(viewer, "task", code=404)["detail"] == detail
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/api/v1/task", "{}", content_type=JSON).json()["detail"] == detail
    assert "detail" in read(viewer, "commands/7", code=404)


def test_a_command_is_accepted_and_can_be_followed(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    status, issued = command(operator, kind="SKIP_RECORD", task=task, reason="a typo")
    assert (status, issued["status"], issued["actor"]) == (202, "ISSUED", "ana")
    assert [each["status"] for each in issued["deliveries"]] == ["ISSUED"]
    flights.fetches(issued["id"])
    flights.resumes("JFK", issued["id"])
    followed = read(operator, f"commands/{issued['id']}")
    assert (followed["status"], followed["reason"]) == ("APPLIED", "a typo")
    assert [row["id"] for row in every(operator, "commands", task=task)] == [issued["id"]]


def test_a_task_is_resumed_at_a_position_and_paused_by_command(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK").digest
    asked = {"kind": "RESUME_AT", "task": task, "reason": "a bad hour"}
    status, problem = command(operator, **asked)
    assert (status, problem["param"]) == (400, "resume_position")
    far = 2**62
    status, issued = command(operator, **asked, resume_position=far)
    assert (status, issued["kind"], issued["resume_position"]) == (202, "RESUME_AT", far)
    mend: dict[str, Any] = {"kind": "EDIT_RECORD", "task": flights.pauses("LGA").digest}
    mend["reason"] = "a typo"
    status, problem = command(operator, **mend)
    assert (status, problem["param"]) == (400, "patch")
    status, problem = command(operator, **mend | {"kind": "SKIP_RECORD"}, patch=[{"op": "test"}])
    assert (status, problem["param"]) == (400, "patch")
    patch = [{"op": "replace", "path": "/dep_delay", "value": 9}]
    status, issued = command(operator, **mend, patch=patch)
    assert (status, issued["patch"]) == (202, patch)
    flights.skips("EWR", 3)
    pause: dict[str, Any] = {"kind": "PAUSE_TASK", "task": flights.task("EWR").digest}
    pause["duration_seconds"] = 300
    status, problem = command(operator, **pause | {"duration_seconds": 0})
    assert (status, problem["param"]) == (400, "duration_seconds")
    assert problem["allowed"] == "a whole number of seconds from 1 to 31622400"
    status, problem = command(operator, **pause, pause_ends_at="2013-01-01T00:00:00Z")
    assert (status, problem["param"]) == (400, "pause_ends_at")
    assert "'2013-01-01T00:00:00Z' is not allowed" in problem["detail"]
    id = str(uuid4())
    for _ in range(2):
        status, issued = command(operator, **pause, id=id)
        assert (status, issued["kind"], issued["resume_position"]) == (202, "PAUSE_TASK", None)
    ends = datetime.fromisoformat(issued["pause_ends_at"])
    assert ends - datetime.fromisoformat(issued["issued_at"]) == timedelta(minutes=5)
    flights.pauses_by_hand("EWR", UUID(id))
    row = read(operator, f"tasks/{pause['task']}")
    assert (row["status"], row["pause_ends_at"]) == ("PAUSED", issued["pause_ends_at"])
    assert 290 <= row["pause_seconds_left"] <= 300


def test_a_record_is_tested_by_rest(flights: Story, operator: Client) -> None:
    patch = [{"op": "replace", "path": "/dep_delay", "value": 9}]
    asked = {"kind": "TEST_RECORD", "task": flights.pauses("JFK").digest}
    status, problem = command(operator, **asked, patch=[{"op": "test"}])
    assert (status, problem["param"]) == (400, "patch")
    status, issued = command(operator, **asked, patch=patch)
    assert (status, issued["test"], issued["patch"]) == (202, None, patch)
    flights.tests(issued["id"], failure=NA)
    found = read(operator, f"commands/{issued['id']}")
    assert (found["status"], found["verdict"], found["test"]["rows"]) == ("APPLIED", None, 0)
    assert found["test"]["failure"]["fingerprint"] == NA.fingerprint
    status, issued = command(operator, **asked, patch=patch)
    flights.tests(issued["id"], rows=2)
    found = read(operator, f"commands/{issued['id']}")
    assert found["test"] == {"rows": 2, "failure": None}


def test_a_policy_is_set_and_removed_by_rest(flights: Story, operator: Client) -> None:
    asked = {"kind": "SET_POLICY", "application": "flights", "pipeline": "delays", "reason": "x"}
    status, problem = command(operator, **asked, stage="produce")
    assert (status, problem["param"]) == (400, "answer")
    status, problem = command(operator, **asked, stage="produce", answer="SKIP")
    assert (status, problem["param"]) == (400, "answer")
    status, problem = command(operator, **asked, stage="process:nope", answer="FAIL")
    assert (status, problem["state"]) == (409, "OPEN")
    status, issued = command(operator, **asked, stage="produce", answer="CONTINUE")
    assert (status, issued["stage"], issued["answer"]) == (202, "produce", "CONTINUE")
    flights.applies_policy(issued["id"])
    (thread,) = read(operator, "applications/flights/runs")["results"]
    (override,) = thread["policy"]["commanded"]
    assert (override["name"], override["answer"], override["actor"]) == (
        "produce",
        "CONTINUE",
        "ana",
    )
    status, issued = command(operator, **asked, stage="produce", answer=None)
    assert (status, issued["answer"]) == (202, None)
    status, problem = command(operator, **asked, stage="produce", answer="FAIL")
    assert (status, problem["pending"]["id"]) == (409, issued["id"])


def test_a_repeated_command_is_one_command(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    _, first = command(operator, key="again", kind="RESUME_TASK", task=task)
    _, second = command(operator, key="again", kind="RESUME_TASK", task=task)
    assert first["id"] == second["id"]
    id = str(uuid4())
    _, third = command(operator, id=id, kind="RESUME_TASK", task=task)
    assert third["state"] == "PAUSED"
    pending = {name: first[name] for name in ("id", "kind", "actor", "issued_at")}
    assert third["pending"] == pending
    assert len(list(every(operator, "commands"))) == 2


def test_a_command_that_the_state_forbids_is_409_and_in_the_log(
    flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 3)
    task = flights.task("EWR").digest
    status, problem = command(operator, kind="RESUME_TASK", task=task)
    assert status == 409
    (refused,) = every(operator, "commands")
    assert problem == {
        "type": "urn:arrester:problem:command_forbidden",
        "title": "The state forbids the command",
        "status": 409,
        "detail": "only a PAUSED task can resume; delays_EWR is RUNNING",
        "code": "command_forbidden",
        "state": "RUNNING",
        "sequence": refused["sequence"],
        "command": refused["id"],
    }
    assert refused["status"] == "REFUSED"
    assert read(operator, f"tasks/{task}")["status"] == "RUNNING"


def test_an_application_is_shut_down_and_started(flights: Story, operator: Client) -> None:
    flights.stops()
    shut_down = {"kind": "SHUT_DOWN_APPLICATION", "application": "flights", "reason": "night"}
    status, done = command(operator, **shut_down)
    assert (status, done["status"]) == (201, "APPLIED")
    assert command(operator, **shut_down)[0] == 409
    start = {"kind": "START_APPLICATION", "application": "flights"}
    assert command(operator, **start)[0] == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "EXPLODE"}, "kind"),
        ({"kind": "RESUME_TASK"}, "task"),
        ({"kind": "SHUT_DOWN_APPLICATION", "reason": "x"}, "application"),
        ({"kind": "SHUT_DOWN_APPLICATION", "application": "flights"}, "reason"),
        ({"kind": "START_APPLICATION", "application": "flights", "id": "7"}, "id"),
        ({"kind": "START_APPLICATION", "application": "flights", "force": True}, "force"),
        ({"kind": "START_APPLICATION", "application": "flights", "waves": False}, "waves"),
        ({"kind": "RESUME_TASK", "task": "0", "resume_position": 7}, "resume_position"),
        ({"kind": "RESUME_TASK", "task": "0", "application": "flights"}, "application"),
        ({"kind": "RESUME_TASKS", "application": "flights", "task": "0"}, "task"),
        ({"kind": "RESUME_AT", "task": "0", "duration_seconds": 60}, "duration_seconds"),
        ({"kind": "RESTART_PIPELINE", "application": "flights", "stage": "source"}, "stage"),
    ],
)
def test_an_invalid_command_is_not_in_the_log(
    body: dict[str, Any], field: str, flights: Story, operator: Client
) -> None:
    status, problem = command(operator, **body)
    assert (status, problem["param"]) == (400, field)
    assert list(every(operator, "commands")) == []


@pytest.mark.parametrize("body", ["[]", '"x"', "5", "null", "[1e999]"])
def test_a_body_that_is_not_an_object_is_refused(body: str, operator: Client) -> None:
    response = operator.post("/api/v1/commands", body, content_type=JSON)
    assert (response.status_code, response.json()["param"]) == (400, "body")


@pytest.mark.parametrize(
    "body",
    [
        '{"kind": "\\ud800"}',
        '{"kind": 1e999}',
        '{"\\ud800": 1}',
        '{"kind": "START_APPLICATION", "application": "\\ud800"}',
        '{"kind": "START_APPLICATION", "application": "flights", "reason": "\\ud800"}',
        '{"kind": "START_APPLICATION", "application": "flights", "id": -1e999}',
        '{"kind": "RESUME_TASK", "task": "\\u0000"}',
    ],
)
def test_a_value_that_json_cannot_encode_is_refused_with_its_text(
    body: str, flights: Story, operator: Client
) -> None:
    response = operator.post("/api/v1/commands", body, content_type=JSON)
    assert response.status_code == 400
    assert "is not allowed" in response.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "applications/nowhere",
        "applications/nowhere/instances",
        "applications/nowhere/runs",
        f"tasks/{'0' * 32}",
        "tasks/JFK",
    ],
)
def test_an_unknown_id_is_404(path: str, viewer: Client) -> None:
    assert "there is no" in read(viewer, path, code=404)["detail"]


def test_viewers_read_and_do_not_act(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK").digest
    status, problem = command(viewer, kind="RESUME_TASK", task=task)
    assert (status, problem["detail"]) == (403, "requires the role operator")
    assert list(every(viewer, "commands")) == []


def test_an_account_without_a_role_and_a_client_without_login_are_refused(
    client: Client, db: None
) -> None:
    wrong = [{"Authorization": f"{scheme} made-up"} for scheme in ("Token", "Bearer")]
    for headers in ({}, *wrong):
        answer = client.get("/api/v1/applications", headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    client.force_login(make_user("cleo"))
    assert client.get("/api/v1/applications").status_code == 403


@pytest.mark.parametrize("scheme", ["Token", "Bearer", "bearer"])
def test_a_token_authenticates(flights: Story, client: Client, scheme: str) -> None:
    make_user("robot", "operator")
    task = flights.pauses("JFK").digest
    response = client.post(
        "/api/v1/commands",
        {"kind": "RESUME_TASK", "task": task},
        content_type=JSON,
        headers={"Authorization": f"{scheme} {token('robot')}"},
    )
    assert response.status_code == 202
    assert queries.commands().rows[0].actor == "robot"


def test_commands_from_pages_and_programs_are_the_same(flights: Story, viewer: Client) -> None:
    issued = actions.resume_task(flights.pauses("JFK").digest, actor="ana")
    (row,) = every(viewer, "commands")
    assert row["id"] == str(issued.id)


def _errors(cls: type[ArresterError] = ArresterError) -> list[type[ArresterError]]:
    return [each for sub in cls.__subclasses__() for each in (sub, *_errors(sub))]


# Errors of agents never reach a request; their classes are loaded by tests of agents.
SERVERS_OWN = [error for error in _errors() if not error.__module__.startswith("arrester.agents.")]


@pytest.mark.parametrize("error", SERVERS_OWN)
def test_every_error_has_a_status_and_a_code(error: type[ArresterError]) -> None:
    assert error in ERROR_KINDS
    assert kind_of(error.__new__(error)) == ERROR_KINDS[error]


def test_the_schema_has_no_warning(tmp_path: Any) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "api"))


def test_schema_and_docs_load_nothing_from_other_hosts(viewer: Client) -> None:
    assert viewer.get("/api/v1/schema/").status_code == 200
    answer = viewer.get("/api/v1/docs/")
    page = answer.content.decode()
    assert "swagger-ui" in page and "//cdn" not in page
    # This page has no inline script either.
    assert "script-src" not in answer.headers["Content-Security-Policy"]
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert b"/api/v1/schema/" in viewer.get("/api/v1/docs/?script=").content


def test_the_schema_is_generated_once_per_process(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema._document.cache_clear()
    schema._rendered.cache_clear()
    generated = Mock(wraps=SpectacularAPIView.generator_class)
    monkeypatch.setattr(SpectacularAPIView, "generator_class", generated)
    first, second = (viewer.get("/api/v1/schema/", {"format": "json"}) for _ in range(2))
    in_yaml = viewer.get("/api/v1/schema/", {"format": "yaml"})
    assert first.content == second.content
    assert first.json()["paths"] == yaml.safe_load(in_yaml.content)["paths"]
    assert "/api/v1/commands" in first.json()["paths"]
    assert generated.call_count == 1


def test_schema_and_docs_need_a_role(client: Client, db: None) -> None:
    for refused, status in ((client, 401), (logged_in(make_user("cleo")), 403)):
        for path in ("/api/v1/schema/", "/api/v1/docs/", "/api/v1/docs/?script="):
            assert refused.get(path).status_code == status


def test_probes_answer_without_a_login(client: Client, flights: Story) -> None:
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {
            "ready": True,
            "failed": [],
            "degraded": [],
            "fold_lag_seconds": 0.0,
            "queue_age_seconds": 0.0,
        },
    )


def test_without_redis_a_web_process_is_ready_and_degraded(
    client: Client, db: None, settings: Any
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["degraded"]) == (200, ["redis"])


def test_pages_report_that_redis_is_unreachable(operator: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert b"Redis does not answer" in operator.get("/").content


def test_a_run_has_its_policy_and_tolerance_usage(flights: Story, viewer: Client) -> None:
    (thread,) = read(viewer, "applications/flights/runs")["results"]
    assert thread["policy"]["stages"][2] == {
        "name": "process:validate",
        "step": "validate",
        "kind": "Process",
        "answer": None,
        "handler": "checks.Careful",
        "origin": "on_error",
        "on": {"checks.ImplausibleDelay": "PAUSE", "builtins.TimeoutError": "RETRY"},
    }
    assert (thread["policy"]["rate_limit"], thread["policy"]["rate_duration"]) == (100, "hour")
    assert (
        thread["tolerance_usage"]["total"] == 0
        and thread["tolerance_usage"]["window_began_at"] is None
    )
    flights.skips("JFK", 37)
    (thread,) = read(viewer, "applications/flights/runs")["results"]
    assert (thread["tolerance_usage"]["total"], thread["tolerance_usage"]["task"]) == (37, "JFK")
    assert thread["tolerance_usage"]["window_began_at"].endswith(":00:00Z")


def test_dead_letters_are_listed_one_by_one_with_totals(flights: Story, viewer: Client) -> None:
    flights.skips("EWR", 3)
    rows = read(viewer, "dead-letters", pipeline="delays", stage=NA.stage, limit=2)
    assert [row["position"] for row in rows["results"]] == [900_002, 900_001]
    (last,) = read(viewer, "dead-letters", cursor=rows["next"])["results"]
    assert last["cause"]["fingerprint"] == NA.fingerprint and "message" not in last["cause"]
    # One was reported in full; the others were counted only.
    assert last["message"] == NA.message
    assert [row["message"] for row in rows["results"]] == [None, None]
    counted, in_full = read(viewer, "failures", pipeline="delays")["results"]
    assert (counted["count"], counted["failure"]["message"]) == (2, None)
    assert (in_full["count"], in_full["failure"]["message"]) == (1, NA.message)
    assert (last["key"], last["place"], last["size"]) == ("EWR", "/data/dlq/flights", 100)
    assert read(viewer, f"dead-letters/flights/{last['id']}") == last
    (group,) = read(viewer, "dead-letters/totals", application="flights")["results"]
    assert (group["count"], group["cause"]["fingerprint"]) == (3, NA.fingerprint)
    (task,) = read(viewer, "dead-letters/totals", by="task")["results"]
    assert (task["count"], task["task"]) == (3, flights.task("EWR").digest)
    for path, status in (
        ("dead-letters/flights/00", 404),
        ("dead-letters?fingerprint=1-none", 404),
        ("dead-letters?exception_class=Error", 400),
        ("dead-letters/totals?by=hour", 400),
        ("dead-letters/totals?since=2026-11-20", 400),
    ):
        assert viewer.get(f"/api/v1/{path}").status_code == status, path


def test_dead_letters_are_discarded_by_a_filter_or_by_ids(
    flights: Story, viewer: Client, operator: Client
) -> None:
    flights.skips("EWR", 4)
    first = read(viewer, "dead-letters")["results"][0]["id"]
    wanted = {"application": "flights", "reason": "duplicates", "id": str(uuid4())}

    def discard(client: Client, **more: object) -> Any:
        body = {name: value for name, value in (wanted | more).items() if value is not None}
        return client.post("/api/v1/dead-letters/discard", body, content_type="application/json")

    assert discard(viewer, ids=[first]).status_code == 403
    refused: list[tuple[dict[str, object], str]] = [
        ({}, "filter"),
        ({"reason": None, "ids": [first]}, "reason"),
        ({"ids": []}, "ids"),
        ({"pipeline": "delays", "status": "LOST"}, "open, WAITING"),
        ({"ids": ["x"]}, "32 hexadecimal digits"),
    ]
    for more, problem in refused:
        answer = discard(operator, **more)
        assert (answer.status_code, problem in answer.json()["detail"]) == (400, True), answer
    assert discard(operator, application="nowhere", ids=[first]).status_code == 404
    assert discard(operator, fingerprint="1-none").status_code == 404
    plan = discard(operator, ids=[first, "00" * 16], dry_run=True).json()
    assert plan.pop("afterwards").startswith("The record stays in /data/dlq/flights.")
    done: dict[str, object] = {"discarded": 1, "unchanged": 1, "more": False}
    assert plan == done
    done |= {"afterwards": None}
    for _ in range(2):
        assert discard(operator, ids=[first, "00" * 16]).json() == done
    rest = discard(operator, id=None, stage=NA.stage, status="open").json()
    assert rest == {"discarded": 3, "unchanged": 0, "more": False, "afterwards": None}
    (total,) = read(viewer, "dead-letters/totals")["results"]
    assert (total["count"], total["waiting"]) == (4, 0)


def test_dead_letters_are_redriven_by_a_command(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 3)
    patch = [{"op": "replace", "path": "/dep_delay", "value": None}]
    body = {
        **{"application": "flights", "pipeline": "delays", "patch": patch, "reason": "mended"},
        "records_per_minute": 60,
    }
    url = "/api/v1/dead-letters/redrive"

    plan = operator.post(url, body | {"dry_run": True}, content_type="application/json")

    assert plan.status_code == 200
    assert (plan.json()["records"], plan.json()["tasks"], plan.json()["refused"]) == (3, 1, None)
    found = operator.post(url, body, content_type="application/json")
    assert found.status_code == 202
    command = read(operator, f"commands/{found.json()['id']}")
    assert (command["kind"], command["redrive"]["records"]) == ("REDRIVE", 3)
    assert command["redrive"]["records_per_minute"] == 60
    assert command["redrive"]["patch"] == patch
    assert command["redrive_progress"]["issued"] == 1
    (part,) = read(operator, "commands", part_of=command["id"])["results"]
    assert (part["kind"], part["part_of"]) == ("REDRIVE_RECORDS", command["id"])
    for wrong, field in (
        ({"patch": [{"op": "copy", "from": "/a", "path": "/b"}]}, "patch"),
        ({"records_per_minute": 0}, "records_per_minute"),
        ({"records_per_minute": 0, "dry_run": True}, "records_per_minute"),
        ({"reason": ""}, "reason"),
        ({"ids": ["x"]}, "id"),
        ({"pipeline": "other"}, "dead_letters"),
        ({"words": 1}, "words"),
    ):
        refused = operator.post(url, body | wrong, content_type="application/json")
        assert (refused.status_code, refused.json()["param"]) == (400, field)
    assert operator.post(url, body, content_type="application/json").status_code == 409
    issued = {"kind": "REDRIVE", "application": "flights"}
    refused = operator.post("/api/v1/commands", issued, content_type="application/json")
    assert refused.status_code == 400


def test_past_states_are_read_by_time_or_position(flights: Story, viewer: Client) -> None:
    before = read(viewer, "applications/flights")["sequence"]
    task = flights.pauses("JFK", held=12).digest
    paused = datetime.now(UTC).isoformat()
    flights.skips("EWR", 40)

    (group,) = read(viewer, "errors", as_of=paused)["results"]
    for path in ("applications", "applications/flights", f"tasks/{task}", "tasks", "errors"):
        now = read(viewer, path)
        for each in now["results"] if path == "applications" else [now]:
            if path.startswith("applications"):
                # What needs attention is known of now only.
                assert each.pop("attention") == 1
                each["attention"] = None
        assert read(viewer, path, as_of=datetime.now(UTC).isoformat()) == now
    path = "applications/flights/instances"
    assert read(viewer, path, as_of=paused) == read(viewer, path) != {"results": [], "next": None}
    path = "applications/flights/runs"
    before_skips, now = (
        (read(viewer, path, as_of=when) if when else read(viewer, path))["results"]
        for when in (paused, None)
    )
    assert [each["tolerance_usage"]["total"] for each in (*before_skips, *now)] == [0, 40]
    (instance,) = read(viewer, "applications/flights/instances")["results"]
    path = f"applications/flights/instances/{instance['id']}"
    assert read(viewer, path) == read(viewer, path, as_of=paused) == instance
    one = read(viewer, f"errors/flights/{group['fingerprint']}", as_of=paused)
    assert one == group
    assert read(viewer, "applications/flights", as_of=paused)["failed"] == 1
    assert read(viewer, "tasks", application="flights", as_of=f"@{before}")["results"] == []
    read(viewer, f"tasks/{task}", as_of=f"@{before}", code=404)
    assert read(viewer, "tasks", as_of="@1", code=400)["param"] == "as_of"
    assert read(viewer, "applications", as_of="soon", code=400)["param"] == "as_of"


def test_a_time_in_the_future_is_refused_as_as_of(flights: Story, viewer: Client) -> None:
    for ahead, status in ((timedelta(minutes=1), 200), (timedelta(days=300), 400)):
        then = (datetime.now(UTC) + ahead).isoformat()
        assert viewer.get("/api/v1/tasks", {"as_of": then}).status_code == status


def test_a_fingerprint_may_have_any_character(flights: Story, operator: Client) -> None:
    odd = replace(TYPO, fingerprint="their/own#1?")
    flights.pauses("JFK", cause=odd)
    page = operator.get(reverse("error", args=["flights", odd.fingerprint]))
    found = re.search(
        r"http://testserver(/api/v1/errors/[^ &<]*)", html.unescape(page.content.decode())
    )
    assert found is not None
    path = found[1].rstrip("'")
    assert operator.get(path).json()["fingerprint"] == odd.fingerprint
    assert operator.post(f"{path}/acts", {"act": "RESOLVE"}, content_type=JSON).status_code == 200
    (act,) = operator.get(f"{path}/history").json()["results"]
    assert act["kind"] == "ErrorGroupResolved"


def test_many_error_groups_are_acted_on_at_once(flights: Story, operator: Client) -> None:
    flights.pauses("JFK", cause=TYPO)
    flights.pauses("LGA", cause=NA)
    keys = [
        {"application": "flights", "fingerprint": mark}
        for mark in (TYPO.fingerprint, "unknown", NA.fingerprint)
    ]
    body = {"id": str(uuid4()), "act": "RESOLVE", "reason": "repaired", "groups": keys}
    for _ in range(2):
        answer = operator.post("/api/v1/errors/acts", body, content_type=JSON)
        assert answer.status_code == 200
        first, unknown, last = answer.json()["results"]
        assert first["group"]["status"] == last["group"]["status"] == "RESOLVED"
        assert (unknown["group"], "no error group" in unknown["refused"]) == (None, True)
    again = operator.post("/api/v1/errors/acts", body | {"id": str(uuid4())}, content_type=JSON)
    assert [bool(each["refused"]) for each in again.json()["results"]] == [True] * 3
    (act,) = read(operator, f"errors/flights/{NA.fingerprint}/history")["results"]
    assert (act["kind"], act["actor"]) == ("ErrorGroupResolved", "ana")
    strange: list[tuple[list[Any], str]] = [
        ([], "groups"),
        (keys * 50, "groups"),
        ([*keys, {"application": "flights"}], "groups[3].fingerprint"),
        ([keys[0] | {"zz": 1}], "groups[0].zz"),
        (["flights"], "groups[0]"),
    ]
    for groups, named in strange:
        wrong = operator.post("/api/v1/errors/acts", body | {"groups": groups}, content_type=JSON)
        assert (wrong.status_code, wrong.json()["param"]) == (400, named)


def test_an_invalid_value_of_one_group_of_many_names_the_group(
    flights: Story, operator: Client
) -> None:
    flights.pauses("JFK", cause=TYPO)
    flights.pauses("LGA", cause=NA)
    keys = [{"application": "flights", "fingerprint": each.fingerprint} for each in (NA, TYPO)]
    body = {"id": str(uuid4()), "act": "MUTE", "failures": 5, "period_seconds": 60}
    one = operator.post("/api/v1/errors/acts", body | {"groups": keys[1:]}, content_type=JSON)
    assert one.json()["results"][0]["group"]["status"] == "MUTED"
    other = {"id": body["id"], "act": "RESOLVE", "groups": keys}
    assert operator.post("/api/v1/errors/acts", other, content_type=JSON).status_code == 422
    # An invalid request has no effect.
    never = {"act": "MUTE", "groups": keys[1:]}
    assert operator.post("/api/v1/errors/acts", never, content_type=JSON).status_code == 400


def test_the_feed_continues_at_its_cursor(flights: Story, viewer: Client) -> None:
    first = read(viewer, "feed", limit=2)
    rest = read(viewer, "feed", cursor=first["next"])
    assert [each["sequence"] for each in first["results"]] == [1, 2]
    assert first["results"][0]["type"] == "InstanceStarted"
    assert first["results"][1]["run"]["pipeline"] == "delays"
    # A cursor of thousands of applications exceeds the URL limit.
    body = {"cursor": first["next"]}
    answer = viewer.post("/api/v1/feed", body, content_type=JSON)
    assert (answer.status_code, answer.json()) == (200, rest)
    assert Client().post("/api/v1/feed", body, content_type=JSON).status_code == 401
    flights.pauses("JFK", held=12)
    more = read(viewer, "feed", cursor=rest["next"], application="flights")["results"]
    assert [each["type"] for each in more] == ["RecordFailed", "TaskPaused", "RecordsHeld"]
    assert more[1]["data"]["position"] == 151_974
    read(viewer, "feed", cursor="x", code=400)
    last = read(viewer, "feed", last=2)
    assert [each["type"] for each in last["results"]] == ["TaskPaused", "RecordsHeld"]
    assert read(viewer, "feed", last=0) == {"results": [], "next": last["next"], "more": False}
    read(viewer, "feed", last=1, cursor=last["next"], code=400)


def test_the_status_has_parts_applications_stopped_tasks_and_recent_failures(
    flights: Story, viewer: Client
) -> None:
    task = flights.pauses("JFK", held=12).digest
    flights.skips("EWR", 40)
    flights.skips("LGA", 3, ago=timedelta(hours=2))
    status = read(viewer, "status")
    assert (status["account"], status["role"]) == ("ben", "viewer")
    assert {each["name"]: each["up"] for each in status["parts"]} == {
        "postgres": True, "redis": True, "wake": False, "worker": False, "housekeeper": False,
    }  # fmt: skip
    assert status["applications"] == read(viewer, "applications")["results"]
    assert [each["id"] for each in status["stopped"]] == [task]
    assert status["failed_last_hour"] == {"flights": 41}
    assert (status["waiting"], status["quarantined"]) == (0, 0)


def test_admins_export_the_audit(operator: Client) -> None:
    admin = logged_in(make_user("ada", "admin"))
    actions.open_application("flights", actor="ana")
    answer = admin.get("/api/v1/audit/export?since=2020-01-01T00:00:00Z")

    async def lines() -> list[bytes]:
        chunks = cast(AsyncIterator[bytes], answer.streaming_content)  # type: ignore[attr-defined]
        return b"".join([chunk async for chunk in chunks]).splitlines()

    entry, seal = async_to_sync(lines)()
    assert (json.loads(entry)["entry"]["act"], json.loads(seal)["seal"]["entries"]) == (
        "ApplicationOpened",
        1,
    )
    assert "no-store" in answer.headers["Cache-Control"]
    assert operator.get("/api/v1/audit/export").status_code == 403
    assert admin.get("/api/v1/audit/export?since=x").status_code == 400


def test_admins_add_list_and_remove_credentials_of_agents(operator: Client, redis: Redis) -> None:
    admin = logged_in(make_user("ada", "admin"))
    created = admin.post("/api/v1/agents", {"application": "flights"}, content_type=JSON)
    assert created.status_code == 201, created.json()
    new = created.json()
    assert (new["user"], new["problem"]) == ("arrester-agent-flights", "")
    assert "arrester-agent-flights:" in new["redis_url"]
    assert new["server_key"] == signing.public_key()
    [shown] = read(admin, "agents")["results"]
    assert (shown["id"], shown["application"], shown["actor"]) == (new["id"], "flights", "ada")
    assert shown.keys() == {"id", "application", "user", "created_at", "actor"}
    assert operator.get("/api/v1/agents").status_code == 403
    other = operator.post("/api/v1/agents", {"application": "x"}, content_type=JSON)
    assert other.status_code == 403
    assert operator.delete(f"/api/v1/agents/{new['id']}").status_code == 403
    wrong = admin.post("/api/v1/agents", {"application": "~*"}, content_type=JSON)
    assert (wrong.status_code, wrong.json()["param"]) == (400, "application")
    more = admin.post("/api/v1/agents", {"application": "flights"}, content_type=JSON).json()
    early = admin.delete(f"/api/v1/agents/{more['id']}?delete_keys=true")
    assert (early.status_code, early.json()["param"]) == (400, "delete_keys")
    assert admin.delete(f"/api/v1/agents/{more['id']}").status_code == 200
    removed = admin.delete(f"/api/v1/agents/{new['id']}?delete_keys=true")
    assert (removed.status_code, removed.json()) == (200, {"id": new["id"], "problem": ""})
    assert admin.delete(f"/api/v1/agents/{new['id']}").status_code == 404
    acts = [each["kind"] for each in read(admin, "audit", kind="agents")["results"]]
    removed_two, added_two = ["AGENT_CREDENTIAL_REMOVED"] * 2, ["AGENT_CREDENTIAL_ADDED"] * 2
    assert acts == removed_two + added_two
    assert read(admin, "audit", kind="accounts")["results"] == []


def test_each_kind_has_the_fields_of_its_documentation() -> None:
    form = set(NewCommandSerializer().fields)
    assert set.union(*map(fields_of, CommandKind)) == form
    page = (REPOSITORY / "docs/reference/rest.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", page, re.MULTILINE))
    assert rows.keys() == {kind.value for kind in CommandKind}
    for name, row in rows.items():
        documented, kind = set(re.findall("`([a-z_]+)`", row)), KINDS[CommandKind(name)]
        assert documented <= fields_of(kind.kind)
        if kind.kind is not CommandKind.REDRIVE:  # a section of its own
            assert ("reason" in documented) == kind.needs_reason
        if kind.subject not in (Subject.TASKS, Subject.DEAD_LETTERS):
            assert documented | {"id", "kind", "dry_run", "reason"} == fields_of(kind.kind)


@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_a_path_without_version_redirects(method: str) -> None:
    """308 keeps the method and the body; the release after next has no such path."""
    answer = getattr(Client(), method)("/api/tokens/3?limit=2&application=a%20b")
    assert answer.status_code == 308
    assert answer["Location"] == "/api/v1/tokens/3?limit=2&application=a%20b"
    renamed = getattr(Client(), method)("/api/applications/threads/threads?ended=/threads")
    assert renamed["Location"] == "/api/v1/applications/threads/runs?ended=/threads"
    assert getattr(Client(), method)("/api/v1/nothing").status_code == 404
