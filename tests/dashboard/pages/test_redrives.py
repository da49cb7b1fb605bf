"""Dead letters are redriven from their list and from their page, as they are or changed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from msgspec import UNSET

from arrester.controlplane import dead_letter_records, queries
from arrester.controlplane.dead_letter_records import Record, State
from arrester.controlplane.queries import DeadLetter, DeadLetterFilter
from arrester.controlplane.redis import redis_client
from arrester.controlplane.views import redrive_progress
from arrester.domain.events import Body, CommandKind, RecordsHeld, RecordsRedriven
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import CommandStatus
from arrester.domain.wire import dead_letter_columns
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import Story

pytestmark = pytest.mark.usefixtures("fresh_database")
HTMX = {"HX-Request": "true"}
RECORD = {"dep_delay": "NA", "plane": {"tail": "N1"}, "no/tes": "<b>\u202e</b>", "n": 9.25}
PATCH = '[{"op":"replace","path":"/dep_delay","value":null}]'


@pytest.fixture
def operator(db: None) -> Client:
    return logged_in(make_user("ana", "operator"))


@pytest.fixture
def rows(flights: Story) -> list[DeadLetter]:
    """Return thirty dead letters of a pipeline that runs, newest first."""
    flights.skips("JFK", 30)
    return list(queries.dead_letters(DeadLetterFilter(application="flights")).rows)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the server read dead letters below a folder; no worker runs."""
    environment = dataclasses.replace(settings.ENVIRONMENT, dead_letter_roots=[str(tmp_path)])
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)
    monkeypatch.setattr(dead_letter_records.requests, "_send", lambda *_: None)


def keep(one: DeadLetter, **values: object) -> None:
    """Store a record as a worker does that has read it."""
    body = Body(record=RECORD, **values)  # type: ignore[arg-type]  # by name
    record = Record(state=State.READY, body=body)
    key = redis_keys.dead_letter_record(one.application, one.id)
    redis_client.client().set(key, msgspec.json.encode(record))


def dialog(client: Client, **parameters: object) -> str:
    response = client.get(reverse("redrive-dialog"), parameters)  # type: ignore[arg-type]
    return response.content.decode()


def start(client: Client, **form: object) -> tuple[int, str]:
    fields = {"id": str(uuid4()), "reason": "the build is fixed", **form}
    response = client.post(reverse("start-redrive"), fields, headers=HTMX)
    if "HX-Redirect" in response.headers:
        response = client.get(response.headers["HX-Redirect"])
    return response.status_code, response.content.decode()


def redrives() -> list[tuple[int, bool, str | None]]:
    """Return those that were not refused, each with its records, waves and patch."""
    return [
        (each.redrive.records, each.redrive.waves, each.redrive.patch)
        for each in queries.commands().rows
        if each.redrive is not UNSET and each.status is not CommandStatus.REFUSED
    ]


def test_all_dead_letters_of_a_filter_are_redriven_in_waves(
    rows: list[DeadLetter], operator: Client
) -> None:
    page = operator.get(reverse("dead-letters"), {"application": "flights"}).content.decode()
    assert f'hx-get="{reverse("redrive-dialog")}?application=flights"' in page
    text = dialog(operator, application="flights")
    assert "Redrive 30 dead letters" in text and '<b class="break">delays</b>' in text
    assert "1 record, then 10%, then the rest" in text and "pid" in text
    status, page = start(operator, application="flights", waves="on")
    assert status == 200, page
    assert redrives() == [(30, True, None)]
    for part in ("Redrive dead letters", "0 of 30 records", "Stop redrive", "the build is fixed"):
        assert part in page
    # The canary; it waits for the agent.
    [canary] = [
        each for each in queries.commands().rows if each.kind is CommandKind.REDRIVE_RECORDS
    ]
    assert f'href="{reverse("command", args=[canary.id])}"' in page and "ISSUED" in page

    # In lists, a redrive is one row.
    link = f'href="{reverse("command", args=[canary.id])}"'
    for url in (
        reverse("commands"),
        reverse("overview"),
        reverse("application", args=["flights"]) + "?tab=commands",
        reverse("pipeline", args=["flights", "delays"]),
    ):
        # The last command of an application has a line of its own.
        shown = operator.get(url).content.decode().count(link)
        assert shown == ("/applications/" in url), url
    [redrive] = queries.commands(parts=False).rows
    of_redrive = {"rollout": str(redrive.id)}
    assert link in operator.get(reverse("commands"), of_redrive).content.decode()
    rest = operator.get("/api/v1/commands", {"parts": "false"}).json()["results"]
    assert [each["kind"] for each in rest] == ["REDRIVE"]
    assert len(operator.get("/api/v1/commands").json()["results"]) == 2


