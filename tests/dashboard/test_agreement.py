"""Page, REST and store give the same numbers for the same events."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest
from django.test import Client
from django.urls import reverse

from arrester.controlplane import actions, models, queries
from arrester.controlplane.history import rebuild
from arrester.controlplane.queries import conditions
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandKind,
    RecordsHeld,
    ResumeHow,
    TaskPaused,
    TaskResumed,
    ThreadDied,
)
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests import truth
from tests.dashboard.story import NA, TYPO, Story

HTMX = {"HX-Request": "true"}
KEYS = ("JFK", "LGA", "EWR")


def text(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, response.content.decode()[:500]
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def listed(client: Client, url: str) -> list[str]:
    """Return the digests of the tasks that a list of REST contains, in order."""
    return [each["id"] for each in client.get(url).json()["results"]]


def rows(client: Client, url: str) -> list[str]:
    """Return the digests of the tasks that the rows of a page contain, in order."""
    return re.findall(r'<tr id="task-([0-9a-f]{32})"', client.get(url).content.decode())


@pytest.fixture
def older(flights: Story) -> Story:
    """Return the run on the older of two checkpoints; three tasks of each are PAUSED."""
    newer = Story(checkpoint=str(uuid4()))
    for key in KEYS:
        flights.pauses(key, held=2)
    newer.starts(host="spark-driver-1")
    for key in KEYS:
        newer.pauses(key, held=5)
    return flights


@pytest.mark.parametrize("ended", [False, True])
def test_tasks_of_an_older_checkpoint_are_counted_nowhere(
    ended: bool, older: Story, operator: Client
) -> None:
    # The end of the older run is the newest event; it makes its checkpoint no newer.
    if ended:
        older.stops()
    stored = {each.digest.hex for each in models.Task.objects.all()}
    old = {older.task(key).digest for key in KEYS}
    live = stored - old
    assert len(stored) == 6 and len(live) == 3

    assert set(rows(operator, f"{reverse('tasks')}?state=PAUSED")) == live
    assert set(listed(operator, "/api/v1/tasks?status=PAUSED")) == live
    assert set(listed(operator, "/api/v1/held")) == live
    summary = operator.get("/api/v1/applications/flights").json()
    assert (summary["paused"], summary["held"]) == (3, 15)
    assert [queries.application("flights").paused, queries.held_in_all()] == [3, (15, 3)]
    overview = text(operator, reverse("overview"))
    assert "3 PAUSED tasks" in overview and "15 Held records" in overview
    assert "3 tasks stopped" in text(operator, reverse("errors"))
    cause = reverse("error", args=["flights", TYPO.fingerprint])
    assert "Affected tasks 3 stopped" in text(operator, cause)
    group = queries.group("flights", TYPO.fingerprint)
    assert {each.id.digest for each in group.stopped} == live and group.stopped_total == 3
    end = queries.AsOf(position=queries.log_positions()["flights"])
    then = queries.as_of_state.group("flights", TYPO.fingerprint, end)
    assert (then.stopped, then.stopped_total) == (group.stopped, 3)
    dry = {"application": "flights", "dry_run": True}
    found = operator.post("/api/v1/resume", dry, content_type="application/json").json()
    assert {each["task"] for each in found["results"]} == live and found["left"] == 0
    assert "Resume 3 tasks" in text(
        operator, f"{reverse('resume-many-dialog')}?application=flights"
    )
    # Also if a row of an older checkpoint is selected.
    selected = "&".join(f"task={digest}" for digest in sorted(stored))
    assert "Resume 3 tasks" in text(operator, f"{reverse('resume-many-dialog')}?{selected}")
    runs = operator.get("/api/v1/applications/flights/runs").json()["results"]
    assert [each["checkpoint"] for each in runs] != [older.checkpoint] and len(runs) == 1


def test_tasks_of_an_older_checkpoint_are_reachable_and_marked(
    older: Story, operator: Client
) -> None:
    every = f"{reverse('tasks')}?checkpoints=all"
    assert len(rows(operator, every)) == len(listed(operator, "/api/v1/tasks?checkpoints=all")) == 6
    assert text(operator, every).count("not counted") == 3
    end = f"checkpoints=all&application=flights&as_of=@{queries.log_positions()['flights']}"
    for url in ("/api/v1/tasks?checkpoints=all", f"/api/v1/tasks?{end}"):
        flags = {each["id"]: each["live"] for each in operator.get(url).json()["results"]}
        assert sum(flags.values()) == 3 and not flags[older.task("JFK").digest], url
    for digest, is_live in flags.items():
        assert operator.get(f"/api/v1/tasks/{digest}").json()["live"] is is_live
    runs = operator.get("/api/v1/applications/flights/runs?checkpoints=all").json()["results"]
    assert {each["checkpoint"] == older.checkpoint: each["live"] for each in runs} == {
        True: False,
        False: True,
    }
    affected = reverse("error", args=["flights", TYPO.fingerprint]) + "?tab=tasks"
    page = operator.get(affected).content.decode()
    table = page[page.index("Current state") :].partition("</table>")[0]
    assert table.count("delays_JFK") == 1
    assert "Not shown: 3 tasks of older checkpoints" in text(operator, affected)
    assert text(operator, f"{affected}&checkpoints=all").count("not counted") == 3
    one = text(operator, reverse("task", args=[older.task("JFK").digest]))
    assert "Older checkpoint." in one and "No count contains this task" in one
    live = queries.tasks(queries.TaskFilter(key="JFK")).rows[0].id.digest
    assert "Older checkpoint" not in text(operator, reverse("task", args=[live]))
    assert operator.get(f"{reverse('tasks')}?checkpoints=some").status_code == 400
    assert operator.get("/api/v1/tasks?checkpoints=some").status_code == 400


def test_a_checkpoint_that_is_started_again_is_the_newest(older: Story, operator: Client) -> None:
    older.epoch += 1
    older.starts()
    live = {older.task(key).digest for key in KEYS}
    assert set(rows(operator, reverse("tasks"))) == set(listed(operator, "/api/v1/tasks")) == live
    assert queries.application("flights").held == 6


def test_a_task_without_a_run_is_shown_as_such_and_can_be_dismissed(
    older: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, other = older.task("JFK").digest, older.task("LGA").digest
    older.stops()
    ended = queries.checkpoints(["flights"]).no_run_since
    assert set(ended) == {queries.pipeline_key(older.task(None))}
    for url in ("/api/v1/tasks?checkpoints=all", f"/api/v1/tasks/{gone}"):
        answer = operator.get(url).json()
        since = {each["id"]: each["last_run_ended_at"] for each in answer.get("results", [answer])}
        assert datetime.fromisoformat(since[gone] or "") in ended.values()
        assert list(since.values()).count(None) == (3 if len(since) > 1 else 0)
    assert text(operator, f"{reverse('tasks')}?checkpoints=all").count("No run since") == 3
    own = text(operator, reverse("task", args=[gone]))
    assert "No run since" in own and "Dismiss task…" in own
    asked = "&".join(f"task={each.digest.hex}" for each in models.Task.objects.all())
    dialog = text(operator, f"{reverse('dismiss-many-dialog')}?{asked}")
    assert "Dismiss 3 tasks" in dialog and "6 records are held" in dialog
    assert "3 other selected tasks cannot be dismissed" in dialog
    none = {"id": str(uuid4()), "task": gone, "reason": " "}
    assert operator.post(reverse("dismiss-many"), none).status_code == 400

    def command(kind: str, task: str, **more: str) -> tuple[int, str]:
        body = {"kind": kind, "task": task, "reason": "moved"} | more
        response = operator.post("/api/v1/commands", body, content_type="application/json")
        return response.status_code, response.json().get("detail", "")

    newest = queries.tasks(queries.TaskFilter(key="JFK")).rows[0].id
    assert command("RESUME_TASK", gone) == (
        409,
        f"delays_JFK is of an older checkpoint; the newest run of delays uses {newest.checkpoint}",
    )
    status, why = command("DISMISS_TASK", newest.digest)
    assert status == 409 and "instance spark-driver-1 runs delays" in why
    assert command("DISMISS_TASK", gone, reason=" ")[0] == 400
    both = {"tasks": [newest.digest, gone], "reason": "moved"}
    results = operator.post("/api/v1/dismiss", both, content_type="application/json").json()[
        "results"
    ]
    assert [each["command"] is None for each in results] == [True, False]
    assert "instance spark-driver-1 runs delays" in results[0]["refused"]
    before = queries.application("flights")
    assert listed(operator, "/api/v1/tasks?checkpoints=all&status=DISMISSED") == [gone]
    assert rows(operator, f"{reverse('tasks')}?checkpoints=all&state=DISMISSED") == [gone]
    page = text(operator, reverse("task", args=[gone]))
    assert "DISMISSED" in page and "by ana: moved" in page and "Dismiss task…" not in page
    audit = operator.get("/api/v1/audit").json()["results"]
    what = next(each["what"] for each in audit if each["kind"] == "CommandIssued")
    assert what == "dismiss task: moved"
    # The checkpoint is started again, and its tasks are counted: all but the dismissed one.
    older.epoch, older.instance = 2, uuid4()
    older.starts()
    assert queries.application("flights").paused == before.paused - 1 == 2
    assert set(listed(operator, "/api/v1/held")) == {other, older.task("EWR").digest}
    assert queries.application("flights").held == 4
    assert "2 tasks stopped" in text(operator, reverse("errors"))
    assert "no run since" not in text(operator, reverse("overview"))
    older.report(ThreadDied(reason="renamed"))
    assert "no run since" in text(operator, reverse("overview"))
    cells = operator.get(reverse("application", args=["flights"])).content.decode()
    assert f"cell-{gone}" not in cells and f"cell-{other}" in cells
    end = queries.AsOf(position=queries.log_positions()["flights"])
    assert queries.as_of_state.application("flights", end).paused == 2
    assert rebuild.differences("flights") == []
    older.epoch += 1
    older.starts()
    older.pauses("JFK", held=7)
    assert queries.application("flights").paused == 3
    assert rebuild.differences("flights") == []
    # The short form of `make truth`.
    older.skips("BOS", 4)
    older.command(older.task(key=KEYS[1]))
    Story(application="empty").starts()
    different, compared = truth.differences(operator)
    assert different == [] and compared > 100
    monkeypatch.setattr(queries, "held_in_all", lambda _: (1, 3))
    different, _ = truth.differences(operator)
    assert [line.partition(":")[0] for line in different] == [
        "held records of empty",
        "tasks with held records of empty",
        "held records of flights",
        "held records of all applications",
    ]


def test_no_button_resumes_nothing(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK")
    places = (
        reverse("application", args=["flights"]),
        reverse("error", args=["flights", TYPO.fingerprint]),
    )

    def button(url: str) -> str:
        found = re.search(r'<button[^>]*id="resume-many"[^>]*>', operator.get(url).content.decode())
        assert found is not None
        return found[0]

    assert not any("disabled" in button(url) for url in places)
    actions.resume_task(task.digest, actor="ana")
    for url in places:
        assert "disabled" in button(url) and "open command" in button(url)
    dialog = operator.get(f"{reverse('resume-many-dialog')}?application=flights").content.decode()
    assert "No tasks to resume" in dialog and "disabled>Resume tasks" in dialog


@pytest.mark.parametrize(
    ("asked", "words", "number"),
    [
        ("", "last hour", 12),
        ("range=15m", "last 15 min", 5),
        ("range=6h", "last 6 h", 42),
        ("from=2020-01-01T00:00", "from 2020-01-01 00:00", 42),
    ],
)
def test_tile_and_chart_of_the_overview_count_the_same_window(
    asked: str, words: str, number: int, flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 5)
    flights.skips("EWR", 7, ago=timedelta(minutes=40))
    flights.skips("EWR", 30, ago=timedelta(hours=3))
    # The clock of this agent is ahead, and its events are in no column yet.
    flights.skips("EWR", 100, ago=timedelta(days=-30))
    response = operator.get(f"{reverse('overview')}?{asked}")
    (tile,) = [each for each in response.context["tiles"] if "Failures" in each.label]
    chart = response.context["rate"].chart
    assert (tile.label, tile.number) == (f"Failures, {words}", number) and chart.total == number
    assert sum(sum(column.values) for column in chart.columns) == number
    stored = models.MinuteTotal.objects.filter(
        minute__gte=chart.span.start, minute__lt=chart.span.end
    )
    assert sum(stored.values_list("count", flat=True)) == number
    assert operator.get(tile.url).status_code == 200


def test_page_and_rest_list_the_same_error_groups_by_default(
    flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 5)
    flights.pauses("JFK")
    resolve = GroupRequest(
        id=uuid4(), act=GroupAct.RESOLVE, fingerprint=NA.fingerprint, actor="ana"
    )
    actions.act_on_group("flights", resolve)
    end = f"as_of=@{queries.log_positions()['flights']}&application=flights"
    for state, marks in (
        ("", [TYPO]),
        ("state=RESOLVED", [NA]),
        ("state=all", [TYPO, NA]),
    ):
        wanted = {each.fingerprint for each in marks}
        page = operator.get(f"{reverse('errors')}?{state}").content.decode()
        rest = state.replace("state=", "status=")
        assert set(re.findall(r'<tr id="group-flights-([^"]*)"', page)) == wanted
        for url in (f"/api/v1/errors?{rest}", f"/api/v1/errors?{rest}&{end}"):
            found = operator.get(url).json()["results"]
            assert {each["fingerprint"] for each in found} == wanted, url


def test_failed_records_and_failed_attempts_are_named(flights: Story, operator: Client) -> None:
    retried = msgspec.structs.replace(TYPO, attempts=4)
    task = flights.pauses("JFK", cause=retried)
    state = queries.task(task.digest).state
    assert (state.failed, state.counters.record_failures) == (1, 4)
    page = text(operator, reverse("task", args=[task.digest]))
    assert "Failed records each once 1" in page
    assert "Failed attempts record-failures 4" in page
    rest = operator.get(f"/api/v1/tasks/{task.digest}").json()
    assert (rest["failed"], rest["counters"]["record_failures"]) == (1, 4)


def test_each_status_names_its_thing(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.skips("EWR", 2)
    own = reverse("application", args=["flights"])
    page = text(operator, own)
    for words in ("Application OPEN", "Run RUNNING", "1 task PAUSED", "1 task RUNNING"):
        assert words in page
    flights.stops()
    page = text(operator, own)
    for words in ("Application OPEN", "Run STOPPED", "1 task PAUSED 1 task without a run"):
        assert words in page, page
    assert "1 task without a run No live instance" in page
    assert "EWR NO RUN" in page
    assert "task RUNNING" not in page
    assert operator.get("/api/v1/tasks?status=RUNNING").json()["results"] == []
    waiting = operator.get("/api/v1/tasks?status=NO_RUN").json()["results"]
    assert [each["key"] for each in waiting] == ["EWR"]
    rest = operator.get("/api/v1/applications/flights").json()
    assert (rest["running"], rest["no_run"], rest["paused"]) == (0, 1, 1)
    assert html.unescape(text(operator, reverse("applications"))).count("Application state") == 1


def test_a_retry_that_fails_again_does_not_restart_the_age(
    flights: Story, operator: Client
) -> None:
    first, later = timedelta(hours=3), timedelta(hours=1)
    task = flights.pauses("JFK", ago=first)
    other = flights.pauses("LGA", ago=later)
    flights.report(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ana"))
    assert queries.task(task.digest).state.first_stopped is None
    flights.pauses("JFK")
    state = queries.task(task.digest).state
    now = datetime.now(UTC)
    assert state.first_stopped is not None and state.since is not None and state.retried
    assert abs(now - first - state.first_stopped) < timedelta(minutes=1)
    assert now - state.since < timedelta(minutes=1)
    # Store, page and REST: the one that stopped first is the oldest.
    order = [other.digest, task.digest]
    assert [each.digest.hex for each in models.Task.objects.order_by("-since")] == order
    assert rows(operator, f"{reverse('tasks')}?state=PAUSED") == order[::-1]
    assert listed(operator, "/api/v1/tasks?status=PAUSED") == order
    end = queries.log_positions()["flights"]
    assert listed(operator, f"/api/v1/tasks?application=flights&as_of=@{end}") == order
    assert [each.id for each in queries.paused("flights").tasks] == [task, other]
    [stopped] = conditions.needing_attention(now=now)
    assert (stopped.since, stopped.count) == (models.Task.objects.earliest("since").since, 2)
    rest = operator.get(f"/api/v1/tasks/{task.digest}").json()
    assert datetime.fromisoformat(rest["first_stopped_at"]) == state.first_stopped
    assert datetime.fromisoformat(rest["status_changed_at"]) == state.since
    page = text(operator, reverse("task", args=[task.digest]))
    assert "First PAUSED since" in page and "2nd attempt failed" in page
    assert "2nd attempt" in text(operator, reverse("tasks"))
    assert "attempt failed" not in text(operator, reverse("task", args=[other.digest]))
    assert rebuild.differences("flights") == []


def test_a_command_reports_whether_its_task_stopped_again(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=3)

    def applies(kind: CommandKind, *held: RecordsHeld, how: ResumeHow) -> str:
        command = actions.command_task(kind, task.digest, actor="ana", reason="repaired").id
        flights.report(
            *held,
            TaskResumed(task="JFK", how=how, actor="ana"),
            CommandApplied(command=command),
            caused_by=command,
        )
        return str(command)

    def verdict(command: str) -> tuple[str, int | None, int | None]:
        found = operator.get(f"/api/v1/commands/{command}").json()["verdict"]
        rows = operator.get("/api/v1/commands").json()["results"]
        assert [each["verdict"] for each in rows if each["id"] == command] == [found]
        stop = found["stop"] or {}
        return found["outcome"], stop.get("position"), stop.get("stops")

    retries = []
    for _ in range(2):
        retries.append(applies(CommandKind.RESUME_TASK, how=ResumeHow.RETRY))
        assert verdict(retries[-1]) == ("NO_STOP", None, None)
        assert "no stop since; 3 held records left" in text(
            operator, reverse("command", args=[retries[-1]])
        )
        flights.pauses("JFK", held=3)
    assert [verdict(each) for each in retries] == [
        ("FAILED_AGAIN", 151_974, None),
        ("FAILED_AGAIN", 151_974, 3),
    ]
    again = "failed again at position 151,974 (3rd attempt)"
    url = reverse("task", args=[task.digest])
    assert again in text(operator, url)
    assert b'id="skip" class="primary"' in operator.get(url).content
    assert again in text(operator, reverse("command", args=[retries[1]]))
    assert "failed again at position 151,974 , " in text(
        operator, reverse("command", args=[retries[0]])
    )

    fewer = RecordsHeld(task="JFK", held=2)
    skip = applies(CommandKind.SKIP_RECORD, fewer, how=ResumeHow.SKIP)
    flights.report(RecordsHeld(task="JFK", held=0))
    assert verdict(skip) == ("NO_STOP", None, None)
    page = text(operator, reverse("task", args=[task.digest]))
    assert "APPLIED : no stop since" in page and "held records left" not in page
    flights.report(TaskPaused(task="JFK", position=151_980, failure=TYPO))
    assert verdict(skip) == ("STOPPED_LATER", 151_980, 1)
    assert "stopped again later at position 151,980" in text(
        operator, reverse("task", args=[task.digest])
    )
    assert rebuild.differences("flights") == []


def test_another_record_or_a_finished_retry_starts_a_new_pause(flights: Story) -> None:
    ago = timedelta(hours=2)
    task = flights.pauses("JFK", ago=ago)
    flights.resumes("JFK", flights.command(task))
    flights.pauses("JFK")
    assert not queries.task(task.digest).state.retried
    flights.report(TaskResumed(task="JFK", how=ResumeHow.SKIP, actor="ana"))
    flights.report(TaskPaused(task="JFK", position=151_974, failure=TYPO))
    assert not queries.task(task.digest).state.retried
    flights.report(TaskResumed(task="JFK", how=ResumeHow.RETRY, actor="ana"))
    flights.report(TaskPaused(task="JFK", position=151_975, failure=TYPO))
    assert not queries.task(task.digest).state.retried


def test_tasks_by_urgency_are_paged_whole_and_in_order(flights: Story) -> None:
    flights.pauses("JFK", ago=timedelta(minutes=3))
    flights.pauses("LGA", ago=timedelta(minutes=12))
    flights.dies_alone("EWR")
    for key in ("BOS", "ORD"):
        flights.skips(key, 2)
    for limit in (1, 2, 3, 500):
        found: list[str | None] = []
        cursor = None
        while True:
            page = queries.tasks(
                queries.TaskFilter(), sort=queries.URGENCY, cursor=cursor, limit=limit
            )
            found += [each.id.key for each in page.rows]
            cursor = page.next
            if cursor is None:
                break
        assert found[:3] == ["EWR", "LGA", "JFK"]
        assert sorted(found[3:], key=str) == ["BOS", "ORD"]
    with pytest.raises(InvalidValue, match="cursor"):
        other = queries.tasks(queries.TaskFilter(), sort="-held", limit=1).next
        queries.tasks(queries.TaskFilter(), sort=queries.URGENCY, cursor=other)
