"""`/metrics`: numbers that the pages show too, each in the list, for whoever may look."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from controlplane import actions, queries
from tests.dashboard.story import Story

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def scrape(client: Client) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of each metric by its labels."""
    response = client.get("/metrics")
    assert response.status_code == 200
    families = text_string_to_metric_families(response.content.decode())
    return {
        sample.name: {
            tuple(other.labels.values()): other.value
            for other in family.samples
            if other.name == sample.name
        }
        for family in families
        for sample in family.samples
    }


def test_metrics_say_what_the_pages_say(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=12)
    flights.skips("EWR", 40)
    actions.shut_down_application("flights", actor="ana", reason="night")
    actions.sighted("wake")
    found = scrape(viewer)
    assert found["arrester_tasks"][("flights", "PAUSED")] == 1
    assert found["arrester_tasks"][("flights", "DEAD")] == 0
    assert found["arrester_failed_records_total"][("flights",)] == 41
    assert found["arrester_instances"][("flights", "RUNNING")] == 1
    assert found["arrester_application_latched"][("flights",)] == 1
    assert sum(found["arrester_commands"].values()) == 1
    assert found["arrester_queue_batches"][("flights",)] == 0
    assert (found["arrester_up"][("wake",)], found["arrester_up"][("worker",)]) == (1, 0)
    assert found["arrester_up"][("housekeeper",)] == 0
    assert found["arrester_events_folded_total"][("flights",)] > 3


def test_metrics_leave_out_what_pages_do(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.falls_silent()
    assert scrape(viewer)["arrester_instances_lost"][("flights",)] == 1
    heir = Story(epoch=2)
    heir.starts(host="spark-driver-1")
    found = scrape(viewer)
    assert found["arrester_instances_lost"][("flights",)] == 0
    assert found["arrester_tasks"][("flights", "PAUSED")] == 1
    # It ends, and the pipeline begins anew at another checkpoint.
    heir.stops()
    Story(checkpoint=str(uuid4())).starts(host="spark-driver-2")
    found, shown = scrape(viewer), queries.application("flights")
    assert found["arrester_tasks"][("flights", "PAUSED")] == shown.paused == 0
    assert found["arrester_instances_lost"][("flights",)] == shown.lost == 0


def test_every_metric_is_documented(flights: Story, viewer: Client) -> None:
    documented = set(re.findall(r"^\| `(arrester_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert set(scrape(viewer)) == documented


def test_the_statements_do_not_grow_with_what_there_is(flights: Story, viewer: Client) -> None:
    with CaptureQueriesContext(connection) as few:
        scrape(viewer)
    for number in range(5):
        flights.pauses(f"gate-{number}")
        actions.open_application(f"orders-{number}", actor="ana")
    with CaptureQueriesContext(connection) as many:
        scrape(viewer)
    assert len(many) == len(few)


def test_without_redis_the_rest_is_said(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "unix:///nowhere/redis.sock")
    found = scrape(viewer)
    assert found["arrester_up"][("redis",)] == 0
    assert "arrester_queue_batches" not in found
    assert found["arrester_events_folded_total"]


def test_metrics_want_an_account(db: None) -> None:
    assert Client().get("/metrics").status_code in (401, 403)