def test_a_rate_limits_the_records_of_a_minute(rows: list[DeadLetter], operator: Client) -> None:
    assert 'name="records_per_minute"' in dialog(operator, application="flights")
    fields = {"application": "flights", "waves": "on"}
    for wrong in ("none", "0"):
        _, text = start(operator, **fields, records_per_minute=wrong)
        assert "records_per_minute" in text and redrives() == []
        assert f'value="{wrong}"' in text
    status, page = start(operator, **fields, records_per_minute="10")
    assert status == 200, page
    assert redrives() == [(30, True, None)]
    assert "10 records per minute at most" in page


def test_records_after_the_dialog_opened_are_not_redriven(
    flights: Story, rows: list[DeadLetter], operator: Client
) -> None:
    text = dialog(operator, application="flights")
    until = text.partition('name="to" value="')[2].partition('"')[0]
    flights.skips("LGA", 5)
    start(operator, application="flights", to=until.replace("&#x2B;", "+"))
    assert redrives() == [(30, False, None)]


def test_more_records_than_the_dialog_showed_need_a_second_confirmation(
    rows: list[DeadLetter], operator: Client
) -> None:
    assert 'name="shown" value="30"' in dialog(operator, application="flights")
    _, text = start(operator, application="flights", shown="26")
    assert "check the number, and confirm again" in text and redrives() == []
    assert start(operator, application="flights", shown="30")[0] == 200
    assert redrives() == [(30, False, None)]


def test_selected_dead_letters_are_redriven_with_a_patch(
    rows: list[DeadLetter], operator: Client
) -> None:
    page = operator.get(reverse("dead-letters")).content.decode()
    selected = [f"flights/{each.id}" for each in rows[:2]]
    assert all(f'value="{each}"' in page for each in selected)
    text = dialog(operator, record=selected)
    assert "Redrive 2 dead letters" in text and all(each in text for each in selected)
    assert start(operator, record=selected, patch=PATCH)[0] == 200
    assert redrives() == [(2, False, PATCH)]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"reason": " "}, "A reason is required."),
        ({"patch": "[1]"}, "1 is not allowed; allowed: an operation add"),
        ({"record": ["flights/1", "other/2"]}, "dead letters of one application"),
        ({"application": ""}, "filter the list by one first"),
        ({"status": "PROCESSED"}, "dead letters that wait"),
    ],
)
def test_a_redrive_that_is_not_possible_names_what_is_wrong(
    rows: list[DeadLetter], operator: Client, form: dict[str, object], message: str
) -> None:
    status, page = start(operator, **{"application": "flights", "waves": "on", **form})
    assert status == 400 and message in page, page
    assert redrives() == []


def test_no_redrive_without_a_live_instance_or_a_second_one(
    flights: Story, rows: list[DeadLetter], operator: Client
) -> None:
    start(operator, record=f"flights/{rows[0].id}")
    text = dialog(operator, record=f"flights/{rows[1].id}")
    assert "Not now: " in text and "disabled" in text
    assert start(operator, record=f"flights/{rows[1].id}")[0] == 400
    assert len(redrives()) == 1
    flights.stops()
    assert "No live instance runs this pipeline" in dialog(operator, application="flights")


