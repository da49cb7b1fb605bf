"""Every page: its content, its access, and hostile data."""

from __future__ import annotations

import base64
import html
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.http import StreamingHttpResponse
from django.test import Client, RequestFactory
from django.urls import reverse
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, alerts, models, queries
from arrester.controlplane.alerts import configuration, outbox, reads
from arrester.controlplane.alerts.evaluation import RESOLVE_AFTER
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.queries.conditions.condition import Condition
from arrester.controlplane.web.middleware import Compression
from arrester.dashboard.components import attempt_folds
from arrester.dashboard.components.attempt_folds import AttemptFold
from arrester.dashboard.components.charts.task_grid import DENSE_FROM
from arrester.dashboard.pages import applications
from arrester.domain.errors import CommandForbidden
from arrester.domain.events import (
    CommandApplied,
    Event,
    EventData,
    FinalResponse,
    RecordFailed,
    RecordsHeld,
    ResumeHow,
    StoredEvent,
    TaskPaused,
    TaskResumed,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.identity.uuids import uuid7
from arrester.domain.state.error_groups import GroupAct, GroupRequest
from tests import histories
from tests.controlplane import streams
from tests.controlplane.alerts.receivers import http_receiver
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.overview_tiles import tiles
from tests.dashboard.story import NA, POLICY, TYPO, Story, failure

PAGES = ["overview", "applications", "tasks", "errors", "commands", "quarantine"]
STATIC = Path("dashboard/static/dashboard")
#: No test runs over midnight; an hour may end during a test.
BY_DAY = replace(POLICY, rate_duration="day")
HOSTILE = ["<script>alert(1)</script>", "a/b", "..", "🛫 é", "", "x" * 10_000, "%2F?#", "\0null"]


def text(client: Client, url: str, *, status: int = 200) -> str:
    """Return a page's HTML."""
    response = client.get(url)
    assert response.status_code == status, response.content.decode()[:500]
    return response.content.decode()


def every_url(story: Story, task: str, command: object) -> list[str]:
    return [
        *(reverse(page) for page in PAGES),
        reverse("application", args=[story.application]),
        reverse("task", args=[task]),
        reverse("task-history", args=[task]),
        reverse("error", args=[story.application, TYPO.fingerprint]),
        reverse("command", args=[command]),
    ]


def test_viewer_and_operator_see_every_page(
    flights: Story, operator: Client, viewer: Client
) -> None:
    task = flights.pauses("JFK").digest
    command = actions.resume_task(task, actor="ana").id
    for url in every_url(flights, task, command):
        assert "flights" in text(operator, url)
        assert "flights" in text(viewer, url)


def test_pages_need_a_role(flights: Story, client: Client) -> None:
    without_role = logged_in(make_user("cleo"))
    task = flights.pauses("JFK").digest
    for url in every_url(flights, task, actions.resume_task(task, actor="ana").id):
        assert client.get(url).status_code == 302
        assert without_role.get(url).status_code == 403


def test_a_refresh_without_a_session_sends_the_page_to_the_login(client: Client, db: None) -> None:
    response = client.get(reverse("overview"), headers={"HX-Request": "true"})
    assert response.status_code == 401
    assert response.headers["HX-Redirect"] == reverse("login")


def test_a_refresh_has_only_the_live_part_of_the_page(flights: Story, operator: Client) -> None:
    url = reverse("task", args=[flights.pauses("JFK").digest])
    whole = text(operator, url)
    part = operator.get(url, headers={"HX-Request": "true"}).content.decode()
    assert "<dialog" in whole and "<html" in whole
    assert "<dialog" not in part and "<html" not in part
    assert 'id="live"' in part and 'id="banners"' in part and 'id="position"' in part


def test_an_empty_control_plane_shows_how_to_begin(operator: Client) -> None:
    assert "agent.pipeline(" in text(operator, reverse("overview"))
    assert "agent.pipeline(" in text(operator, reverse("applications"))
    for page in ("tasks", "errors", "commands", "quarantine"):
        assert 'class="empty"' in text(operator, reverse(page))


def test_a_banner_reports_missing_housekeeping(flights: Story, operator: Client) -> None:
    actions.record_running("wake", "worker")
    found = text(operator, reverse("overview"))
    assert "Housekeeping has not run" in found and "arrester-housekeeping" in found
    actions.expect("housekeeper")
    assert "Housekeeping has not run" not in text(operator, reverse("overview"))


def test_nothing_needs_attention_while_all_tasks_run(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 12)
    assert "Nothing needs attention" in text(operator, reverse("overview"))


def test_the_overview_begins_with_items_that_need_attention(
    flights: Story, operator: Client
) -> None:
    flights.pauses("JFK", held=42, ago=timedelta(minutes=3))
    flights.pauses("LGA", cause=NA, ago=timedelta(minutes=9))
    flights.loses_heartbeat()
    flights.send(b"not a batch")
    page = text(operator, reverse("overview"))
    order = [page.index(word) for word in ("LOST", "delays_LGA", "delays_JFK", "QUARANTINED")]
    assert order == sorted(order)
    assert "4 items need attention" in page
    assert "42 held" in page
    assert "flights @ " in page


def test_an_application_with_only_invalid_entries_needs_attention(
    redis: Redis, operator: Client
) -> None:
    Story(application="orders").send(b"not a batch")
    page = text(operator, reverse("overview"))
    assert "1 item needs attention" in page
    assert f"{reverse('quarantine')}?application=orders" in page
    assert [tile.number for tile in tiles() if tile.label == "Quarantined"] == [1]


def test_batches_of_a_driver_with_a_slow_clock_are_reported(redis: Redis, operator: Client) -> None:
    message = "of flights in the last day are older than the replay horizon"
    long_ago = datetime.now(UTC) - timedelta(days=31)
    for events in (histories.started(), histories.paused()):
        streams.send(redis, events, batch=uuid7(long_ago))
    fold_stream.fold_stream("flights")
    # The log has none of its events, and the batch is confirmed to its sender.
    assert queries.log_positions() == {"flights": 0}
    page = text(operator, reverse("tasks"))
    assert f"2 batches {message}" in page and "Check the clocks of the drivers" in page
    assert f"{reverse('quarantine')}?application=flights" in page
    metrics = text(operator, "/metrics")
    assert 'arrester_too_old{application="flights"} 2.0' in metrics
    assert 'arrester_quarantined{application="flights"} 0.0' in metrics
    # A valid batch, or a day, ends the report.
    first, _ = queries.quarantine("flights").rows
    actions.dismiss_one(first.id, actor="ana", reason="it is in the log", id=uuid4())
    assert "1 batch of flights in the last day is older than the replay horizon" in text(
        operator, reverse("tasks")
    )
    models.Quarantine.objects.update(received_at=datetime.now(UTC) - timedelta(hours=25))
    assert "replay horizon" not in text(operator, reverse("tasks"))


def test_a_replaced_lost_instance_needs_no_attention(flights: Story, operator: Client) -> None:
    flights.loses_heartbeat()
    assert "no heartbeat. The last known state is shown" in text(operator, reverse("overview"))
    heir = Story(epoch=2)
    heir.starts(host="spark-driver-1")
    assert "Nothing needs attention" in text(operator, reverse("overview"))
    (living,) = queries.instances("flights")
    (over,) = queries.instances("flights", ended=True)
    assert (living.id, over.id, over.lost) == (heir.instance, flights.instance, True)
    summary = queries.application("flights")
    assert (summary.instances, summary.lost) == (1, 0)
    heir.loses_heartbeat()
    assert queries.application("flights").lost == 1


def test_a_page_reports_no_newer_position_than_it_shows(
    flights: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lags() -> tuple[queries.Lag, ...]:
        found = read()
        flights.skips("EWR", 3)
        return found

    read, before = queries.lags, queries.log_positions()["flights"]
    monkeypatch.setattr(queries, "lags", lags)
    page = text(operator, reverse("applications"))
    assert f'data-position="{before}"' in page and f"flights @ {before}<" in page
    assert queries.log_positions()["flights"] > before


def test_the_list_of_applications_has_pages(
    flights: Story, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "SHOWN", 2)
    for name in ("orders", "rates"):
        Story(application=name, checkpoint=str(uuid4())).starts()
    first = text(operator, reverse("applications"))
    assert 'id="application-orders"' in first and 'id="application-rates"' not in first
    found = re.search(r'href="([^"]*)">More</a>', first)
    assert found is not None
    second = text(operator, reverse("applications") + html.unescape(found[1]))
    assert 'id="application-rates"' in second and 'id="application-orders"' not in second
    assert "First page" in second and 'rel="next"' not in second


def test_counts_link_to_the_counted_rows(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.skips("EWR", 5)
    assert "/tasks?state=PAUSED" in text(operator, reverse("overview"))
    paused = text(operator, reverse("tasks") + "?state=PAUSED")
    assert "delays_JFK" in paused and "delays_EWR" not in paused
    other = text(operator, reverse("tasks") + "?application=orders")
    assert "No matches" in other


def test_each_tile_links_to_exactly_what_it_counts(flights: Story, operator: Client) -> None:
    other = Story(pipeline="arrivals")
    other.starts(host="spark-driver-1")
    flights.loses_heartbeat()
    answered = flights.command(flights.pauses("LGA"))
    flights.resumes("LGA", answered)
    flights.command(flights.pauses("JFK", held=3))
    flights.dies_alone("EWR")
    # A new group that is RESOLVED, and an old one that is not.
    flights.skips("BOS", 5)
    requested = GroupRequest(
        id=uuid4(), act=GroupAct.RESOLVE, fingerprint=NA.fingerprint, actor="ana"
    )
    actions.act_on_group("flights", requested)
    flights.pauses("SEA", cause=failure("produce", "Old", "old"), ago=timedelta(hours=3))
    flights.send(b"garbled")
    actions.dismiss("flights", actor="ana")
    flights.send(b"garbled, too")
    shown = {tile.label: tile for tile in tiles()}
    rows = {
        "DEAD pipelines": ('class="state is-dead"', 0),
        "DEAD tasks": ('id="task-', 1),
        "PAUSED tasks": ('id="task-', 2),
        "Held records": ('id="held-', 3),
        "LOST instances": ('id="instance-', 1),
        "Failures, last hour": ('id="group-', 2),
        "Open commands": ('href="/commands/', 1),
        "Quarantined": ("Raw bytes", 1),
    }
    assert shown.keys() == rows.keys()
    assert shown.pop("DEAD pipelines").number == rows.pop("DEAD pipelines")[1]
    for word, (row, number) in rows.items():
        page = text(operator, shown[word].url)
        assert page.count(row) == number, word
    assert shown["Held records"].number == 5
    assert shown["Failures, last hour"].number == 8
    counted_in_rows = (
        "DEAD tasks",
        "PAUSED tasks",
        "LOST instances",
        "Open commands",
        "Quarantined",
    )
    assert all(shown[word].number == rows[word][1] for word in counted_in_rows)


def test_an_open_command_is_shown_after_many_refused_ones(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK")
    in_progress = flights.command(task)
    for _ in range(11):
        with pytest.raises(CommandForbidden):
            actions.resume_task(task.digest, actor="ana")
    end = queries.log_positions()["flights"]
    for seen in (
        queries.task(task.digest),
        queries.as_of_state.task(task.digest, queries.AsOf(position=end)),
    ):
        assert seen.open_command is not None and seen.open_command.id == in_progress
        assert seen.last_command is not None and seen.last_command.id != in_progress


def test_the_list_of_tasks_has_the_counted_checkpoints(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.stops()
    anew = Story(checkpoint=str(uuid4()))
    anew.starts()
    anew.pauses("LGA")
    assert queries.application("flights").paused == 1
    url = reverse("tasks") + "?state=PAUSED"
    live, every = text(operator, url), text(operator, f"{url}&checkpoints=all")
    assert "delays_LGA" in live and "delays_JFK" not in live
    assert "delays_LGA" in every and "delays_JFK" in every
    for asked, number in (("", 1), ("&checkpoints=live", 1), ("&checkpoints=all", 2)):
        answer = operator.get(f"/api/v1/tasks?status=PAUSED{asked}").json()
        assert len(answer["results"]) == number


def test_the_task_page_shows_the_cause_of_a_pause(flights: Story, operator: Client) -> None:
    page = text(operator, reverse("task", args=[flights.pauses("JFK", held=1843).digest]))
    assert "checks.ImplausibleDelay" in page
    assert "departed 1301 minutes late" in page
    assert "process:validate" in page
    assert "checks.py:23 in ensure_plausible" in page
    assert "151,974" in page and "then processes the other 1,842 held records" in page
    assert "N384HA" in page and "redacted on the driver" in page
    assert '<span class="frame-own">  File &quot;/srv/flights/checks.py&quot;, line 41' in page
    assert '<span class="frame-other">  File &quot;/opt/spark/python/lib/pyspark.zip' in page
    assert "Commands are applied by spark-driver-0, pid 4242, last seen" in page


def test_a_resumed_task_shows_its_last_pause(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK")
    flights.resumes("JFK", flights.command(task))
    page = text(operator, reverse("task", args=[task.digest]))
    assert 'position <span class="mono">151,974</span>' in page


def test_the_timeline_shows_why_a_run_ended(flights: Story, operator: Client) -> None:
    flights.pauses("JFK")
    flights.stops(reason="a newer run owns the checkpoint")
    page = text(operator, reverse("application", args=["flights"]) + "?tab=timeline")
    assert "a newer run owns the checkpoint" in page


def test_a_truncated_record_is_marked(flights: Story, operator: Client) -> None:
    page = text(operator, reverse("task", args=[flights.pauses("JFK", cut_from=70_000).digest]))
    assert "Truncated: the record had 70,000 bytes" in page


def test_a_task_paused_by_an_operator_shows_no_failed_record(
    flights: Story, operator: Client
) -> None:
    flights.report(TaskPaused(task="JFK", position=17))
    page = text(operator, reverse("task", args=[flights.task("JFK").digest]))
    assert "Paused by an operator" in page and "Cause" not in page


def test_a_missing_recipient_is_shown_before_the_click(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    flights.stops()
    page = text(operator, reverse("task", args=[task]))
    assert "No live instance. The command waits 15 min" in page
    assert "<b>No live instance</b>" in page and 'class="not-running"' in page


def test_an_application_without_live_instance_has_no_green_state(
    flights: Story, operator: Client
) -> None:
    own, tab = reverse("application", args=["flights"]), "?tab=policy"
    task = flights.pauses("JFK", held=12).digest
    # A restart retries the record, and ends before its held records are processed.
    flights.epoch = 2
    flights.report(ThreadStarted(), TaskResumed(task="JFK", how=ResumeHow.RESTART))
    pages = [own, own + tab, *(reverse(name) for name in ("applications", "tasks", "held"))]
    pages.append(reverse("task", args=[task]))
    assert all("no live instance" not in text(operator, url).lower() for url in [*pages, "/"])
    flights.stops(reason="stopped")
    for url in pages:
        found = text(operator, url)
        assert "no live instance" in found.lower(), url
        # The history on a task's page has a RUNNING state.
        shown = found[found.index('id="live"') :].partition('id="actions"')[0]
        # Neither OPEN nor RUNNING is green, and no failure is shown.
        assert 'class="state is-running"' not in shown and "word-running" not in shown, url
        assert 'class="state is-dead"' not in shown, url
    assert "STOPPED" in text(operator, own) and "Run ended: stopped" in text(operator, own)
    overview = text(operator, "/")
    assert "12 held records, and no live instance" in overview
    assert reverse("held") + "?application=flights" in overview
    # As of a time when it ran, it is green.
    assert "STOPPED" not in text(operator, f"{own}?as_of=@5")
    flights.report(RecordsHeld(task="JFK", held=0))
    assert "Nothing needs attention" in text(operator, "/")


def test_only_a_failed_run_is_dead(flights: Story, operator: Client) -> None:
    own = reverse("application", args=["flights"])
    flights.report(ThreadDied(reason="it raised", failure=TYPO))
    assert 'class="state is-dead"' in text(operator, own)
    flights.epoch = 2
    flights.report(ThreadStarted(), ThreadDied(reason="the query has come to its end"))
    page = text(operator, own)
    assert 'class="state is-dead"' not in page and "STOPPED" in page
    # The instance is live, and may run others.
    assert "<b>no live instance" not in page.lower()


def test_a_task_without_heartbeat_is_not_green(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 3)
    task = flights.task("EWR").digest
    flights.loses_heartbeat()
    own = reverse("application", args=["flights"])
    for url, end in ((own, 'class="tabs"'), (reverse("task", args=[task]), "</section>")):
        page = text(operator, url)
        shown = page[page.index("<h1") :].partition(end)[0]
        assert "No heartbeat" in shown and 'class="state is-running"' not in shown, url
        assert "no live instance" not in shown.lower()


def test_the_application_page_has_a_cell_per_task(flights: Story, operator: Client) -> None:
    flights.pauses("JFK", held=7)
    flights.skips("EWR", 12)
    page = text(operator, reverse("application", args=["flights"]))
    assert 'class="cell is-paused"' in page and 'class="cell is-running"' in page
    assert "7 held" in page and "12 failed" in page


def test_the_application_has_a_tab_for_each_subject(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=7)
    command = actions.resume_task(task.digest, actor="ana")
    own = reverse("application", args=["flights"])
    for tab, word in (
        ("tasks", 'class="cell is-paused"'),
        ("errors", "ImplausibleDelay"),
        ("timeline", "Task paused"),
        ("commands", str(command.id)),
        ("instances", "spark-driver-0"),
        ("policy", '<b class="break">process:validate</b>'),
        ("nonsense", 'class="cell is-paused"'),
    ):
        assert word in text(operator, f"{own}?tab={tab}")
    assert "Record failed" not in text(operator, f"{own}?tab=timeline")


def test_the_policy_is_as_reported_by_the_run_with_its_gauge(
    flights: Story, operator: Client
) -> None:
    page = text(operator, reverse("application", args=["flights"]) + "?tab=policy")
    assert "0 of 100</b> skipped this hour" in page and "no task has skipped a record" in page
    for expected in (
        "checks.Careful",
        "on_error=",
        "configuration",
        "TimeoutError",
        "3; waits of at most 60 s",
        "parquet, /data/dlq/flights",
        "1,000 per run and 100 per hour, for each task",
        "<dd>SHUTDOWN_CLIENT</dd>",
        "parquet files, atomic",
    ):
        assert expected in page
    flights.skips("EWR", 12)
    flights.skips("JFK", 37)
    page = text(operator, reverse("application", args=["flights"]) + "?tab=policy")
    assert "37 of 1,000</b> skipped in this run" in page and "within the limit" in page
    assert reverse("task", args=[flights.task("JFK").digest]) in page
    assert 'value="0.037"' in page
    assert 'aria-label="37 of 1,000 records skipped in this run"' in page
    flights.skips("JFK", 963)
    page = text(operator, reverse("application", args=["flights"]) + "?tab=policy")
    assert "1,000 of 1,000</b>" in page and "used up: the next failure exceeds the limit" in page


def test_a_task_shows_its_tolerance_usage(flights: Story, operator: Client) -> None:
    flights.epoch = 2
    flights.starts(policy=BY_DAY)
    flights.skips("JFK", 37)
    own = reverse("task", args=[flights.task("JFK").digest])
    page = text(operator, own)
    assert "37 of 100</b> today" in page and 'aria-label="37 of 100 today' in page
    assert "37 of 1,000</b> in this run" in page and "within the limit" in page
    # A cell of the grid has the limit that is nearest.
    grid = text(operator, reverse("application", args=["flights"]))
    assert '<span class="skipped">37 of 100 today</span>' in grid
    assert '<rect width="37.0" height="3"/>' in grid
    flights.skips("JFK", 62)
    page = text(operator, own)
    assert "99 of 100</b> today" in page and "nearly used up" in page
    # A new run begins at 0; an ended run has no gauge.
    flights.epoch = 3
    flights.starts(policy=BY_DAY)
    assert "0 of 100</b> today" in text(operator, own)
    assert 'class="skipped"' not in text(operator, reverse("application", args=["flights"]))
    flights.stops()
    assert 'id="tolerance"' not in text(operator, own)


def test_a_small_cell_shows_its_limit_too(flights: Story, operator: Client) -> None:
    flights.epoch = 2
    flights.starts(policy=BY_DAY)
    for number in range(DENSE_FROM + 1):
        flights.skips(f"k{number}", 1)
    flights.skips("k7", 80)
    page = text(operator, reverse("application", args=["flights"]))
    assert 'title="k7 RUNNING; skipped 81 of 100 today"' in page
    assert page.count("near-limit") == 1


def test_an_empty_key_is_not_no_key(flights: Story, operator: Client) -> None:
    whole, empty = flights.pauses(None), flights.pauses("")
    flights.skips(None, 2)
    for url in (
        reverse("application", args=["flights"]),
        reverse("tasks"),
        reverse("dead-letters"),
    ):
        assert "(no key)" in text(operator, url), url
    assert "delays (no key), position" in text(operator, reverse("task", args=[whole.digest]))
    assert "delays_, position" in text(operator, reverse("task", args=[empty.digest]))


def test_the_policy_appears_with_the_first_run_that_reports_it(
    flights: Story, operator: Client
) -> None:
    older = Story(application="older", pipeline="lines", checkpoint=str(uuid4()))
    older.starts(policy=None)
    own = reverse("application", args=["older"]) + "?tab=policy"
    assert "No policy reported" in text(operator, own)
    older.epoch = 2
    silent = replace(POLICY, tolerance_limit=0, rate_limit=None, uncaught="checks.Last")
    older.starts(policy=silent)
    page = text(operator, own)
    assert "handler checks.Last" in page
    assert "no record may be skipped" in page and "0 of 0</b> skipped in this run" in page


def test_ten_thousand_tasks_are_shown_page_by_page(flights: Story, operator: Client) -> None:
    keys = [f"sku-{number:04d}" for number in range(900)]
    failed = {"position": 1, "failure": TYPO, "response": FinalResponse.PAUSE}
    flights.report(*(RecordFailed(task=key, **failed) for key in keys))  # type: ignore[arg-type]
    flights.report(TaskPaused(task="sku-0777", position=1, failure=TYPO))
    own = reverse("application", args=["flights"])
    first = text(operator, own)
    assert first.count('class="cell ') == 400 and "1 to 400 of 900" in first
    assert first.index("sku-0777") < first.index("sku-0000")
    last = text(operator, f"{own}?pipeline=delays&page=3")
    assert last.count('class="cell ') == 100 and "801 to 900" in last
    found = text(operator, f"{own}?pipeline=delays&key=sku-05")
    assert found.count('class="cell ') == 100
    assert text(operator, f"{own}?page=0", status=400)
    assert "No matches" in text(operator, f"{own}?pipeline=delays&page=99999")


def test_tasks_of_one_cause_are_one_item(flights: Story, operator: Client) -> None:
    for number in range(5):
        flights.pauses(f"gate-{number}", held=2)
    page = text(operator, reverse("overview"))
    assert "1 item needs attention" in page
    assert "5 tasks of delays" in page and "10 held · ImplausibleDelay" in page
    link = reverse("error", args=["flights", TYPO.fingerprint])
    assert link in page
    assert "gate-4" in text(operator, link)


def test_many_unanswered_commands_are_one_item(flights: Story, operator: Client) -> None:
    tasks = [flights.pauses(f"gate-{number}").digest for number in range(5)]
    asked = actions.resume_tasks(tasks[:4], actor="ana")
    actions.skip_record(tasks[4], actor="ben", reason="a typo")

    def unanswered(at: datetime) -> list[Condition]:
        found = conditions.needing_attention(now=at)
        return [each for each in found if each.cause is AlertCause.COMMANDS_UNANSWERED]

    now = datetime.now(UTC)
    assert unanswered(now) == []
    many, alone = unanswered(now + timedelta(seconds=11))
    assert alone.name == "Command for delays_gate-4"
    assert (many.name, many.count) == ("4 commands for flights", 4)
    assert many.summary == "Resume task by ana, no answer yet"
    assert asked[0].command is not None
    flights.fetches(asked[0].command.id)
    many, _ = unanswered(now + timedelta(seconds=11))
    assert many.name == "4 commands for flights"
    assert "gate-0" in text(operator, many.path) and "gate-3" in text(operator, many.path)


def test_a_run_on_an_older_checkpoint_needs_attention(flights: Story, operator: Client) -> None:
    Story(checkpoint=str(uuid4()), instance=flights.instance).starts()
    page = text(operator, reverse("overview"))
    assert "TWO CHECKPOINTS" in page and "also runs on an older checkpoint" in page


@pytest.mark.parametrize("span", ["1h", "6h", "24h", "7d", "30d"])
def test_charts_have_the_range_of_the_url_and_a_table(
    span: str, flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 7, ago=timedelta(minutes=20))
    for url in (
        reverse("overview"),
        reverse("application", args=["flights"]) + "?tab=errors&",
        reverse("error", args=["flights", NA.fingerprint]),
    ):
        page = text(operator, f"{url}{'' if '?' in url else '?'}range={span}")
        assert '<b class="number small">7</b>' in page
        assert "<td>7</td>" in page and 'class="bars ink-1"' in page


def test_rankings_show_top_causes_and_most_held_records(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 30)
    flights.pauses("JFK", held=1843)
    page = text(operator, reverse("overview"))
    assert page.index("SparkNumberFormatException") < page.rindex("ImplausibleDelay")
    assert "30 failed in 24 h, at most 30 in an hour" in page
    assert 'id="held-' in page and "1,843" in page


def test_states_of_a_task_over_time_have_a_timeline_and_a_table(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK", ago=timedelta(minutes=30))
    command = actions.resume_task(task.digest, actor="ana").id
    flights.resumes("JFK", command)
    page = text(operator, reverse("task", args=[task.digest]))
    # No state before the first event, and none after the end of the run.
    assert page.count("<title>PAUSED from") == 1 and page.count("<title>RUNNING from") == 1
    assert page.count("<td>now</td>") == 1
    flights.stops()
    assert "<td>now</td>" not in text(operator, reverse("task", args=[task.digest]))
    assert "Task resumed" in page and "Command issued" in page


def test_a_history_is_compact_full_or_json(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK", held=5)
    url = reverse("task-history", args=[task.digest])
    compact = text(operator, url)
    assert "Task paused" in compact and "Record failed" not in compact
    assert "Records held" in text(operator, f"{url}?view=full")
    expected = html.unescape(text(operator, f"{url}?view=json"))
    listed = json.loads(
        expected.partition('<pre id="json" tabindex="0">')[2].partition("</pre>")[0]
    )
    assert [each["type"] for each in listed] == ["RecordsHeld", "TaskPaused", "RecordFailed"]


def test_repeated_attempts_are_one_row_of_the_compact_history(
    flights: Story, operator: Client
) -> None:
    task = flights.pauses("JFK", held=5)
    for actor in ("ana", "ben", "ana"):
        command = actions.resume_task(task.digest, actor=actor).id
        flights.fetches(command)
        resumed = TaskResumed(task="JFK", how=ResumeHow.RETRY, actor=actor)
        flights.report(resumed, CommandApplied(command=command), caused_by=command)
        flights.pauses("JFK", held=5)
    flights.resumes("JFK", actions.skip_record(task.digest, actor="ana", reason="typo").id)
    url = reverse("task-history", args=[task.digest])
    for address in (url, reverse("task", args=[task.digest])):
        page = text(operator, address)
        (row,) = re.findall(r'<li id="attempts-.*?</summary>', page, re.DOTALL)
        assert "Resumed and failed again" in row
        assert "at position 151,974, 3 times, " in row and "by ana, ben" in row
        before = page[: page.index(row)]
        assert before.count("Task paused") == 0 and before.count("Task resumed") == 1
        # In the row, and the first stop after it.
        assert page.count("<b>Task paused</b>") == 4
    assert "attempts-" not in text(operator, f"{url}?view=full")


def test_a_history_has_the_messages_about_each_stop(flights: Story, operator: Client) -> None:
    now = datetime.now(UTC)

    def minutes(number: int) -> timedelta:
        return timedelta(minutes=number)

    def send(*, ago: timedelta) -> None:
        assert alerts.update(now=now - ago)
        outbox.send_pending(channel.id)

    def resume(key: str, *, ago: timedelta) -> None:
        resumed, drained = TaskResumed(task=key, how=ResumeHow.RETRY), RecordsHeld(task=key, held=0)
        flights.report(resumed, drained, ago=ago)
        send(ago=ago)
        send(ago=ago - RESOLVE_AFTER)

    with http_receiver() as receiver:
        channel, _ = configuration.add_channel(receiver.url, "night shift", actor="ada")
        form = configuration.RuleForm(
            name="paused", channel=channel.id, causes=(AlertCause.TASKS_PAUSED,)
        )
        configuration.save_rule(reads.rules()[0].id, form, actor="ada")
        task = flights.pauses("JFK", ago=minutes(60))
        send(ago=minutes(59))
        resume("JFK", ago=minutes(50))
        flights.pauses("EWR", ago=minutes(40))
        send(ago=minutes(39))
        resume("EWR", ago=minutes(35))
        flights.pauses("JFK", ago=minutes(30))
        send(ago=minutes(29))

    events = queries.task_state_changes(task.digest, limit=2)
    second, resumed, first = queries.task_state_changes(task.digest).rows
    assert events.rows == (second, resumed)
    shown = reads.messages_by_stop(task, events.rows, cursor=None)
    older = reads.messages_by_stop(task, (first,), cursor=events.next)
    kinds = {
        sequence: [(each.message.kind, each.message.status) for each in sent]
        for sequence, sent in (shown | older).items()
    }
    assert kinds == {
        second.sequence: [("FIRED", "SENT")],
        first.sequence: [("FIRED", "SENT"), ("RESOLVED", "SENT")],
    }
    page = text(operator, reverse("task-history", args=[task.digest]))
    row = page.partition(f'<li id="event-{first.sequence}">')[2].partition("</li>")[0]
    assert "night shift</a> sent" in row and "(resolved) sent" in row
    assert page.count("night shift</a>") == 3
    fired, _ = older[first.sequence]
    assert f"?message={fired.message.id}#message-{fired.message.id}" in row
    # The list of messages begins with it, however old it is.
    alerts_url = reverse("alerts")
    messages = text(operator, f"{alerts_url}?message={fired.message.id}")
    assert re.findall(r'<tr id="message-([^"]+)"', messages)[0] == str(fired.message.id)
    newest = reads.messages(limit=1)[0].message.id
    assert f"message-{newest}" not in messages and "Newest messages" in messages
    assert "the id of a message" in text(operator, f"{alerts_url}?message=7", status=400)


def test_attempts_at_other_positions_or_with_other_events_between_are_rows() -> None:
    def stop(position: int) -> TaskPaused:
        return TaskPaused(task="JFK", position=position, failure=TYPO)

    def shown(*data: EventData) -> list[str]:
        stored = [
            StoredEvent(
                application="a",
                sequence=sequence,
                batch=uuid4(),
                event=Event(occurred_at=datetime.now(UTC), data=each),
                received_at=datetime.now(UTC),
            )
            for sequence, each in enumerate(data, start=1)
        ]
        return [
            f"{row.attempts}x{row.position}"
            if isinstance(row, AttemptFold)
            else type(row.event.data).__name__
            for row in reversed(attempt_folds.rows(stored[::-1]))
        ]

    retry = TaskResumed(task="JFK", how=ResumeHow.RETRY)
    skip = TaskResumed(task="JFK", how=ResumeHow.SKIP)
    assert shown(stop(1), retry, stop(1), retry, stop(2), retry) == [
        "TaskPaused", "TaskResumed", "TaskPaused", "TaskResumed", "TaskPaused", "TaskResumed",
    ]  # fmt: skip
    again = (retry, stop(1))
    assert shown(stop(1), *again, *again, skip, stop(1), *again, *again, *again) == [
        "TaskPaused", "2x1", "TaskResumed", "TaskPaused", "3x1",
    ]  # fmt: skip
    # The page begins in the middle of an attempt.
    assert shown(*again, *again, *again)[-1] == "2x1"


def test_a_task_shows_how_long_the_last_commands_took(flights: Story, operator: Client) -> None:
    url = reverse("task", args=[flights.pauses("JFK").digest])
    assert ", between two micro-batches." in text(operator, url)
    for shift in (3, 3, 30):
        command = flights.command(flights.pauses("LGA"))
        flights.resumes("LGA", command)
        earlier = "UPDATE command SET issued_at = issued_at - %s * interval '1 s' WHERE id = %s"
        with connection.cursor() as cursor:
            cursor.execute(earlier, [shift, command])
    shown = re.search(
        r"within (\S+) s \(median of the last 3 commands of flights\)", text(operator, url)
    )
    assert shown and 3.0 <= float(shown[1]) < 30


def test_a_record_is_shown_pretty_raw_and_in_hex(flights: Story, operator: Client) -> None:
    record: dict[str, object] = {"a": "b\u00a0c", "blob": "base64:AAEC", "long": "x…[cut]"}
    page = text(operator, reverse("task", args=[flights.pauses("JFK", record=record).digest]))
    assert "62 c2 a0 63" in page and "00 01 02" in page and "truncated" in page
    assert "Redacted on the driver: passenger.name" in page
    assert "1 frame of Spark and Python" in page


def test_errors_are_groups_that_can_be_searched(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 300)
    flights.skips("LGA", 700)
    flights.pauses("JFK")
    page = text(operator, reverse("errors"))
    assert "<b>1,000</b>" in page and "1 task" in page
    found = text(operator, reverse("errors") + "?text=a TYPO, or")
    assert "ImplausibleDelay" in found and "SparkNumberFormatException" not in found
    quoted = text(operator, reverse("errors") + '?text=type "string"')
    assert "SparkNumberFormatException" in quoted and "ImplausibleDelay" not in quoted
    assert "No matches" in text(operator, reverse("errors") + "?text=fingerprint")


def test_an_error_shows_its_occurrences_one_by_one(flights: Story, operator: Client) -> None:
    for minutes in (9, 6, 3):
        flights.pauses("JFK", ago=timedelta(minutes=minutes))
    url = reverse("error", args=["flights", TYPO.fingerprint])
    newest = text(operator, url)
    assert "Newest example" in newest and "← Older" in newest and "Newer →" not in newest
    rows = queries.failures(
        queries.FailureFilter(application="flights", fingerprint=TYPO.fingerprint)
    ).rows
    middle = text(operator, f"{url}?at={rows[1].sequence}")
    assert "← Older" in middle and "Newer →" in middle
    assert text(operator, f"{url}?at=soon", status=400)
    assert text(operator, f"{url}?at=999999", status=404)


def test_history_has_every_event_page_by_page(flights: Story, operator: Client) -> None:
    for _ in range(30):
        flights.pauses("JFK")
    digest = flights.task("JFK").digest
    full = reverse("task-history", args=[digest]) + "?view=full"
    first = text(operator, full)
    assert "Task paused" in first and "Record failed" in first and "Older" in first
    cursor = queries.task_history(digest).next
    second = text(operator, f"{full}&after={cursor}")
    assert "Newest" in second
    assert text(operator, reverse("task-history", args=[digest]) + "?after=nonsense", status=400)


def test_a_command_shows_its_steps_and_answers(flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    command = actions.resume_task(task, actor="ana", reason="repaired").id
    url = reverse("command", args=[command])
    assert "waiting for an instance" in text(operator, url)
    flights.fetches(command)
    assert "waiting for an answer" in text(operator, url)
    flights.resumes("JFK", command)
    page = text(operator, url)
    assert "Applied" in page and "spark-driver-0" in page and "“repaired”" in page


def test_quarantine_shows_the_bytes(flights: Story, operator: Client) -> None:
    flights.send(b"\x00<script>nonsense")
    page = text(operator, reverse("quarantine"))
    assert "this version reads 01" in page
    assert "00000000  " in page and "00000010  " in page
    assert "<script>" not in page.partition("</head>")[2]


@pytest.mark.parametrize("key", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_harm_no_page(key: str, flights: Story, operator: Client) -> None:
    cause = failure(f"process:{key[:50]}", f"app.{key[:50]}<b>", f"{key} <script>x()</script>")
    task = flights.pauses(key, cause=cause, record={key: key, "nested": [key]}, stack=key)
    urls = [
        reverse("overview"),
        reverse("tasks"),
        reverse("errors"),
        reverse("errors") + "?text=script",
        reverse("application", args=["flights"]),
        reverse("task", args=[task.digest]),
        reverse("task-history", args=[task.digest]),
        reverse("error", args=["flights", cause.fingerprint]),
        reverse("skip-dialog", args=[task.digest]),
    ]
    for url in urls:
        page = text(operator, url)
        assert "<script>alert" not in page and "<script>x()" not in page
        assert len(page) < 250_000


def test_a_page_weighs_less_than_260_kilobytes(flights: Story, operator: Client) -> None:
    flights.report(
        *(
            RecordFailed(
                task=f"customer-{number}", position=1, failure=TYPO, response=FinalResponse.PAUSE
            )
            for number in range(600)
        )
    )
    page = text(operator, reverse("application", args=["flights"]))
    assert page.count('class="cell ') == 400
    assets = sum(path.stat().st_size for path in STATIC.rglob("*.*") if path.suffix != ".md")
    assert len(page.encode()) + assets < 260_000


def test_pages_are_compressed_and_static_files_are_kept_by_browsers(
    flights: Story, operator: Client
) -> None:
    packed = {"Accept-Encoding": "gzip, br"}
    plain, page = operator.get("/"), operator.get("/", headers=packed)
    assert page.headers["Content-Encoding"] == "gzip"
    assert len(page.content) * 3 < len(plain.content)
    assert "Content-Encoding" not in plain.headers
    rows = operator.get("/api/v1/commands", headers=packed)
    assert "Content-Encoding" not in rows.headers  # too short
    script = re.search(r'src="(/static/[0-9a-f]{12}/dashboard/live\.js)"', plain.content.decode())
    assert script is not None
    file = operator.get(script[1], headers=packed)
    assert b"".join(file) != b"" and file.headers["Content-Encoding"] == "gzip"
    assert file.headers["Cache-Control"] == "max-age=315360000, public, immutable"
    stream = RequestFactory().get("/live", headers=packed)
    live = StreamingHttpResponse([b": nothing new"], content_type="text/event-stream")
    answer = Compression(lambda _: live)(stream)
    assert isinstance(answer, StreamingHttpResponse)
    assert b"".join(answer) == b": nothing new"


def test_an_unknown_object_is_404_and_named(operator: Client) -> None:
    assert "no application" in text(operator, "/applications/nowhere", status=404)
    assert "no task" in text(operator, f"/tasks/{'0' * 32}", status=404)
    assert "no command" in text(operator, f"/commands/{uuid4()}", status=404)
    assert "no error group" in text(operator, "/errors/nowhere/1-abc", status=404)


def cursor(*key: object) -> str:
    """Return a cursor that no page returns."""
    return base64.urlsafe_b64encode(json.dumps(key if len(key) > 1 else key[0]).encode()).decode()


@pytest.mark.parametrize(
    "url",
    [
        "/applications/a%00",
        "/errors?application=%00",
        "/errors/flights/a%00",
        "/tasks?pipeline=%00",
        "/tasks?state=%00",
        "/commands?application=%00",
        "/quarantine?application=%00",
        f"/errors?after={cursor('2026-01-01T00:00:00Z', chr(0), 'x')}",
        "/api/v1/applications/a%00b",
        f"/api/v1/errors?cursor={cursor('2026-01-01T00:00:00Z', 'x', chr(0))}",
        f"/api/v1/failures?cursor={cursor('2026-01-01T00:00:00Z', chr(0), 1)}",
        f"/api/v1/failures?cursor={cursor('2026-01-01T00:00:00', 'flights', 1)}",
    ],
)
def test_a_value_that_postgresql_cannot_store_is_refused(
    url: str, flights: Story, operator: Client
) -> None:
    flights.pauses("JFK")
    assert operator.get(url).status_code == 400


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_cursor_with_a_huge_number_is_400(number: int, flights: Story, operator: Client) -> None:
    task = flights.pauses("JFK").digest
    moment = "2026-01-01T00:00:00Z"
    for url in (
        f"/quarantine?after={cursor(number)}",
        f"/tasks/{task}/history?after={cursor(number)}",
        f"/errors/flights/{TYPO.fingerprint}?after={cursor(moment, 'flights', number)}",
        f"/api/v1/failures?cursor={cursor(moment, 'flights', number)}",
    ):
        with transaction.atomic():
            assert operator.get(url).status_code in (200, 400), url
            transaction.set_rollback(True)


@pytest.mark.parametrize(
    ("at", "status"),
    [("1", 404), (str(2**63 - 1), 404), (str(2**63), 400), ("9" * 20, 400), ("9" * 5000, 400)],
)
def test_an_occurrence_is_a_failure_of_its_group(
    at: str, status: int, flights: Story, operator: Client
) -> None:
    flights.skips("EWR", 1)
    flights.pauses("JFK")
    url = reverse("error", args=["flights", TYPO.fingerprint])
    text(operator, f"{url}?at={at}", status=status)
    (other,) = queries.failures(
        queries.FailureFilter(application="flights", fingerprint=NA.fingerprint)
    ).rows
    text(operator, f"{url}?at={other.sequence}", status=404)


def test_an_unreachable_postgresql_is_503(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "cursor", refuse)
        assert "PostgreSQL does not answer" in text(operator, "/", status=503)
        refresh = operator.get("/", headers={"HX-Request": "true"})
        assert operator.get("/api/v1/applications").status_code == 503
        given = {"username": "ana", "password": "a password for tests"}
        login = Client().post(reverse("login"), given)
        assert operator.post(reverse("logout")).status_code == 503
    assert login.status_code == 503 and b"PostgreSQL does not answer" in login.content
    assert (refresh.status_code, refresh.headers["HX-Reswap"]) == (503, "none")
    # The script of the page shows the message.
    assert b'<p class="break">PostgreSQL does not answer' in refresh.content


def test_login_and_logout(db: None, client: Client) -> None:
    make_user("ana", "operator")
    wrong = client.post(reverse("login"), {"username": "ana", "password": "wrong"})
    assert b"do not match" in wrong.content
    given = {"username": "ana", "password": "a password for tests", "next": "/errors"}
    right = client.post(reverse("login"), given)
    assert right.headers["Location"] == "/errors"
    assert client.get("/errors").status_code == 200
    assert client.post(reverse("logout")).status_code == 302
    assert client.get("/errors").status_code == 302


def test_the_counts_of_a_group_are_those_of_its_task(flights: Story, operator: Client) -> None:
    flights.skips("EWR", 8255)
    page = text(operator, reverse("error", args=["flights", NA.fingerprint]))
    assert "8,255 failed records" in page
    assert "8,255" in text(operator, reverse("application", args=["flights"]))
