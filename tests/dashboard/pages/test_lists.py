"""Dead letters, held records, audit, instances, settings, cancelled commands, test errors."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
import pytest
from django.conf import LazySettings, settings
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse
from django.utils.html import escape
from redis import Redis

from arrester.controlplane import actions, models, queries, tasks
from arrester.controlplane.access.login_attempts import LoginAct
from arrester.controlplane.access.roles import Role
from arrester.controlplane.actions.access.accounts import AccountAct
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.redis import redis_client
from arrester.dashboard.templatetags.events import change_words
from arrester.domain.errors import CommandForbidden
from arrester.domain.events import (
    Body,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    ResumeHow,
    TaskResumed,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from arrester.domain.state.states import CommandStatus
from arrester.domain.wire import codec, dead_letter_columns
from tests.dashboard.accounts import logged_in, make_superuser, make_user, token
from tests.dashboard.story import NA, TYPO, Story

HTMX = {"HX-Request": "true"}
PAGES = ["dead-letters", "held", "audit", "instances", "settings"]


@pytest.fixture
def admin(db: None) -> Client:
    """Return the client of an admin."""
    return logged_in(make_user("ada", "admin"))


def text(client: Client, url: str, *, status: int = 200) -> str:
    response = client.get(url)
    assert response.status_code == status, response.content.decode()[:500]
    return response.content.decode()


def press(client: Client, url: str, **form: object) -> tuple[int, str]:
    response = client.post(url, {"id": str(uuid4())} | form, headers=HTMX)
    return response.status_code, response.content.decode()


def test_each_page_is_served_for_every_role_with_an_empty_state(
    operator: Client, viewer: Client, admin: Client, client: Client, redis: Redis
) -> None:
    for name in PAGES:
        for who in (operator, viewer, admin):
            assert 'class="empty"' in text(who, reverse(name)) or name == "settings"
        assert client.get(reverse(name)).status_code == 302


def test_dead_letters_show_stored_records_or_the_destination(
    flights: Story, viewer: Client
) -> None:
    flights.skips("EWR", 12)
    page = text(viewer, reverse("dead-letters"))
    assert "delays_EWR" in page and ">flights <" in page and "a handler" in page
    # The message is that of one record; the others were counted only.
    assert page.count(escape(NA.message)) == 1 and page.count("counted only") == 11
    rows = queries.dead_letters(queries.DeadLetterFilter()).rows
    assert [row.position for row in rows] == [*range(900_011, 899_999, -1)]
    event = text(viewer, reverse("dead-letter-event", args=["flights", rows[0].sequence]))
    assert "Record at 900,000" in event and "11 more records are only at the destination" in event
    assert all(row.id in event for row in rows)
    one = text(viewer, reverse("dead-letter", args=["flights", rows[-1].id]))
    assert "UA1545" in one and "2013,1,1,NA,630,NA" in one and "/data/dlq/flights" in one
    one = text(viewer, reverse("dead-letter", args=["flights", rows[0].id]))
    assert "Record not on the server" in one and NA.exception_class in one
    assert escape(NA.message) not in one
    text(viewer, reverse("dead-letter", args=["flights", "0" * 32]), status=404)
    flights.report(
        RecordsDeadLettered(
            task="LGA",
            count=3,
            place="s3://dlq",
            format="delta",
            first_position=1,
            last_position=3,
            actor="ana",
            reason="a typo",
            records=dead_letter_columns.pack(
                fingerprints=[], causes=[0] * 3, sizes=[8] * 3, positions=[1, 2, 3]
            ),
        )
    )
    newest = queries.dead_letters(queries.DeadLetterFilter()).rows[0]
    for name, key in (("dead-letter", newest.id), ("dead-letter-event", newest.sequence)):
        assert "skipped by ana: “a typo”" in text(viewer, reverse(name, args=["flights", key]))
    text(viewer, reverse("dead-letter-event", args=["flights", 1]), status=404)
    for asked, count in [
        ("application=flights&pipeline=delays", 15),
        (f"task={flights.task('EWR').digest}", 12),
        ("range=15m", 15),
        (f"stage={NA.stage}&class={NA.exception_class}", 12),
        (f"cause={NA.fingerprint}", 12),
        ("to=2020-01-01T00:00", 0),
        ("application=orders", 0),
    ]:
        page = text(viewer, f"{reverse('dead-letters')}?{asked}")
        assert page.count('id="letter-') == count, asked
    assert "15 dead letters" in text(viewer, reverse("dead-letters"))
    causes = text(viewer, f"{reverse('dead-letters')}?view=causes")
    assert "No known cause" in causes and "<b>12</b>" in causes and "<b>3</b>" in causes
    tasks = text(viewer, f"{reverse('dead-letters')}?view=tasks")
    assert tasks.index("delays_EWR") < tasks.index("delays_LGA")
    text(viewer, f"{reverse('dead-letters')}?view=nothing", status=400)
    text(viewer, f"{reverse('dead-letters')}?class=Error", status=400)


def test_the_record_of_a_dead_letter_is_read_from_its_file(
    flights: Story, viewer: Client, tmp_path: Path, settings: LazySettings
) -> None:
    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT, dead_letter_roots=[str(tmp_path)]
    )
    flights.report(
        RecordsDeadLettered(
            task="LGA",
            count=1,
            place=f"{tmp_path}/1",
            format="json",
            first_position=1,
            last_position=1,
            records=dead_letter_columns.pack(fingerprints=[], causes=[0], sizes=[8], positions=[1]),
        )
    )
    (row,) = queries.dead_letters(queries.DeadLetterFilter()).rows
    record = {"flight": "B6 1301", "password": "x"}
    written = {"id": row.id, "application": "flights", "row": json.dumps(record)}
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "_SUCCESS").touch()
    (tmp_path / "1" / "part-0.json").write_text(json.dumps(written))

    one = reverse("dead-letter", args=["flights", row.id])
    rest = reverse("api-dead-letter-record", args=["flights", row.id])
    assert "The record is read from its file" in text(viewer, one)
    assert viewer.get(rest).status_code == 202
    tasks.read_dead_letter("flights", row.id)
    page = text(viewer, one)
    assert "B6 1301" in page and "redacted on the server" in page
    assert "B6 1301" in text(viewer, f"{one}/record")
    found = viewer.get(rest).json()
    assert (found["state"], found["record"]) == ("READY", {"flight": "B6 1301"})
    assert found["redacted"] == ["password"]


def test_names_in_lists_of_dead_letters_are_whole(flights: Story, viewer: Client) -> None:
    key = "a-long-key-" * 30
    flights.skips(key, 1)
    (row,) = queries.dead_letters(queries.DeadLetterFilter()).rows
    one = reverse("dead-letter", args=["flights", row.id])
    event = reverse("dead-letter-event", args=["flights", row.sequence])
    for url in (reverse("dead-letters"), one, event):
        assert f"delays_{key}</" in text(viewer, url)


def test_the_search_finds_each_kind_by_a_part_of_its_name(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK", held=5)
    older = Story(checkpoint="0dd0dd0d-1111-4c1e-9a2b-61b0f4ad0c11")
    older.pauses("JFK-of-an-older-checkpoint")
    flights.epoch += 1
    flights.starts()
    application, url = reverse("application", args=["flights"]), reverse("search")
    group = reverse("error", args=["flights", TYPO.fingerprint])
    one = reverse("task", args=[task.digest])
    pipeline = f"{application}?tab=tasks&amp;pipeline=delays"
    for asked, links in [
        ("LIGHT", {application}),
        ("delays", {pipeline, one}),
        ("ys_jfk", {one}),
        ("Implausible", {group}),
        ("a very long day", {group}),
        ("100%", set()),
        ("older", set()),
    ]:
        found = viewer.get(url, {"q": asked}, headers=HTMX).content.decode()
        names, _, _ = found.partition("<h2>Failed records")
        assert set(re.findall(r'class="what break" href="([^"]+)"', names)) == links, asked
        assert ("No name contains" in found) == (not links and "Failed records" not in found)
        assert found in text(viewer, f"{url}?{urlencode({'q': asked})}")
    assert "Enter a part of a name" in text(viewer, url)
    text(viewer, f"{url}?q={'a' * 501}", status=400)


def test_tasks_are_sorted_by_held_and_failed_records(flights: Story, viewer: Client) -> None:
    for key, held, failed in (("A", 5, 9), ("B", 700, 3), ("C", 60, 20)):
        flights.pauses(key, held=held)
        flights.skips(key, failed)
    names = {flights.task(key).digest: key for key in "ABC"}
    for sort, order in (("-held", "BCA"), ("held", "ACB"), ("-failed", "CAB"), ("failed", "BAC")):
        page = text(viewer, f"{reverse('tasks')}?sort={sort}")
        assert "".join(names[each] for each in re.findall(r'id="task-(\w+)"', page)) == order
        listed, after = "", ""
        while len(listed) < len(order):
            rows = viewer.get(f"/api/v1/tasks?limit=1&sort={sort}{after}").json()
            listed += rows["results"][0]["key"]
            after = f"&cursor={rows['next']}"
        assert (listed, rows["next"]) == (order, None)
    cursor = queries.tasks(queries.TaskFilter(), sort="held", limit=1).next
    text(viewer, f"{reverse('tasks')}?sort=failed&after={cursor}", status=400)
    assert "-since, since, -held" in text(viewer, f"{reverse('tasks')}?sort=key", status=400)
    assert viewer.get("/api/v1/tasks?as_of=@5&sort=held").status_code == 400


def test_held_records_are_counted_and_linked_to_the_first(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=5)
    flights.pauses("LGA", held=700, ago=timedelta(hours=2))
    flights.skips("EWR", 3)
    page = text(viewer, reverse("held"))
    assert "705 records" in page and "in order by 2 tasks" in page
    assert page.index("delays_LGA") < page.index("delays_JFK") and "delays_EWR" not in page
    assert "151,974" in page and "tab=record" in page
    assert [each.held for each in queries.held(limit=1).rows] == [700]


def test_the_audit_has_each_act_of_a_person_once(
    flights: Story, operator: Client, admin: Client, viewer: Client
) -> None:
    task = flights.pauses("JFK")
    command = actions.resume_task(task.digest, actor="ana", reason="fixed").id
    flights.resumes("JFK", command)
    requested = GroupRequest(
        id=uuid4(), act=GroupAct.RESOLVE, fingerprint=TYPO.fingerprint, actor="ben", reason="gone"
    )
    actions.act_on_group("flights", requested)
    actions.note_on_task(task, actor="ben", text="the vendor is informed")
    actions.create_account("eve", Role.VIEWER, actor="ada")
    acts = queries.audit(queries.AuditFilter()).rows
    rows = [
        (act.actor, act.entry.act if act.entry else act.event.event.type if act.event else "")
        for act in acts
    ]
    assert rows == [
        ("ada", "CREATED"),
        ("ben", "NoteAdded"),
        ("ben", "ErrorGroupResolved"),
        ("ana", "CommandIssued"),
    ]
    page = text(viewer, reverse("audit"))
    assert "Account created" in page and "resume task: fixed" in page and "delays_JFK" in page
    for asked, count in [
        ("actor=ben", 2),
        ("kind=commands", 1),
        ("kind=accounts", 1),
        ("application=flights", 3),
        ("range=15m", 4),
        ("to=2020-01-01T00:00", 0),
    ]:
        assert text(viewer, f"{reverse('audit')}?{asked}").count('id="act-') == count, asked
    assert viewer.get(f"{reverse('audit')}?kind=secrets").status_code == 400
    cursor: str | None = None
    seen: list[queries.Act] = []
    while True:
        some = queries.audit(queries.AuditFilter(), cursor=cursor, limit=1)
        seen += some.rows
        if some.next is None:
            break
        cursor = some.next
    assert tuple(seen) == acts


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (AccountAct.CREATED, "Account created"),
        (AccountAct.ROLE_CHANGED, "Role changed"),
        (AccountAct.TOKEN_REVOKED, "Token revoked"),
        (LoginAct.UNLOCKED, "Unlocked"),
    ],
)
def test_the_audit_names_what_an_act_changed(act: str, words: str) -> None:
    assert change_words(act) == words


def test_the_audit_shows_the_status_of_each_command(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 3)
    running, paused = flights.task("EWR"), flights.pauses("JFK")
    with pytest.raises(CommandForbidden):
        actions.resume_task(running.digest, actor="ana")
    command = actions.resume_task(paused.digest, actor="ana").id
    actions.note_on_task(paused, actor="ana", text="the vendor is informed")

    def statuses() -> list[str | None]:
        return [each["status"] for each in operator.get("/api/v1/audit").json()["results"]]

    assert statuses() == [None, "ISSUED", "REFUSED"]
    flights.resumes("JFK", command)
    assert statuses() == [None, "APPLIED", "REFUSED"]
    page = text(operator, reverse("audit"))
    assert page.index("APPLIED") < page.index("REFUSED")


def test_an_action_at_a_driver_is_shown_as_its_report(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.report(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ana"))
    assert "reported by its driver" in text(operator, reverse("audit"))
    (act,) = operator.get("/api/v1/audit").json()["results"]
    assert (act["actor"], act["instance"]) == ("ana", str(flights.instance))


def test_account_changes_are_append_only(db: None) -> None:
    actions.create_account("eve", Role.VIEWER, actor="ada")
    with pytest.raises(DatabaseError), transaction.atomic():
        models.AuditEntry.objects.all().delete()


def test_instances_show_clock_spool_counted_only_failures_and_long_work(
    flights: Story, viewer: Client
) -> None:
    now = datetime.now(UTC)
    beat = codec.Heartbeat(
        at=now + timedelta(seconds=42),
        status="RUNNING",
        spooled=1200,
        spool_bytes=4096,
        spool_since=now - timedelta(minutes=9),
        counted_only=77,
        # By its own clock.
        in_progress=(
            codec.InProgress(
                pipeline="delays",
                input="batch 7",
                phase="write",
                since=now + timedelta(seconds=42, minutes=-12),
            ),
            codec.InProgress(pipeline="arrivals", input="held records", since=now),
        ),
    )
    key = redis_keys.heartbeat("flights", flights.instance)
    redis_client.client().set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)
    page = text(viewer, reverse("instances"))
    assert "spark-driver-0" in page and "spark 4.3.0" in page
    assert 'href="http://spark-driver-0:4040"' in page
    assert "42 s ahead" in page or "41 s ahead" in page
    assert "1,200 events" in page and "9 min ago" in page and "77" in page
    assert "delays: batch 7, write, in progress since" in page and "12 min ago" in page
    assert "arrivals" not in page
    (row,) = viewer.get("/api/v1/instances").json()["results"]
    assert [(each["pipeline"], each["phase"]) for each in row["in_progress"]] == [
        ("delays", "write"),
        ("arrivals", None),
    ]
    seconds = queries.metrics().in_progress_seconds
    assert 700 <= seconds["flights", "delays"] <= 800
    assert seconds["flights", "arrivals"] <= 60
    operator = logged_in(make_user("ana", "operator"))
    paused = text(operator, reverse("task", args=[flights.pauses("JFK").digest]))
    assert "In progress: batch 7 of delays, write, since" in paused and "arrivals" not in paused
    assert "the command waits for its end" in paused
    flights.stops()
    assert 'class="empty"' in text(viewer, reverse("instances"))
    assert "spark-driver-0" in text(viewer, f"{reverse('instances')}?show=ended")
    (row,) = viewer.get("/api/v1/instances?ended=1").json()["results"]
    assert (row["host"], row["status"]) == ("spark-driver-0", "NOT_RUNNING")


def test_only_an_admin_creates_accounts(admin: Client, operator: Client, viewer: Client) -> None:
    create = reverse("create-account")
    assert press(operator, create, name="eve", role="admin")[0] == 403
    assert press(viewer, create, name="eve", role="admin")[0] == 403
    assert "Requires the role admin" in text(operator, reverse("settings"))
    status, page = press(admin, create, name="eve", role="operator")
    assert status == 200 and "Password of eve" in page
    password = page.partition('<pre id="password" tabindex="0">')[2].partition("</pre>")[0]
    eve = Client()
    assert eve.login(username="eve", password=password)
    assert "Send test error" in text(eve, reverse("settings"))
    assert "no other account has" in press(admin, create, name="eve", role="viewer")[1]
    assert "is not allowed" in press(admin, create, name="a b", role="viewer")[1]
    assert press(admin, create, name="kim", role="king")[0] == 400


def test_an_admin_changes_other_accounts_only(admin: Client, operator: Client) -> None:
    def change(verb: str, name: str, **form: object) -> tuple[int, str]:
        return press(admin, reverse("change-account", args=[verb]), name=name, **form)

    assert change("role", "ana", role="viewer")[0] == 200
    assert set(User.objects.get(username="ana").groups.values_list("name", flat=True)) == {"viewer"}
    assert press(operator, reverse("test-error"))[0] == 403
    assert change("deactivate", "ana")[0] == 200
    assert operator.get(reverse("overview")).status_code == 302
    assert change("activate", "ana")[0] == 200
    assert "Password of ana" in change("password", "ana")[1]
    assert "the account of another admin" in change("deactivate", "ada")[1]
    assert "the account of another admin" in change("role", "ada", role="viewer")[1]
    assert change("deactivate", "nobody")[0] == 404
    assert change("promote", "ana")[0] == 404
    acts = [each.act for each in models.AuditEntry.objects.order_by("id")]
    assert acts == ["ROLE_CHANGED", "DEACTIVATED", "ACTIVATED", "PASSWORD_RESET"]


def test_a_page_with_a_password_does_not_refresh(admin: Client) -> None:
    assert 'id="live" data-live' in text(admin, reverse("settings"))
    page = press(admin, reverse("create-account"), name="eve", role="viewer")[1]
    assert "Password of eve" in page and "data-live" not in page and "data-poll" not in page
    assert (
        'id="live" data-live' in press(admin, reverse("create-account"), name="", role="viewer")[1]
    )


def test_a_credential_of_an_agent_is_shown_once(admin: Client, redis: Redis) -> None:
    assert "No credentials" in text(admin, reverse("settings"))
    page = press(admin, reverse("add-agent"), application="flights")[1]
    assert "arrester-agent-flights:" in page and "data-live" not in page
    shown = text(admin, reverse("settings"))
    assert "arrester-agent-flights:" not in shown
    [credential] = models.AgentCredential.objects.all()
    assert f"Remove credential {credential.id}" in shown
    assert "Delete its events and heartbeats in Redis" in shown
    assert "a-z 0-9" in press(admin, reverse("add-agent"), application="Not a name")[1]
    # Its events are deleted only with the last credential.
    redis.set(redis_keys.events("flights"), "x")
    page = press(admin, reverse("add-agent"), application="flights")[1]
    assert "Delete its events" not in page
    first, last = models.AgentCredential.objects.order_by("id")
    refused = press(admin, reverse("remove-agent", args=[first.id]), delete_keys="1")[1]
    assert "the last credential of the application" in refused
    assert press(admin, reverse("remove-agent", args=[first.id]))[0] == 200
    assert redis.exists(redis_keys.events("flights"))
    assert press(admin, reverse("remove-agent", args=[last.id]), delete_keys="1")[0] == 200
    assert not redis.exists(redis_keys.events("flights"))
    assert press(admin, reverse("remove-agent", args=[last.id]))[0] == 404
    assert "No credentials" in text(admin, reverse("settings"))


@pytest.mark.parametrize("verb", ["password", "deactivate"])
def test_deactivating_an_account_ends_its_tokens(admin: Client, viewer: Client, verb: str) -> None:
    own, other = token("ben"), token("ada")

    def answer(text: str) -> int:
        header = {"Authorization": f"Token {text}"}
        return Client().get("/api/v1/applications", headers=header).status_code

    assert answer(own) == 200
    assert press(admin, reverse("change-account", args=[verb]), name="ben")[0] == 200
    assert press(admin, reverse("change-account", args=["activate"]), name="ben")[0] == 200
    assert answer(own) in (401, 403)
    assert answer(other) == 200


@pytest.mark.usefixtures("fresh_database")
def test_the_role_of_a_superuser_is_not_changed(admin: Client) -> None:
    make_superuser("root")
    url = reverse("change-account", args=["role"])
    assert "an account that is no superuser" in press(admin, url, name="root", role="viewer")[1]
    assert not User.objects.get(username="root").groups.exists()
    assert not models.AuditEntry.objects.exists()
    assert 'aria-label="Role of root"' not in text(admin, reverse("settings"))


def test_dead_letters_are_discarded_one_by_one_or_by_the_filter(
    flights: Story, operator: Client, viewer: Client
) -> None:
    flights.skips("EWR", 5)
    own, asks = reverse("dead-letters"), reverse("discard-dialog")
    page = text(operator, f"{own}?application=flights")
    assert "Discard all of this filter" in page and 'name="record"' in page
    assert "Discard" not in text(viewer, f"{own}?application=flights")
    first, second, *_ = queries.dead_letters(queries.DeadLetterFilter()).rows
    chosen = [f"flights/{each.id}" for each in (first, second)]
    assert "Discard 2 dead letters" in text(
        operator, f"{asks}?{urlencode({'record': chosen}, True)}"
    )

    url, id = reverse("discard"), str(uuid4())
    assert "A reason is required" in press(operator, url, id=id, record=chosen)[1]
    for _ in range(2):
        page = press(operator, url, id=id, record=chosen, reason="duplicates")[1]
        assert "2 dead letters discarded." in page and "discarded</span>" in page
        assert 'class="notice"' in page and "notice bad" not in page
    assert "3 dead letters" in text(operator, f"{own}?status=open")

    dialog = text(operator, f"{asks}?application=flights&stage={NA.stage}&status=open")
    assert "Discard 3 dead letters" in dialog
    until = re.findall(r'name="to" value="([^"]+)"', dialog)[0]
    flights.skips("JFK", 2)
    wanted = {"application": "flights", "stage": NA.stage, "to": until}
    grown = press(operator, url, id=str(uuid4()), reason="old", shown="2", **wanted)[1]
    assert "check the number, and confirm again" in grown
    page = press(operator, url, id=str(uuid4()), reason="old", **wanted)[1]
    # Those that were reported after the dialog was opened are not in its number.
    assert "3 dead letters discarded." in page
    assert queries.count_dead_letters(queries.DeadLetterFilter(status="open")) == 2
    assert press(operator, url, id=str(uuid4()), reason="old", stage=NA.stage)[0] == 400
    one = text(operator, reverse("dead-letter", args=["flights", first.id]))
    assert "by ana: “duplicates”" in one and 'id="discard"' not in one
    task = text(operator, reverse("task-history", args=[flights.task("EWR").digest]))
    assert "Dead letters discarded" in task and "duplicates" in task


def test_a_command_is_cancelled_on_its_page(
    flights: Story, operator: Client, viewer: Client
) -> None:
    command = actions.resume_task(flights.pauses("JFK").digest, actor="ana").id
    url, cancel = reverse("command", args=[command]), reverse("cancel-command", args=[command])
    assert "requires the role operator" in text(viewer, url)
    assert press(viewer, cancel)[0] == 403
    status, page = press(operator, reverse("note-on-command", args=[command]), text="by mistake")
    assert status == 200 and "by mistake" in page
    id = str(uuid4())
    assert [press(operator, cancel, id=id)[0] for _ in range(2)] == [200, 200]
    assert queries.command(command).status is CommandStatus.CANCELLED
    cancelled = text(operator, url)
    assert 'id="cancel"' not in cancelled and cancelled.count("cancelled by ana") == 1
    second = actions.resume_task(flights.task("JFK").digest, actor="ana").id
    flights.fetches(second)
    assert "it is DELIVERED" in text(operator, reverse("command", args=[second]))
    assert press(operator, reverse("cancel-command", args=[second]))[0] == 409


def test_a_test_error_takes_the_path_of_agents(
    operator: Client, viewer: Client, redis: Redis
) -> None:
    assert "Send test error" in text(operator, reverse("overview"))
    assert "Send test error" not in text(viewer, reverse("overview"))
    response = operator.post(reverse("test-error"))
    assert response.headers["Location"] == "/errors?application=test&sent=1"
    assert "Test error sent" in text(operator, response.headers["Location"])
    fold_stream.fold_stream("test")
    assert "TestError" in text(operator, "/errors?application=test&sent=1")
    (group,) = queries.groups().rows
    assert group.message.startswith("This is a test error")
    with redis_away():
        assert operator.post(reverse("test-error")).status_code == 503


@contextmanager
def redis_away() -> Iterator[None]:
    there = settings.REDIS_URL
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    try:
        yield
    finally:
        settings.REDIS_URL = there


def test_rest_has_the_same_lists(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=4)
    flights.skips("EWR", 3)
    actions.note_on_task(flights.task("JFK"), actor="ana", text="hm")
    rows = viewer.get("/api/v1/dead-letters?application=flights").json()["results"]
    assert [row["key"] for row in rows] == ["EWR"] * 3
    assert len({row["id"] for row in rows}) == 3
    (task,) = viewer.get("/api/v1/held").json()["results"]
    assert (task["name"], task["held"]) == ("delays_JFK", 4)
    (act,) = viewer.get("/api/v1/audit?actor=ana").json()["results"]
    assert (act["kind"], act["what"], act["about"]) == ("NoteAdded", "hm", "delays_JFK")
    assert viewer.get("/api/v1/audit?kind=secrets").status_code == 400
    (instance,) = viewer.get("/api/v1/instances").json()["results"]
    assert instance["host"] == "spark-driver-0"
    assert NA.fingerprint in {
        each["fingerprint"] for each in viewer.get("/api/v1/errors").json()["results"]
    }


def test_the_search_finds_failed_records_and_what_became_of_them(
    flights: Story, viewer: Client
) -> None:
    task = flights.pauses("JFK", held=5)
    flights.skips("EWR", 3)
    url = reverse("search")
    [row] = queries.find_records(queries.RecordFilter(q="key:HA51")).rows
    record = reverse("record", args=["flights", row.failure.sequence])
    for asked in ("key:HA51", "ha51", "position:151974", "task:JFK"):
        found = viewer.get(url, {"q": asked}, headers=HTMX).content.decode()
        assert f'href="{record}"' in found
        assert "STOPS TASK" in found
    assert "DEAD LETTER" in text(viewer, f"{url}?q=key:UA1545")
    assert "no failed record matches it" in text(viewer, f"{url}?q=key:XX")
    # No word, but perhaps a part of a name.
    text(viewer, f"{url}?q=—")

    page = text(viewer, record)
    assert "Its task is stopped at this record." in page
    assert reverse("task", args=[task.digest]) in page
    assert "151,974</h1>" in page
    same_key = f"{url}?q=key%3A%22HA51%22"
    assert f'href="{same_key}"' in viewer.get(record).content.decode()
    assert f'href="{record}"' in viewer.get(same_key).content.decode()
    text(viewer, reverse("record", args=["flights", 1]), status=404)


def test_a_key_that_no_request_may_have_has_no_link_to_its_failures(
    flights: Story, viewer: Client
) -> None:
    links = []
    for position, key in enumerate(("HA51", "HA\x0051")):
        flights.report(
            RecordFailed(
                task="JFK",
                position=position,
                failure=TYPO,
                response=FinalResponse.CONTINUE,
                key=key,
            )
        )
        [row] = queries.find_records(queries.RecordFilter(q=f"task:JFK position:{position}")).rows
        group = reverse("error", args=["flights", TYPO.fingerprint])
        for url in (
            reverse("record", args=["flights", row.failure.sequence]),
            f"{group}?tab=record",
        ):
            links.append("All its failures" in text(viewer, url))
    assert links == [True, True, False, False]


def test_a_failed_record_is_shown_with_the_columns_that_its_step_received(
    flights: Story, viewer: Client
) -> None:
    failed = RecordFailed(
        task="JFK", position=7, failure=TYPO, response=FinalResponse.CONTINUE, key="HA51"
    )
    columns = {"minutes": None, "late": "<yes>"}
    flights.report(failed, body=Body(record={"value": "1301"}, columns=columns))
    [row] = queries.find_records(queries.RecordFilter(q="task:JFK position:7")).rows
    place = ["flights", row.failure.sequence]
    for url in (
        reverse("record", args=place),
        f"{reverse('error', args=['flights', TYPO.fingerprint])}?tab=record",
    ):
        page = text(viewer, url)
        assert f"Received by {TYPO.stage}</h3>" in page
        assert "&lt;yes&gt;" in page and "NULL" in page
    assert viewer.get(reverse("api-record", args=place)).json()["columns"] == columns


def test_the_page_of_a_record_has_all_that_happened_to_it(flights: Story, viewer: Client) -> None:
    task = flights.pauses("JFK", held=5)
    command = actions.resume_task(task.digest, actor="ana", reason="mended").id
    flights.resumes("JFK", command)
    flights.pauses("JFK", held=5)
    newest, oldest = queries.find_records(queries.RecordFilter(q="task:JFK")).rows
    history = queries.record_history("flights", oldest.failure.sequence)
    names = [each.event.type for each in history.events]
    assert names == [
        *("TaskPaused", "RecordFailed", "TaskResumed", "CommandIssued", "TaskPaused"),
        "RecordFailed",
    ]
    assert (history.older, history.newer) == (None, newest.failure.sequence)
    assert history.outcome is newest.outcome is queries.RecordOutcome.STOPS_TASK
    page = text(viewer, reverse("record", args=["flights", oldest.failure.sequence]))
    assert page.count('id="event-') == len(names)
    api = viewer.get(reverse("api-record", args=["flights", oldest.failure.sequence])).json()
    assert [each["type"] for each in api["history"]] == names
    assert (api["outcome"], api["newer_sequence"]) == ("STOPS_TASK", newest.failure.sequence)