def test_a_patch_is_previewed_on_one_record(
    rows: list[DeadLetter], operator: Client, read: None
) -> None:
    def preview(patch: str) -> str:
        form = {"application": "flights", "sample": rows[0].id, "patch": patch}
        return operator.post(reverse("preview-redrive"), form).content.decode()

    assert "A worker reads a record" in preview(PATCH) and "hx-trigger" in preview(PATCH)
    keep(rows[0])
    text = preview(PATCH)
    assert "<del>&quot;NA&quot;</del><ins>null</ins>" in text and "hx-trigger" not in text
    assert "tail" not in text
    assert "the patch does not apply" in preview('[{"op":"remove","path":"/no_column"}]')
    assert "JSON Patch (RFC 6902)" in preview("{")
    same = '[{"op":"test","path":"/dep_delay","value":"NA"}]'
    assert "changes no column" in preview(same)


def test_a_record_is_edited_and_its_changes_are_reviewed(
    rows: list[DeadLetter], operator: Client, read: None
) -> None:
    one = rows[0]
    page = reverse("dead-letter", args=["flights", one.id])
    ask, review = (
        reverse(name, args=["flights", one.id]) for name in ("edit-record-dialog", "review-record")
    )
    assert ask in operator.get(page).content.decode()
    assert "A worker reads the record" in operator.get(ask).content.decode()
    keep(one, redacted=("plane.owner", "card"))
    text = operator.get(ask).content.decode()
    assert "&quot;dep_delay&quot;: &quot;NA&quot;" in text and "Masked fields" in text
    assert "\u202e" not in text

    def reviewed(record: object) -> tuple[int, str]:
        typed = record if isinstance(record, str) else json.dumps(record)
        response = operator.post(review, {"text": typed})
        return response.status_code, response.content.decode()

    for record, message in (
        (RECORD, "No column is changed"),
        (RECORD | {"more": 1}, "a JSON object with the columns"),
        ("{", "no JSON: Expecting property name"),
        (RECORD | {"plane": {}}, "plane: the page does not have the whole value"),
    ):
        status, text = reviewed(record)
        assert status == 400 and message in text
    status, text = reviewed(RECORD | {"dep_delay": 9, "no/tes": "", "n": 7.5})
    assert status == 200
    assert "<del>&quot;NA&quot;</del><ins>9</ins>" in text and "/no~1tes" in text
    assert "<del>9.25</del><ins>7.5</ins>" in text
    assert f'name="record" value="flights/{one.id}"' in text and "Redrive 1 dead letter" in text
    assert redrives() == []


def test_a_dead_letter_is_tested_in_the_dialog_of_its_redrive(
    flights: Story, rows: list[DeadLetter], operator: Client
) -> None:
    one, other = rows[0].id, rows[1].id
    url = reverse("test-dead-letter", args=["flights", one])
    text = dialog(operator, record=f"flights/{one}")
    assert f'hx-post="{url}"' in text and "A test is not possible" not in text
    assert "test-record" not in dialog(operator, record=[f"flights/{one}", f"flights/{other}"])

    def tested(url: str, patch: str = "") -> tuple[int, str]:
        response = operator.post(url, {"patch": patch})
        return response.status_code, response.content.decode()

    status, text = tested(url, PATCH)
    [command] = queries.commands().rows
    assert (command.kind, command.patch, command.task) == ("TEST_DEAD_LETTER", PATCH, None)
    assert status == 200 and reverse("test-result", args=[command.id]) in text
    chosen = redrive_progress.chosen(command)
    assert chosen is not None and (chosen.ids.hex(), chosen.patch) == (one, PATCH)
    assert tested(url, PATCH) == (200, text)
    for again in (tested(url), tested(reverse("test-dead-letter", args=["flights", other]), PATCH)):
        assert again[0] == 409 and "TEST_DEAD_LETTER by ana is already in progress" in again[1]
    # A redrive does not wait for a test.
    assert "Not now" not in dialog(operator, record=f"flights/{other}")
    flights.tests(command.id, rows=1)
    assert "Passed" in operator.get(reverse("test-result", args=[command.id])).content.decode()
    body = {"patch": json.loads(PATCH)}
    path = f"/api/v1/dead-letters/flights/{one}/test"
    issued = operator.post(path, body, "application/json")
    assert (issued.status_code, issued.json()["status"]) == (202, "ISSUED")
    flights.tests(issued.json()["id"])
    flights.stops()
    text = dialog(operator, record=f"flights/{one}")
    assert "A test is not possible: no live instance runs delays on the checkpoint" in text
    assert tested(url, "[1]")[0] == 400 and tested(url, PATCH)[0] == 409


