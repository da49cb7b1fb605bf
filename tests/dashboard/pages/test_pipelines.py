"""The list of pipelines, and the page of one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from arrester.controlplane import queries
from arrester.controlplane.alerts import configuration
from arrester.controlplane.redis import redis_client
from arrester.dashboard.pages import pipelines
from arrester.dashboard.templatetags import flow
from arrester.domain.events import PipelinePaused, PipelineResumed
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec
from tests.dashboard.accounts import logged_in, make_user
from tests.dashboard.story import MODULE, Story, started_with_accounts

pytestmark = pytest.mark.usefixtures("redis", "fresh_database")


@pytest.fixture
def story() -> Story:
    return started_with_accounts()


@pytest.fixture
def viewer(story: Story) -> Client:
    return logged_in(make_user("vera", "viewer"))


def text_of(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_pipeline_without_flow_has_no_numbers(viewer: Client, story: Story) -> None:
    page = text_of(viewer, reverse("pipelines"))
    assert 'data-word="in / s">\N{EN DASH}</td>' in page
    one = text_of(viewer, reverse("pipeline", args=["flights", "delays"]))
    assert "Nothing measured" in one


def test_a_dead_pipeline_is_the_first_line_with_its_cause(viewer: Client, story: Story) -> None:
    healthy = Story(application="airports", pipeline="gates", checkpoint="9c1b")
    healthy.starts()
    story.fails(MODULE, ago=timedelta(minutes=1))
    page = text_of(viewer, reverse("pipelines"))
    assert page.index("pipeline-flights-delays") < page.index("pipeline-airports-gates")
    assert "ModuleNotFoundError: No module named" in page
    assert "mark is-dead" in page
    one = text_of(viewer, reverse("pipeline", args=["flights", "delays"]))
    assert "No module named" in one[one.index('id="runs"') :]


def test_a_pipeline_shows_what_flows_and_where_records_fail(viewer: Client, story: Story) -> None:
    story.flows(
        ago=2,
        records_in=1_200,
        records_out=1_100,
        failed=3,
        durations={"total:37": 4, "write:33": 4},
        backlog=12_345,
        backlog_unit="records",
    )
    story.skips("EWR", 3, ago=timedelta(minutes=2))
    page = text_of(viewer, reverse("pipeline", args=["flights", "delays"]))
    assert '<b class="number">1,200</b> read' in page
    assert '<b class="number">1,100</b> written' in page
    assert '<b class="number">3</b> failed' in page
    assert "12,345 records" in page
    assert [each in page for each in ("records-chart", "durations-chart", "backlog-chart")] == [
        True,
        True,
        True,
    ]
    assert "Run 1 started" in page


def test_an_application_shows_the_age_of_the_last_report(viewer: Client, story: Story) -> None:
    now = datetime.now(UTC)
    since = now - timedelta(seconds=64)
    beat = codec.Heartbeat(at=now, status="RUNNING", spooled=3, spool_since=since)
    key = redis_keys.heartbeat(story.application, story.instance)
    redis_client.client().set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)
    page = text_of(viewer, reverse("application", args=["flights"]))
    assert "last report" in page
    assert "3 events wait there since" in page


def test_a_late_pipeline_is_late_in_words(viewer: Client, story: Story) -> None:
    configuration.set_limits("", {"no_batch_minutes": 5}, actor="ada")
    gates = Story(application="airports", pipeline="gates", checkpoint="9c1b")
    gates.starts(ago=timedelta(hours=1))
    gates.flows(ago=9, last_batch_at=datetime.now(UTC) - timedelta(minutes=8))
    for page in (reverse("pipelines"), reverse("overview")):
        shown = text_of(viewer, page)
        row = shown[shown.index('id="pipeline-airports-gates') :].partition("</tr>")[0]
        assert "LATE" in row, page
        assert "no micro-batch for 8 min" in row
        other = shown[shown.index('id="pipeline-flights-delays') :].partition("</tr>")[0]
        assert "LATE" not in other


def test_many_pipelines_are_on_several_pages(
    viewer: Client, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "SHOWN", 1)
    Story(application="airports", pipeline="gates", checkpoint="9c1b").starts()
    first, last = (text_of(viewer, f"/pipelines?page={number}") for number in (1, 9))
    assert ("gates" in first, "delays" in first, "1 to 1 of 2" in first) == (True, False, True)
    assert ("gates" in last, "delays" in last, "2 to 2 of 2" in last) == (False, True, True)
    assert "Next" in first
    assert "Previous" in last
    refused = viewer.get("/pipelines?page=x")
    assert refused.status_code == 400
    assert "a whole number from 1" in refused.content.decode()


def test_an_unknown_pipeline_is_not_found(viewer: Client) -> None:
    assert viewer.get(reverse("pipeline", args=["flights", "nothing"])).status_code == 404


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "0"),
        (0.001, "< 0.01"),
        (0.25, "0.25"),
        (4.51, "4.5"),
        (1250, "1,250"),
    ],
)
def test_rates_have_as_many_digits_as_matter(number: float | None, expected: str) -> None:
    assert flow.rate(number) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [(None, "\N{EN DASH}"), (0.0, "0 %"), (1e-6, "< 0.01 %"), (0.0025, "0.25 %"), (0.5, "50 %")],
)
def test_shares_are_percents(part: float | None, expected: str) -> None:
    assert flow.share(part) == expected


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (None, "\N{EN DASH}"),
        (320.4, "320 ms"),
        (4_210, "4.2 s"),
        (90_000, "90 s"),
        (720_000, "12 min"),
    ],
)
def test_durations_have_the_unit_that_a_person_reads(ms: float | None, expected: str) -> None:
    assert flow.duration(ms) == expected


def test_backlogs_have_their_unit() -> None:
    assert flow.backlog(None, None) == "\N{EN DASH}"
    assert flow.backlog(1_200, "records") == "1,200 records"
    assert flow.backlog(3, "files") == "3 files"
    assert flow.backlog(2_500_000, "bytes") == "2.5 MB"
    assert "grows" in flow.trend(queries.Trend.GROWS)
    assert flow.trend(queries.Trend.STEADY) == ""


def test_a_pipeline_is_paused_since_its_pause_began_also_after_a_change(story: Story) -> None:
    ana = logged_in(User.objects.get(username="ana"))
    began = datetime.now(UTC) - timedelta(hours=3)
    for minutes in (30, 60):
        until = datetime.now(UTC) + timedelta(minutes=minutes)
        story.report(PipelinePaused(since=began, until=until, actor="ana"))
    [row] = ana.get("/api/v1/pipelines").json()["results"]
    assert (
        row["status_changed_at"]
        == row["pause"]["paused_at"]
        == began.isoformat().replace("+00:00", "Z")
    )
    one = text_of(ana, reverse("pipeline", args=["flights", "delays"]))
    assert len(re.findall(rf'datetime="{began:%Y-%m-%dT%H:%M:%S}', one)) >= 2
    story.report(PipelineResumed(actor="ana"))
    [row] = ana.get("/api/v1/pipelines").json()["results"]
    assert row["run"] == "RUNNING" and row["status_changed_at"] > began.isoformat()


def test_a_paused_pipeline_is_shown_as_such_with_its_reason(story: Story) -> None:
    ana = logged_in(User.objects.get(username="ana"))
    own = reverse("pipeline", args=["flights", "delays"])
    form = {"id": str(uuid4()), "pipeline": "delays", "reason": "a migration"}
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://host{own}?range=7d"}
    answer = ana.post(reverse("pause-pipeline", args=["flights"]), form, headers=headers)
    assert answer.status_code == 200
    assert 'id="runs"' in answer.content.decode()
    story.pauses_pipeline(UUID(form["id"]))

    page = text_of(ana, reverse("pipelines"))
    assert "PAUSED</span>" in page and "paused by ana: a migration" in page
    one = text_of(ana, own)
    assert "Run PAUSED" in one and "data-resume-pipeline" in one
    assert "PAUSED by ana" in one and "“a migration”" in one
    [row] = ana.get("/api/v1/pipelines").json()["results"]
    assert (row["run"], row["pause"]["actor"]) == ("PAUSED", "ana")
    [thread] = ana.get("/api/v1/applications/flights/runs").json()["results"]
    assert thread["pause"] == row["pause"]
