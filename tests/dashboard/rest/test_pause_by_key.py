"""Pause a task that has not failed, by its key."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from msgspec.structs import replace

from arrester.controlplane import queries
from tests.dashboard.rest.test_api import JSON, read
from tests.dashboard.story import POLICY, Story

OF_KEY = {"kind": "PAUSE_TASK", "application": "flights", "pipeline": "delays"}


def issue(client: Client, **body: Any) -> tuple[int, Any]:
    """Issue a command; fields that are None are left out."""
    given = {name: value for name, value in body.items() if value is not None}
    response = client.post("/api/v1/commands", given, content_type=JSON)
    return response.status_code, response.json()


def test_a_key_that_has_not_failed_is_paused_and_its_task_appears(
    flights: Story, operator: Client
) -> None:
    status, issued = issue(operator, **OF_KEY, key="cust-001", duration_seconds=600)
    task = flights.task("cust-001").digest
    assert (status, issued["task"]) == (202, task)
    page = operator.get(reverse("command", args=[issued["id"]])).content.decode()
    assert "delays_cust-001" in page and f"/tasks/{task}" not in page
    read(operator, f"tasks/{task}", code=404)

    flights.pauses_by_hand("cust-001", issued["id"])
    shown = read(operator, f"tasks/{task}")
    assert (shown["status"], shown["pause_ends_at"]) == ("PAUSED", issued["pause_ends_at"])
    page = operator.get(reverse("command", args=[issued["id"]])).content.decode()
    assert f"/tasks/{task}" in page
    assert issue(operator, kind="RESUME_TASK", task=task)[0] == 202


def test_a_repetition_and_a_dry_run_issue_nothing(flights: Story, operator: Client) -> None:
    issued = issue(operator, **OF_KEY, key="")[1]
    assert issue(operator, **OF_KEY, key="", id=issued["id"]) == (202, issued)
    about = issue(operator, **OF_KEY, key="new", dry_run=True)[1]
    assert (about["tasks"], about["refused"]) == ([flights.task("new").digest], None)
    assert len(queries.commands("flights").rows) == 1


@pytest.mark.parametrize(
    ("fields", "status", "detail"),
    [
        ({"application": "nowhere"}, 404, "there is no application 'nowhere'"),
        ({"pipeline": "delay"}, 404, "no run of a pipeline 'delay' in application 'flights'"),
        ({"key": "é" * 257}, 400, "a text of at most 512 bytes"),
        ({"key": None}, 400, "a key of pipeline delays"),
        ({"pipeline": None}, 400, "the pipeline of the key"),
        ({"task": "0" * 32}, 400, "no value together with task"),
        ({"kind": "RESUME_TASK"}, 400, "only for"),
    ],
)
def test_a_wrong_name_is_refused(
    fields: dict[str, Any], status: int, detail: str, flights: Story, operator: Client
) -> None:
    answer = issue(operator, **OF_KEY | {"key": "cust-001"} | fields)
    assert answer[0] == status
    assert detail in answer[1]["detail"]
    assert not queries.commands("flights").rows


def test_a_pipeline_with_a_global_task_has_no_keys(flights: Story, operator: Client) -> None:
    flights.report(replace(POLICY, keyed=False))
    status, problem = issue(operator, **OF_KEY, key="cust-001")
    assert status == 409
    assert problem["detail"] == "delays has one task, without a key: it has no key 'cust-001'"
