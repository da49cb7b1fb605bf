"""Error groups: filters, actions, exports, REST."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from msgspec.structs import replace

from arrester.controlplane import actions, queries
from arrester.domain.events import (
    Body,
    FinalResponse,
    RecordFailed,
    ResumeHow,
    SourceLines,
    TaskPaused,
)
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import GroupState, GroupStatus
from tests.dashboard.accounts import make_user
from tests.dashboard.exported_files import exported
from tests.dashboard.story import MODULE, NA, TYPO, Story, failure, malformed

HTMX = {"HX-Request": "true"}
PAGE = ["flights", TYPO.fingerprint]


def text(client: Client, url: str, *, status: int = 200, **filters: str) -> str:
    response = client.get(url, filters)
    assert response.status_code == status, response.content.decode()[:500]
    return response.content.decode()


def press(client: Client, url: str, **form: object) -> tuple[int, str]:
    response = client.post(url, {"id": str(uuid4())} | form, headers=HTMX)
    return response.status_code, response.content.decode()


def verb(name: str) -> str:
    return reverse("act-on-group", args=["flights", name, TYPO.fingerprint])


def group() -> GroupState:
    return queries.group("flights", TYPO.fingerprint).state


def resolve(fingerprint: str) -> None:
    requested = GroupRequest(id=uuid4(), act=GroupAct.RESOLVE, fingerprint=fingerprint, actor="ana")
    actions.act_on_group("flights", requested)


def test_the_list_hides_resolved_groups_and_counts_them(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.skips("EWR", 12)
    resolve(NA.fingerprint)
    page = text(viewer, reverse("errors"))
    assert "ImplausibleDelay" in page and "SparkNumberFormatException" not in page
    assert 'Resolved <span class="number">1</span>' in page
    assert "SparkNumberFormatException" in text(viewer, reverse("errors"), state="RESOLVED")
    every = text(viewer, reverse("errors"), state="all")
    assert "ImplausibleDelay" in every and "SparkNumberFormatException" in every
    overview = text(viewer, reverse("overview"))
    assert "ImplausibleDelay" in overview


def test_the_overview_hides_muted_groups_and_counts_them(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.pauses("LGA", cause=NA)
    requested = GroupRequest(
        id=uuid4(),
        act=GroupAct.MUTE,
        fingerprint=TYPO.fingerprint,
        actor="ana",
        until=datetime.now(UTC) + timedelta(hours=1),
    )
    actions.act_on_group("flights", requested)
    page = text(viewer, reverse("overview"))
    assert "1 item needs attention" in page and "delays_LGA" in page
    assert "1 stopped task" in page and "1 muted" in page
    assert "ImplausibleDelay" not in page
    resolve(NA.fingerprint)
    page = text(viewer, reverse("overview"))
    assert "delays_LGA" in page and "1 resolved" in page and "No unresolved error" in page


def test_a_note_on_a_task_is_in_its_history(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    url = reverse("note-on-task", args=[task])
    status, page = press(operator, url, text="asked the vendor")
    assert status == 200 and "asked the vendor" in page
    assert press(operator, url, text=" ")[0] == 400


def test_all_paused_tasks_of_an_application_are_resumed(
    flights: Story, operator: Client, viewer: Client
) -> None:
    tasks = [flights.pauses(key).digest for key in ("JFK", "LGA")]
    url = reverse("application", args=["flights"])
    assert "Resume paused tasks" in text(operator, url)
    assert 'id="resume-many" disabled' in text(viewer, url)
    form = {"task": tasks, "application": "flights"}
    status, page = press(operator, reverse("resume-many"), **form)
    assert status == 200 and "2 resume commands issued." in page
    asked = operator.get(f"{reverse('resume-many-dialog')}?application=flights").content.decode()
    assert "No tasks to resume" in asked


def test_groups_are_found_by_class_stage_message_and_time(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.skips("EWR", 12, ago=timedelta(hours=3))
    url = reverse("errors")
    for filters, found in [
        ({"class": "ImplausibleDelay"}, "TYPO"),
        ({"class": "checks.ImplausibleDelay"}, "TYPO"),
        ({"stage": "deserialize"}, "NA"),
        ({"text": "minutes late"}, "TYPO"),
        ({"text": "'NA'"}, "NA"),
        ({"range": "1h"}, "TYPO"),
        ({"application": "flights", "range": "24h"}, "BOTH"),
        ({"application": "orders"}, ""),
        ({"class": "Delay"}, ""),
    ]:
        page = viewer.get(url, filters).content.decode()
        assert ("ImplausibleDelay</b>" in page) == (found in ("TYPO", "BOTH")), filters
        assert ("SparkNumberFormatException</b>" in page) == (found in ("NA", "BOTH")), filters
    for wrong in ({"range": "2h"}, {"state": "OPEN"}, {"sort": "message"}, {"from": "noon"}):
        response = viewer.get(url, wrong)
        assert (response.status_code, "allowed:" in response.content.decode()) == (400, True)


@pytest.mark.parametrize(
    "sort", [f"{direction}{name}" for name in queries.SORTS for direction in ("-", "")]
)
def test_each_order_is_paged_without_gap_or_double(flights: Story, sort: str) -> None:
    for number in range(5):
        cause = failure(
            "process:check", f"checks.Error{number % 2}", f"wrong {number}", f"f:{number}"
        )
        flights.pauses(f"gate-{number % 3}", cause=cause)
    seen, cursor = [], None
    while True:
        page = queries.groups(sort=sort, cursor=cursor, limit=2)
        seen += [each.fingerprint for each in page.rows]
        if page.next is None:
            break
        cursor = page.next
    assert len(seen) == len(set(seen)) == 5
    whole = queries.groups(sort=sort, limit=100).rows
    assert seen == [each.fingerprint for each in whole]


def test_resolve_reopen_mute_and_note_as_an_operator(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    status, page = press(operator, verb("resolve"), reason="fixed in 1.4")
    assert status == 200 and "by ana: “fixed in 1.4”" in page
    assert press(operator, verb("resolve"))[0] == 409
    assert press(operator, verb("reopen"))[0] == 200
    mute = reverse("mute-group", args=PAGE)
    assert "<legend>Mute</legend>" in text(operator, reverse("mute-dialog", args=PAGE))
    status, dialog = press(operator, mute, end="failures", failures="0", period="3600")
    assert status == 400 and "is not allowed" in dialog
    status, page = press(operator, mute, end="failures", failures="25", period="3600")
    assert status == 200 and "ends at 25 failed records within one hour" in page
    assert group().status is GroupStatus.MUTED
    assert press(operator, verb("unmute"))[0] == 200
    assert press(operator, mute, end="24h")[0] == 200
    status, page = press(
        operator, reverse("note-on-group", args=PAGE), text="<b>told the vendor</b>"
    )
    assert status == 200 and "&lt;b&gt;told the vendor&lt;/b&gt;" in page
    for word in ("resolved", "reopened", "muted", "unmuted", "Note added"):
        assert word in page


def test_many_groups_are_acted_on_individually(flights: Story, operator: Client) -> None:
    flights.pauses("JFK", cause=TYPO)
    flights.pauses("LGA", cause=NA)
    groups = [f"flights/{each.fingerprint}" for each in (TYPO, NA)]
    ask, act = reverse("groups-dialog"), reverse("act-on-groups")
    dialog = operator.get(ask, {"act": "MUTE", "group": groups}).content.decode()
    assert "Mute 2 groups" in dialog and dialog.count('name="group"') == 2
    status, page = press(operator, act, act="MUTE", group=groups, end="failures", failures="0")
    assert status == 400 and "is not allowed" in page and "Mute 2 groups" in page
    status, page = press(operator, act, act="MUTE", group=groups[:1], end="24h")
    assert status == 200 and "1 group muted." in page
    requested = {"act": "MUTE", "end": "24h", "id": str(uuid4())}
    assert press(operator, verb("resolve"))[0] == 200
    for _ in range(2):
        status, page = press(operator, act, group=groups, **requested)
        assert status == 200 and "1 group muted. 1 refused: a RESOLVED group is hidden" in page
    assert press(operator, act, act="RESOLVE", group=["flights/unknown"])[0] == 200
    for wrong in ({"act": "DELETE", "group": groups}, {"act": "RESOLVE"}):
        assert operator.get(ask, wrong).status_code == 400
        assert press(operator, act, **wrong)[0] == 400


def test_a_double_click_is_one_act(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    id = str(uuid4())
    assert [press(operator, verb("resolve"), id=id)[0] for _ in range(2)] == [200, 200]
    assert len(queries.group_history(*PAGE).rows) == 1


def test_a_resolved_group_that_fails_again_is_marked(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    resolve(TYPO.fingerprint)
    flights.pauses("LGA")
    assert "RECURRED" in text(operator, reverse("errors"))
    page = text(operator, reverse("error", args=PAGE), tab="notes")
    assert "Reopened by a new failure" in page and "failed again after it was resolved" in page


def test_a_viewer_sees_groups_and_cannot_act(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    page = text(viewer, reverse("error", args=PAGE))
    assert page.count('title="requires the role operator"') == 5
    assert press(viewer, verb("resolve"))[0] == 403
    assert press(viewer, reverse("mute-group", args=PAGE), end="1h")[0] == 403
    assert press(viewer, reverse("note-on-group", args=PAGE), text="x")[0] == 403
    assert viewer.get(reverse("mute-dialog", args=PAGE)).status_code == 403
    assert group().status is GroupStatus.UNRESOLVED


def test_each_tab_of_an_error(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=7)
    flights.pauses("LGA")
    url = reverse("error", args=PAGE)
    assert "ensure_plausible" in text(viewer, url)
    assert "N384HA" in text(viewer, url, tab="record")
    tasks = text(viewer, url, tab="tasks")
    assert "delays_JFK" in tasks and "delays_LGA" in tasks and "Failures" in tasks
    why = text(viewer, url, tab="why")
    assert TYPO.fingerprint in why and "version 1, current" in why
    assert "No actions or notes yet" in text(viewer, url, tab="notes")
    assert "allowed: trace, record" in text(viewer, url, status=400, tab="nothing")
    for copy in ("## ImplausibleDelay", "&quot;fingerprint&quot;", "curl -H"):
        assert copy in text(viewer, url)


def test_groups_that_divide_an_earlier_one_are_joined_with_it(
    flights: Story, viewer: Client
) -> None:
    date = malformed(inner_class="java.time.format.DateTimeParseException")
    wrong = "CANNOT_PARSE_JSON_FIELD"
    typed = malformed(inner_class="a.JsonError", inner_condition=wrong, field="dep_delay")
    unrelated = replace(malformed(inner_class="a.JsonError"), stage="process:x")
    before = malformed()
    assert before.fingerprint.startswith("1-")
    for task, cause in enumerate((before, date, typed, unrelated)):
        flights.pauses(f"task {task}", cause=cause)

    titles = {
        before: "Text cannot be parsed",
        date: "Text is not a date or time",
        typed: "JSON value of another type: dep_delay",
    }
    listed = text(viewer, reverse("errors"))
    urls = {each: reverse("error", args=["flights", each.fingerprint]) for each in titles}
    for each, title in titles.items():
        page = text(viewer, urls[each])
        assert f"<h1>{title} " in page and f">{title}</b>" in listed
        # The class stays, since `on=` has it.
        assert "SparkException" in page
    assert listed.count("SparkException · ") == 4

    old, new = text(viewer, urls[before]), text(viewer, urls[typed])
    parts = re.findall(r'href="([^"]+)"', re.findall(r'<p[^>]* id="parts">.*', old)[0])
    assert parts == [urls[typed], urls[date]]
    assert urls[before] in re.findall(r'<p[^>]* id="earlier">.*', new)[0]
    assert 'id="earlier"' not in old and 'id="parts"' not in new
    assert "dep_delay" in text(viewer, urls[typed], tab="why")

    rest = viewer.get(f"/api/v1/errors/flights/{typed.fingerprint}").json()
    assert rest["earlier_fingerprint"] == before.fingerprint
    assert (rest["inner_condition"], rest["field"]) == (wrong, "dep_delay")
    assert rest["title"] == titles[typed]
    rest = viewer.get(f"/api/v1/errors/flights/{before.fingerprint}").json()
    assert (rest["earlier_fingerprint"], rest["inner_class"], rest["field"]) == (None, None, None)


def test_resolving_or_muting_an_earlier_group_leaves_its_parts_alone(flights: Story) -> None:
    """It had records with other causes too, so no act on it was about this one."""
    before, date = malformed(), malformed(inner_class="java.time.DateTimeException")
    flights.pauses("JFK", cause=before)
    resolve(before.fingerprint)
    flights.pauses("LGA", cause=date)
    part, earlier = (queries.group("flights", each.fingerprint).state for each in (date, before))
    assert (earlier.status, earlier.count) == (GroupStatus.RESOLVED, 1)
    assert (part.status, part.count, part.recurred) == (GroupStatus.UNRESOLVED, 1, False)


def test_the_lines_of_code_of_an_earlier_example_are_shown(flights: Story, viewer: Client) -> None:
    code = ("def f(x):", "    if x < '<b>':", "        raise Implausible")
    failed = RecordFailed(
        task="JFK",
        position=1,
        failure=TYPO,
        response=FinalResponse.CONTINUE,
        with_source=True,
    )
    flights.report(failed, body=Body(record={"x": 1}, source=SourceLines(first=21, lines=code)))
    flights.pauses("JFK")
    page = text(viewer, reverse("error", args=PAGE))
    found = re.findall(r'<span class="raised"><span class="muted">([^<]*)</span>([^<]*)', page)
    assert found == [("   23", "          raise Implausible\n")]
    assert "if x &lt; &#x27;&lt;b&gt;&#x27;:" in page
    assert 'class="code"' not in text(viewer, reverse("error", args=PAGE), tab="record")
    state = group()
    assert 0 < int(state.source_sequence or 0) < state.example_sequence


def test_a_field_that_the_failure_names_is_marked(flights: Story, viewer: Client) -> None:
    cause = replace(TYPO, message="KeyError: 'gust', not 'wing'")
    task = flights.pauses("JFK", cause=cause)
    pages = [
        text(viewer, reverse("error", args=PAGE), tab="record"),
        text(viewer, reverse("task", args=[task.digest])),
    ]
    for page in pages:
        [row] = re.findall(r'<tr class="is-named">.*?</tr>', page, re.S)
        assert "weather" in row and "<mark>&quot;gust&quot;:</mark>" in row
        assert "named by the failure" in row and page.count("<mark>") == 1


def test_an_error_lists_the_other_classes_of_its_condition(flights: Story, viewer: Client) -> None:
    url = reverse("error", args=PAGE)
    failed = replace(TYPO, condition="CAST_INVALID_INPUT")
    flights.pauses("JFK", cause=failed)
    assert "Other classes" not in text(viewer, url) + text(viewer, url, tab="why")
    others = ("org.spark.<Number>Format", "org.spark.DateTimeException")
    for name in reversed(others):
        flights.pauses("JFK", cause=replace(failed, exception_class=name))
    assert "Other classes: &lt;Number&gt;Format, DateTimeException<" in text(viewer, url)
    assert "Other classes: &lt;Number" in text(viewer, f"{url}?as_of=@{group().sequence}")
    assert f"&lt;Number&gt;Format, {others[1]}<" in text(viewer, url, tab="why")
    rest = viewer.get(f"/api/v1/errors/flights/{TYPO.fingerprint}").json()
    assert (rest["exception_class"], rest["other_classes"]) == (TYPO.exception_class, [*others])


def test_the_tasks_that_an_error_stopped_are_resumed_at_once(
    flights: Story, operator: Client, viewer: Client
) -> None:
    tasks = [flights.pauses(key, held=3).digest for key in ("JFK", "LGA")]
    flights.pauses("EWR", cause=NA)
    asked = f"{reverse('resume-many-dialog')}?application=flights&fingerprint={TYPO.fingerprint}"
    dialog = operator.get(asked).content.decode()
    assert "Resume 2 tasks" in dialog and "6 records are held" in dialog
    assert (
        "Commands are applied between two micro-batches by spark-driver-0" in dialog
        and "EWR" not in dialog
    )
    form = {"task": tasks, "application": "flights", "fingerprint": TYPO.fingerprint}
    assert press(viewer, reverse("resume-many"), **form)[0] == 403
    id = str(uuid4())
    status, page = press(operator, reverse("resume-many"), id=id, **form)
    assert status == 200 and "2 resume commands issued." in page
    assert press(operator, reverse("resume-many"), id=id, **form)[0] == 200
    assert {each.task.key for each in queries.open_commands("flights") if each.task} == {
        "JFK",
        "LGA",
    }
    flights.loses_heartbeat()
    assert "No live instance" in operator.get(asked).content.decode()


def test_a_rollout_is_started_and_shows_its_progress(flights: Story, operator: Client) -> None:
    for key in ("JFK", "LGA", "EWR"):
        flights.pauses(key, held=3)
    asked = f"{reverse('rollout-dialog')}?application=flights&fingerprint={TYPO.fingerprint}"
    dialog = operator.get(asked).content.decode()
    assert dialog.count("3 tasks") == 3 and "0 tasks" in dialog
    form = {
        "application": "flights",
        "fingerprint": TYPO.fingerprint,
        "kind": "SKIP_RECORDS",
        "waves": "on",
        "observe_seconds": "30",
        "tasks_per_minute": "600",
    }
    status, page = press(operator, reverse("start-rollout"), **form)
    assert status == 400 and "skipping or changing records needs a reason" in page
    edit = form | {"kind": "EDIT_RECORDS", "reason": "NA", "patch": "[{}]"}
    status, page = press(operator, reverse("start-rollout"), **edit)
    assert status == 400 and "an operation add, move" in page and ">[{}]</textarea>" in page
    wrong = form | {"observe_seconds": "4000", "reason": "a bad feed"}
    status, page = press(operator, reverse("start-rollout"), **wrong)
    assert status == 400 and "a whole number from 0 to 3,600" in page and "a bad feed" in page
    assert press(operator, reverse("start-rollout"), reason="a bad feed", **form)[0] == 204
    [rollout] = queries.commands("flights", open=True).rows[1:]
    page = text(operator, reverse("command", args=[rollout.id]))
    assert "0 of 3 tasks" in page and "1, 2, 3" in page
    listed = text(operator, f"{reverse('commands')}?rollout={rollout.id}")
    assert "Skip record and resume" in listed and "Skip records and resume tasks" not in listed
    [canary] = queries.commands(part_of=rollout.id).rows
    assert canary.task is not None and canary.task.key is not None
    flights.resumes(canary.task.key, canary.id, how=ResumeHow.SKIP)
    flights.report(TaskPaused(task=canary.task.key, position=151_980, failure=TYPO))
    listed = text(operator, f"{reverse('commands')}?rollout={rollout.id}")
    assert "stopped again later at position 151,980" in listed
    [row] = operator.get(f"/api/v1/commands?part_of={rollout.id}").json()["results"]
    assert row["verdict"]["outcome"] == "STOPPED_LATER"
    assert row["verdict"]["stop"]["position"] == 151_980
    assert operator.get(f"{reverse('commands')}?rollout=x").status_code == 400
    status, page = press(operator, reverse("start-rollout"), reason="again", **form)
    assert status == 400 and "already in progress for these tasks" in page
    assert f'(<a href="{reverse("command", args=[rollout.id])}">view command</a>)' in page


# ── exports ──────────────────────────────────────────────────────────────────────────────────


def test_an_export_has_the_rows_of_the_page(
    flights: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.dashboard.pages.exports.ROWS_PER_PAGE", 2)
    for number in range(5):
        cause = failure("process:check", "checks.Wrong", f"=1+{number}", f"checks.py:{number}")
        flights.pauses(f"gate-{number}", cause=cause)
    flights.skips("EWR", 12)
    lines = exported("/export/errors.jsonl?class=Wrong&sort=count", user="ana").splitlines()
    assert [json.loads(line)["exception_class"] for line in lines] == ["checks.Wrong"] * 5
    rows = list(csv.DictReader(io.StringIO(exported("/export/errors.csv?class=Wrong", user="ana"))))
    assert len(rows) == 5
    assert {row["message"] for row in rows} == {f"'=1+{number}" for number in range(5)}
    assert operator.get("/export/errors.csv?range=2h").status_code == 400
    assert operator.get("/export/errors.csv?after=x").status_code == 400
    assert operator.get("/export/secrets.csv").status_code == 404
    assert operator.get("/export/commands.csv?state=NOPE").status_code == 400


def test_failed_records_of_a_time_range_are_exported_as_rest_lists_them(
    flights: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.dashboard.pages.exports.ROWS_PER_PAGE", 2)
    flights.skips("EWR", 12)
    flights.skips("EWR", 7, ago=timedelta(hours=3))
    flights.pauses("JFK")
    flights.pauses("LGA", ago=timedelta(hours=3))
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    def rows(query: str) -> list[dict[str, Any]]:
        lines = exported(f"/export/failures.jsonl?{query}", user="ana").splitlines()
        found = [json.loads(line) for line in lines]
        sheet = csv.DictReader(io.StringIO(exported(f"/export/failures.csv?{query}", user="ana")))
        assert [row["sequence"] for row in sheet] == [str(each["sequence"]) for each in found]
        return found

    def listed(**asked: str) -> list[dict[str, Any]]:
        answer = operator.get("/api/v1/failures", asked).json()
        assert answer["next"] is None
        return [
            {name: each[name] for name in each if name != "failure"} | each["failure"]
            for each in answer["results"]
        ]

    assert rows("range=1h") == listed(since=since)
    assert sum(each["count"] for each in rows("range=1h")) == 13
    assert sum(each["count"] for each in rows("range=6h")) == 21
    assert rows("range=1h&text=1301") == listed(since=since, fingerprint=TYPO.fingerprint)
    assert rows("range=1h&class=ImplausibleDelay") == rows("range=1h&text=1301") != []
    assert rows("range=1h&text=nothing+says+this") == []
    # The page of a group exports what its chart counts, in any state of the group.
    resolve = GroupRequest(
        id=uuid4(), act=GroupAct.RESOLVE, fingerprint=NA.fingerprint, actor="ana"
    )
    actions.act_on_group("flights", resolve)
    assert rows("range=1h") == listed(since=since, fingerprint=TYPO.fingerprint)
    response = operator.get(f"{reverse('error', args=['flights', NA.fingerprint])}?range=6h")
    query = response.context["export_query"]
    assert query in unescape(response.content.decode())
    total = sum(each["count"] for each in rows(query))
    assert total == response.context["rate"].chart.total == 19
    assert operator.get("/export/failures.csv?fingerprint=1-0").status_code == 404


@pytest.mark.parametrize("what", ["audit", "dead-letters", "commands", "history"])
def test_each_list_is_exported_in_both_forms(flights: Story, operator: Client, what: str) -> None:
    task = flights.pauses("JFK")
    actions.resume_task(task.digest, actor="ana", reason="fixed")
    flights.skips("JFK", 3)
    asked = f"?task={task.digest}" if what in ("history", "dead-letters") else ""
    lines = exported(f"/export/{what}.jsonl{asked}", user="ana").splitlines()
    rows = list(csv.DictReader(io.StringIO(exported(f"/export/{what}.csv{asked}", user="ana"))))
    assert len(rows) == len(lines) > 0
    assert list(json.loads(lines[0])) == list(rows[0])
    if what != "history":
        # An empty file has the heading.
        empty = exported(f"/export/{what}.csv?application=orders", user="ana").splitlines()
        assert empty == [",".join(rows[0])]


def test_an_export_needs_a_role(flights: Story, client: Client) -> None:
    assert client.get("/export/errors.csv").status_code == 302
    make_user("cleo")
    client.login(username="cleo", password="a password for tests")
    assert client.get("/export/errors.csv").status_code == 403


# ── REST ─────────────────────────────────────────────────────────────────────────────────────


def post(client: Client, path: str, **body: object) -> tuple[int, Any]:
    response = client.post(f"/api/v1/{path}", body, content_type="application/json")
    return response.status_code, response.json()


def test_rest_acts_alike_and_refuses_with_409_state_and_position(
    flights: Story, operator: Client, viewer: Client
) -> None:
    task = flights.pauses("JFK")
    acts = f"errors/flights/{TYPO.fingerprint}/acts"
    assert post(viewer, acts, act="RESOLVE")[0] == 403
    status, result = post(operator, acts, act="RESOLVE", reason="fixed")
    assert (status, result["status"], result["actor"]) == (200, "RESOLVED", "ana")
    status, result = post(operator, acts, act="RESOLVE")
    assert (status, result["state"], result["sequence"]) == (409, "RESOLVED", 7)
    assert post(operator, acts, act="RESOLVE", failures=3)[0] == 400
    assert post(operator, acts, act="REOPEN")[0] == 200
    status, result = post(operator, acts, act="MUTE")
    assert (status, result["param"]) == (400, "ends_at")
    status, result = post(operator, acts, act="MUTE", failures=3, period_seconds=60)
    assert (status, result["mute"]["failures"]) == (200, 3)
    for about in (
        {"application": "flights", "fingerprint": TYPO.fingerprint},
        {"task": task.digest},
    ):
        assert post(operator, "notes", text="told the vendor", **about)[0] == 201
    assert post(operator, "notes", text="about nothing")[0] == 400
    history = viewer.get(f"/api/v1/errors/flights/{TYPO.fingerprint}/history").json()["results"]
    assert [each["kind"] for each in history] == [
        "NoteAdded", "ErrorGroupMuted", "ErrorGroupReopened", "ErrorGroupResolved",
    ]  # fmt: skip
    found = viewer.get("/api/v1/errors?status=MUTED&sort=-count").json()["results"]
    assert [each["fingerprint"] for each in found] == [TYPO.fingerprint]


def test_rest_resumes_many_tasks_and_cancels_commands(flights: Story, operator: Client) -> None:
    tasks = [flights.pauses(key).digest for key in ("JFK", "LGA")]
    status, dry = post(operator, "resume", application="flights", dry_run=True)
    assert status == 200 and {each["task"] for each in dry["results"]} == set(tasks)
    assert {each["refused"] for each in dry["results"]} == {""}
    assert queries.open_commands("flights") == ()
    status, done = post(operator, "resume", tasks=tasks, reason="fixed")
    commands = [each["command"] for each in done["results"]]
    assert status == 200 and [each["status"] for each in commands] == ["ISSUED"] * 2
    cancel, act = f"commands/{commands[0]['id']}/cancel", str(uuid4())
    for _ in range(2):
        status, result = post(operator, cancel, reason="too early", id=act)
        assert (status, result["status"]) == (200, "CANCELLED")
        assert result["outcome"] == "cancelled by ana: too early"
    status, result = post(operator, cancel)
    assert (status, result["state"]) == (409, "CANCELLED")


def test_rest_resumes_no_task_if_none_is_chosen(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    none = {"results": [], "left": 0}
    assert post(operator, "resume", tasks=[], application="flights") == (200, none)
    assert queries.open_commands("flights") == ()
    assert post(operator, "resume")[0] == 400
    assert post(operator, "resume", application="fligths")[0] == 404


def test_a_repeated_rest_resume_applies_to_the_same_tasks(flights: Story, operator: Client) -> None:
    for key in ("JFK", "LGA"):
        flights.pauses(key)

    def resume(key: str) -> tuple[int, Any]:
        response = operator.post(
            "/api/v1/resume",
            {"application": "flights"},
            content_type="application/json",
            headers={"Idempotency-Key": key},
        )
        return response.status_code, response.json()

    first = resume("night")
    flights.pauses("EWR")
    assert first[0] == 200 and len(first[1]["results"]) == 2
    assert resume("night") == (200, first[1] | {"left": 1})
    assert len(queries.open_commands("flights")) == 2
    (third,) = resume("morning")[1]["results"]
    assert third["task"] == flights.task("EWR").digest
    assert post(operator, "resume", application="flights") == (200, {"results": [], "left": 0})


def test_rest_reports_how_many_tasks_are_left_to_resume(flights: Story, operator: Client) -> None:
    flights.report(*(TaskPaused(task=f"K{number:03}", position=1) for number in range(503)))
    for left in (3, 0):
        status, result = post(operator, "resume", application="flights")
        assert (status, result["left"]) == (200, left)
    assert len(queries.open_commands("flights")) == 503


def test_an_id_is_for_one_act(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK")
    acts = f"/api/v1/errors/flights/{TYPO.fingerprint}/acts"
    mute = {"act": "MUTE", "failures": 3, "period_seconds": 60}

    def post(path: str, body: dict[str, Any]) -> int:
        return operator.post(
            path, body, content_type="application/json", headers={"Idempotency-Key": "night"}
        ).status_code

    for _ in range(2):
        assert post("/api/v1/notes", {"text": "first", "task": task.digest}) == 201
    assert post("/api/v1/notes", {"text": "second", "task": task.digest}) == 422
    # An idempotency key belongs to one address.
    assert [post(acts, mute), post(acts, mute)] == [200, 200]
    assert post(acts, mute | {"failures": 4}) == 422
    assert group().status is GroupStatus.MUTED
    events = [
        each.event.event.data for each in queries.audit(queries.AuditFilter()).rows if each.event
    ]
    assert [type(each).__name__ for each in events] == ["ErrorGroupMuted", "NoteAdded"]


def test_an_end_without_a_failed_record_has_a_group_with_its_trace(
    flights: Story, viewer: Client
) -> None:
    flights.fails(MODULE)
    url = reverse("error", args=["flights", MODULE.fingerprint])
    page = text(viewer, url)
    assert "Ended 1 run at produce" in page and "Occurrences" not in page
    assert "No module named" in page and "ensure_plausible" in page
    assert "delays, no record failed" in page
    assert "it ended run 1 of delays" in text(viewer, url, tab="record")
    assert "1 run ended" in text(viewer, reverse("errors"))
    rest = viewer.get(f"/api/v1{url}").json()
    assert (rest["count"], rest["ended_runs"]) == (0, 1)

    # It is found by its message, and opened from the timeline.
    assert url in text(viewer, reverse("search"), q="pyarrow")
    timeline = text(viewer, reverse("application", args=["flights"]), tab="timeline")
    [end] = queries.group("flights", MODULE.fingerprint).ends
    assert f'href="{url}?at={end.sequence}"><b>Run failed</b>' in timeline
    assert "ensure_plausible" in text(viewer, f"{url}?at={end.sequence}")
    assert "Ended 1 run" in text(viewer, f"{url}?as_of=@{end.sequence}")


def test_a_group_has_its_failed_records_and_its_ends(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.fails(TYPO)
    page = text(viewer, reverse("error", args=PAGE))
    assert "1 failed record, ended 1 run at process" in page
    assert "Occurrences" in page and 'id="ends"' in page
    assert "Ended runs**: 1" in page


@pytest.mark.parametrize("tab", ["", "trace"])
def test_a_record_above_the_limits_has_the_reason_in_its_place(
    flights: Story, viewer: Client, tab: str
) -> None:
    record: dict[str, object] = {}
    for _ in range(200):
        record = {"a": record}
    flights.pauses("JFK", record=record)
    shown = text(viewer, reverse("error", args=PAGE), tab=tab)
    assert "cannot be shown: its record is nested deeper than 100 levels." in shown
    assert "was not reported" not in shown
    cause = failure("produce", "checks.Full", "the sink is full", "f:full")
    flights.fails(cause, stack="x" * 300_000)
    shown = text(viewer, reverse("error", args=["flights", cause.fingerprint]), tab=tab)
    assert "bytes; at most 262,144 are read." in shown
