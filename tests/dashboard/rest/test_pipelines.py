"""Pipelines by REST: their runs and what flows through them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from arrester.domain.commands import agent_versions
from arrester.domain.events import (
    Event,
    EventData,
    FlowMeasured,
    InstanceStarted,
    Run,
    ThreadDied,
    ThreadStarted,
)
from tests.controlplane import streams
from tests.dashboard.accounts import logged_in, make_user
from tests.histories import APPLICATION, FAILURE, INSTANCE

MINUTE = timedelta(minutes=1)


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def viewer(db: None, now: datetime) -> Client:
    def event(name: str, data: EventData, ago: int) -> Event:
        run = Run(pipeline=name, checkpoint=f"cp-{name}", epoch=1)
        return Event(occurred_at=now - ago * MINUTE, data=data, instance=INSTANCE, run=run)

    versions = {"release": "1.4.2", agent_versions.REPORTED_AS: str(agent_versions.VERSION)}
    start = InstanceStarted(host="spark-1", pid=7, versions=versions)
    minute = (now - 5 * MINUTE).replace(second=0, microsecond=0)
    flow = FlowMeasured(
        minute=minute,
        micro_batches=3,
        records_in=300,
        records_out=297,
        failed=3,
        skipped=3,
        durations={"total:0": 3},
        backlog=12,
        backlog_unit="records",
        last_batch_at=minute,
    )
    events = [
        Event(occurred_at=now - 90 * MINUTE, data=start, instance=INSTANCE),
        *(event(name, ThreadStarted(), 90) for name in ("delays", "gates")),
        event("delays", flow, 4),
        event("gates", ThreadDied(reason="failed", failure=FAILURE), 3),
    ]
    streams.append(events, received_at=now)
    return logged_in(make_user("ben", "viewer"))


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(f"/api/v1/pipelines{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def test_pipelines_are_listed_by_page_and_by_state(viewer: Client) -> None:
    first = get(viewer, "?limit=1")
    assert [each["pipeline"] for each in first["results"]] == ["delays"]
    second = get(viewer, f"?limit=1&cursor={first['next']}")
    assert ([each["pipeline"] for each in second["results"]], second["next"]) == (["gates"], None)
    [dead] = get(viewer, "?run=DEAD")["results"]
    assert (dead["pipeline"], dead["recent"], dead["records_in_per_second"]) == (
        "gates",
        None,
        None,
    )
    assert "one of RUNNING" in get(viewer, "?run=BROKEN", 400)["detail"]
    get(viewer, "?application=unknown", 404)


def test_a_pipeline_has_its_rates_and_its_backlog(viewer: Client) -> None:
    found = get(viewer, f"/{APPLICATION}/delays")
    assert (found["run"], found["release"], found["backlog"]) == ("RUNNING", "1.4.2", 12)
    assert (found["records_in_per_second"], found["failed_share"]) == (1.0, 0.01)
    assert found["recent"]["records_out"] == 297
    get(viewer, f"/{APPLICATION}/unknown", 404)
    get(viewer, "/unknown/delays", 404)


def test_a_series_has_the_measured_steps(viewer: Client, now: datetime) -> None:
    found = get(viewer, f"/{APPLICATION}/delays/series")
    assert found["step"] == 60
    [step] = found["results"]
    assert (step["records_in"], step["durations"]["total"]["p95_ms"]) == (300, 1.0)
    since = (now - timedelta(days=30)).isoformat().replace("+00:00", "Z")
    of_month = get(viewer, f"/{APPLICATION}/delays/series?since={since}")
    assert (of_month["step"], len(of_month["results"])) == (6 * 3600, 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("step=61", "a multiple of 60"),
        ("step=0", "60 to 604800"),
        ("since=2026-11-20T00:00Z&until=2026-11-19T00:00Z", "a time before until"),
        ("since=2020-01-01T00:00Z&step=60", "at most 1,500"),
        ("since=0001-01-01T00:00Z", "since: '0001-01-01T00:00:00Z' is not allowed"),
        ("since=yesterday", "a time in ISO 8601"),
    ],
)
def test_a_wrong_time_is_named(viewer: Client, query: str, expected: str) -> None:
    assert expected in get(viewer, f"/{APPLICATION}/delays/series?{query}", 400)["detail"]


def test_runs_are_listed_with_their_ends(viewer: Client) -> None:
    [run] = get(viewer, f"/{APPLICATION}/gates/runs")["results"]
    assert (run["reason"], run["seconds"], run["flow"]) == ("failed", 87 * 60, None)
    assert run["failure"]["message"] == FAILURE.message
    [running] = get(viewer, f"/{APPLICATION}/delays/runs?limit=5")["results"]
    assert (running["ended_at"], running["flow"]["records_in"]) == (None, 300)
