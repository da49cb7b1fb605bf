"""Before the click, pages, dry runs and dialogs show where records are after it, and what would
fail."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries
from arrester.domain.events import CommandKind, PipelineDescribed
from tests.dashboard.every_action import Offered
from tests.dashboard.story import POLICIES, POLICY, Story

LOG = "only in the log (without its masked fields), for 30 days after its failure"
_SOME = "only in the log if it was reported in full, for 30 days after its failure"
_NONE = "pipeline stores no dead letters (errors.dlq.enable)"
_IF = "if the pipeline stores dead letters. If not,"
#: Where the records are after each command, by what becomes of them.
AFTERWARDS = {
    "STORED": {
        "SKIP_RECORD": "The skipped record becomes a dead letter in /data/dlq/flights, with your"
        " reason.",
        "RESUME_AT": "Skipped records become dead letters in /data/dlq/flights, with your reason.",
        "SKIP_RECORDS": "Each skipped record becomes a dead letter in /data/dlq/flights, with your"
        " reason.",
    },
    "LOST": {
        "SKIP_RECORD": f"The skipped record is {LOG}: this {_NONE}.",
        "RESUME_AT": f"The skipped record that failed is {LOG}. The others are lost: this {_NONE}.",
        "SKIP_RECORDS": f"Each skipped record is {_SOME}: a {_NONE}.",
    },
    "UNKNOWN": {
        "SKIP_RECORD": f"The skipped record becomes a dead letter {_IF} it is {LOG}.",
        "RESUME_AT": f"Skipped records become dead letters {_IF} the one that failed is {LOG}, and"
        " the others are lost.",
        "SKIP_RECORDS": f"Each skipped record becomes a dead letter {_IF} it is {_SOME}.",
    },
}


@pytest.mark.parametrize("skipped", POLICIES)
def test_a_dry_run_has_what_becomes_of_skipped_records(
    skipped: str, db: None, redis: Redis, operator: Client
) -> None:
    story = Story()
    story.starts(policy=POLICIES[skipped])
    task = story.pauses("JFK").digest
    bodies: dict[str, dict[str, object]] = {
        "SKIP_RECORD": {"task": task, "reason": "x"},
        "RESUME_AT": {"task": task, "reason": "x", "resume_position": 151_974},
        "SKIP_RECORDS": {"application": "flights", "reason": "x"},
        "EDIT_RECORD": {"task": task, "reason": "x", "patch": [{"op": "remove", "path": "/a"}]},
        "RESUME_TASK": {"task": task},
    }
    found, afterwards = {}, {}
    for kind, body in bodies.items():
        response = operator.post(
            "/api/v1/commands", body | {"kind": kind, "dry_run": True}, "application/json"
        )
        assert response.status_code == 200, response.content
        found[kind], afterwards[kind] = (
            response.json()[name] for name in ("skipped", "afterwards")
        )
    none = dict.fromkeys(("EDIT_RECORD", "RESUME_TASK"))
    assert found == {**dict.fromkeys(bodies, skipped), **none}
    assert afterwards == AFTERWARDS[skipped] | {
        "EDIT_RECORD": "The changed record is processed in place of the failed one, which is"
        f" {LOG}.",
        "RESUME_TASK": None,
    }


@pytest.mark.parametrize(
    ("values", "after"),
    [
        ({"record": {}, "cut_from": 90_000}, " (only its beginning, without its masked fields)"),
        ({"sealed": b"x"}, ""),
        (None, None),
    ],
)
def test_a_mend_names_what_the_log_keeps_of_the_failed_record(
    values: dict[str, Any] | None, after: str | None, flights: Story, operator: Client
) -> None:
    task = (flights.dies_alone("LGA") if values is None else flights.pauses("JFK", **values)).digest
    body = {"task": task, "reason": "x", "patch": [{"op": "remove", "path": "/a"}]}
    response = operator.post(
        "/api/v1/commands", body | {"kind": "EDIT_RECORD", "dry_run": True}, "application/json"
    )
    kept = "stored nowhere"
    if after is not None:
        kept = f"only in the log{after}, for 30 days after its failure"
    assert response.json()["afterwards"].endswith(f"of the failed one, which is {kept}.")


def test_the_size_of_the_log_limits_how_long_it_keeps_a_record(
    flights: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = dataclasses.replace(settings.ENVIRONMENT, retention_days=1, retention_gigabytes=5)
    monkeypatch.setattr(settings, "ENVIRONMENT", limited)
    flights.skips("JFK", 2)
    ask = reverse("discard-dialog")
    dialog = operator.get(ask, {"application": "flights"}).content.decode()
    assert "The records stay at their destination, such as /data/dlq/flights." in dialog
    assert "The server lists them for at most 1 day after they were skipped." in dialog
    one = queries.dead_letters(queries.DeadLetterFilter(application="flights")).rows[0]
    dialog = operator.get(ask, {"record": f"flights/{one.id}"}).content.decode()
    assert "The record stays in /data/dlq/flights. The server lists it for at most" in dialog


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (POLICIES["LOST"], "delays stores no dead letters now"),
        (replace(POLICY, dead_letter_format="csv"), "delays stores dead letters as csv"),
        (POLICY, ""),
        (None, ""),
    ],
)
def test_a_redrive_that_the_agent_cannot_read_is_not_offered(
    policy: PipelineDescribed | None, reason: str, db: None, redis: Redis, operator: Client
) -> None:
    story = Story()
    story.starts(policy=policy)
    story.skips("JFK", 1)
    one = queries.dead_letters(queries.DeadLetterFilter(application="flights")).rows[0]
    filtered = f"{reverse('dead-letters')}?application=flights"
    for page, dialogs in (
        (
            reverse("dead-letter", args=["flights", one.id]),
            ["redrive-dialog", "edit-record-dialog"],
        ),
        (filtered, ["redrive-dialog"]),
    ):
        text = operator.get(page).content.decode()
        assert ("Redrive is not possible now: " in text) == bool(reason) and reason in text
        offered = Offered(text).urls
        for name in dialogs:
            arguments = ["flights", one.id] if name == "edit-record-dialog" else []
            is_offered = any(each.startswith(reverse(name, args=arguments)) for each in offered)
            # The selection of the list is for any application.
            assert is_offered == (not reason or page == filtered), (page, name)
    body = {"application": "flights", "ids": [one.id], "reason": "x", "dry_run": True}
    plan = operator.post("/api/v1/dead-letters/redrive", body, "application/json").json()
    assert (plan["refused"] or "").startswith(reason) and bool(plan["refused"]) == bool(reason)


def test_a_record_that_no_page_can_edit_is_not_offered(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", cut_from=70_000).digest
    text = operator.get(reverse("task", args=[task])).content.decode()
    assert reverse("mend-dialog", args=[task]) not in Offered(text).urls
    assert "Edit record and resume is not possible: it has 70,000 bytes, too many" in text
    command = actions.command_task(CommandKind.PAUSE_TASK, flights_running(flights), actor="ana")
    flights.pauses_by_hand("LGA", command.id)
    page = reverse("task", args=[flights.task("LGA").digest])
    text = operator.get(page).content.decode()
    assert "Skip record and resume is not possible: delays_LGA was paused by hand" in text
    assert "Not now" not in text


def flights_running(story: Story) -> str:
    """Return a RUNNING task, which has failed once."""
    story.skips("LGA", 1)
    return story.task("LGA").digest