def test_the_record_of_the_log_is_edited_without_a_configured_folder(
    rows: list[DeadLetter], operator: Client
) -> None:
    one = rows[-1]
    ask, review = (
        reverse(name, args=["flights", one.id]) for name in ("edit-record-dialog", "review-record")
    )
    shown = operator.get(reverse("dead-letter", args=["flights", one.id])).content.decode()
    assert f'hx-get="{ask}"' in shown
    text = operator.get(ask).content.decode()
    # The fourth cell of a line of CSV.
    name = re.findall(r'name="(f\d+)" class="mono" value="NA"', text)[0]
    [digest] = re.findall(r'name="digest" value="(\w+)"', text)
    response = operator.post(review, {"digest": digest, name: "12"})
    text = response.content.decode()
    assert response.status_code == 200, text
    assert "2013,1,1,<mark>NA</mark>,630" in text and "2013,1,1,<mark>12</mark>,630" in text
    assert "/value" in text and "Redrive 1 dead letter" in text
    stale = operator.post(review, {"digest": "0", name: "12"})
    assert stale.status_code == 400 and "edit it again" in stale.content.decode()


def test_records_of_stopped_tasks_are_named_before_and_during_a_redrive(
    flights: Story, rows: list[DeadLetter], operator: Client
) -> None:
    flights.skips("LGA", 2)
    flights.pauses("JFK")
    sentence = "30 wait for 1 stopped task: delays_JFK"
    assert f"{sentence}. Their tasks hold them" in dialog(operator, application="flights")
    body = {"application": "flights", "pipeline": "delays", "reason": "x", "dry_run": True}
    plan = operator.post("/api/v1/dead-letters/redrive", body, "application/json").json()
    waiting = {"records": 30, "tasks": 1, "stopped_again": 0, "text": sentence}
    assert (plan["records"], plan["waiting"]) == (32, waiting)
    start(operator, application="flights")
    [command] = [each for each in queries.commands().rows if each.kind is CommandKind.REDRIVE]
    for key, count in (("LGA", 2), ("JFK", 30)):
        positions = range(900_000, 900_000 + count)
        flights.report(
            RecordsRedriven(
                task=key,
                count=count,
                first_position=positions[0],
                last_position=positions[-1],
                redrive=command.id,
                records=dead_letter_columns.pack_ids(positions=positions, ids=()),
            )
        )
    flights.report(RecordsHeld(task="LGA", held=1, processed_until=900_000))
    page = operator.get(reverse("command", args=[command.id])).content.decode()
    assert f"{sentence}." in page and "1 of 32 records" in page
    found = operator.get(f"/api/v1/commands/{command.id}").json()["redrive_progress"]
    assert (found["redriven"], found["processed"], found["waiting"]) == (31, 1, waiting)


def test_a_record_that_cannot_be_read_is_not_edited(
    rows: list[DeadLetter], operator: Client
) -> None:
    ask = reverse("edit-record-dialog", args=["flights", rows[0].id])
    text = operator.get(ask).content.decode()
    assert "ARRESTER_DEAD_LETTERS_ROOTS" in text and "textarea" not in text


def test_the_page_of_a_redrive_has_its_results_and_stops_it(
    rows: list[DeadLetter], operator: Client
) -> None:
    start(operator, application="flights", waves="on")
    [command] = [each for each in queries.commands().rows if each.kind is CommandKind.REDRIVE]
    stopped = operator.post(
        reverse("cancel-command", args=[command.id]), {"id": str(uuid4())}, headers=HTMX
    )
    assert stopped.status_code == 200
    assert queries.command(command.id).status == "CANCELLED"
    assert "Stop redrive" not in stopped.content.decode()


def test_viewers_have_no_redrive(rows: list[DeadLetter]) -> None:
    viewer = logged_in(make_user("ben", "viewer"))
    pages = [reverse("dead-letters"), reverse("dead-letter", args=["flights", rows[0].id])]
    assert all("redrive" not in viewer.get(page).content.decode() for page in pages)
    assert start(viewer, application="flights")[0] == 403
