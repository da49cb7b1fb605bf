"""`/metrics`: the numbers of the pages, each documented, for every role."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import msgspec
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from arrester.controlplane import actions, models, queries, quotas, store
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.outbound import backpressure, quota_check
from arrester.controlplane.redis import metric_sums, redis_client
from arrester.dashboard.metrics import server
from arrester.domain.errors import BrokenState
from arrester.domain.events import (
    DeadLettersFailed,
    Event,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    Run,
)
from arrester.domain.identity import redis_keys
from arrester.domain.wire import codec
from tests.controlplane import streams
from tests.dashboard.story import TYPO, Story
from tests.services import REPOSITORY

SPOOL = ("events", "bytes", "age_seconds", "counted_only_records", "dropped_batches")
DOCUMENT = REPOSITORY / "docs" / "reference" / "metrics.md"


def scrape(client: Client) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of each metric by its labels."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
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


def test_metrics_have_the_values_of_the_pages(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=12)
    flights.skips("EWR", 40)
    actions.shut_down_application("flights", actor="ana", reason="night")
    actions.record_running("wake")
    found = scrape(viewer)
    assert found["arrester_tasks"][("flights", "PAUSED")] == 1
    assert found["arrester_conditions"][("flights", "TASKS_PAUSED")] == 1
    assert found["arrester_tasks"][("flights", "DEAD")] == 0
    assert found["arrester_failed_records_total"][("flights",)] == 41
    assert found["arrester_instances"][("flights", "RUNNING")] == 1
    assert found["arrester_application_latched"][("flights",)] == 1
    assert sum(found["arrester_commands"].values()) == 1
    assert found["arrester_queue_batches"][("flights",)] == 0
    assert (found["arrester_up"][("wake",)], found["arrester_up"][("worker",)]) == (1, 0)
    assert found["arrester_up"][("housekeeper",)] == 0
    assert found["arrester_events_folded_total"][("flights",)] > 3


def test_reached_limits_are_counted_and_on_the_overview_for_a_day(
    flights: Story, viewer: Client
) -> None:
    now = datetime.now(UTC)
    reached = {store.Limit.QUARANTINE: 7, store.Limit.HEARTBEAT: 2, store.Limit.QUOTA: 3}
    for limit, count in reached.items():
        store.count_reached("flights", limit, count=count, at=now)
    found = scrape(viewer)
    assert found["arrester_limits_reached_total"] == {
        ("flights", limit.value): count for limit, count in reached.items()
    }
    # Quotas have a condition of their own as long as they are exceeded.
    assert found["arrester_conditions"] == {("flights", "LIMIT_REACHED"): 2}
    html = viewer.get("/").content.decode()
    assert "Dropped from the quarantine: 7." in html and "other keys in Redis: 2." in html
    old = now - timedelta(days=2)
    models.LimitReached.objects.update(first_at=old, last_at=old)
    assert "arrester_conditions" not in scrape(viewer)
    assert "Nothing needs attention" in viewer.get("/").content.decode()
    assert "other keys in Redis: 2." in viewer.get("/applications/flights").content.decode()


def test_an_exceeded_quota_is_on_the_overview(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights.pauses("JFK")
    flights.pauses("EWR")
    environment = replace(settings.ENVIRONMENT, quotas=quotas.parse("tasks=1"))
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)
    quota_check.check(now=datetime.now(UTC))
    assert "2 tasks, 1 are allowed" in viewer.get("/").content.decode()


def test_metrics_and_pages_leave_out_the_same(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK")
    flights.loses_heartbeat()
    found = scrape(viewer)
    assert found["arrester_instances_lost"][("flights",)] == 1
    assert found["arrester_instances_alive"][("flights",)] == 1
    heir = Story(epoch=2)
    heir.starts(host="spark-driver-1")
    found = scrape(viewer)
    assert found["arrester_instances_lost"][("flights",)] == 0
    assert found["arrester_instances_alive"][("flights",)] == 1
    # The killed instance keeps its last status permanently.
    assert found["arrester_instances"][("flights", "RUNNING")] == 2
    assert found["arrester_tasks"][("flights", "PAUSED")] == 1
    # It ends, and the pipeline starts at another checkpoint.
    heir.stops()
    assert scrape(viewer)["arrester_instances_alive"][("flights",)] == 0
    Story(checkpoint=str(uuid4())).starts(host="spark-driver-2")
    found, shown = scrape(viewer), queries.application("flights")
    assert found["arrester_tasks"][("flights", "PAUSED")] == shown.paused == 0
    assert found["arrester_instances_lost"][("flights",)] == shown.lost == 0


def test_waiting_batches_are_reported_in_seconds(
    flights: Story, viewer: Client, redis: Redis
) -> None:
    def measured(seconds: float) -> tuple[float, float, float]:
        """Return queue age, fold lag and overload, equal on pages and in metrics."""
        found = scrape(viewer)
        age, behind, overloaded = (
            found[f"arrester_{name}"][("flights",)]
            for name in ("queue_age_seconds", "fold_lag_seconds", "overloaded")
        )
        assert age == pytest.approx(seconds, abs=20)
        page = viewer.get("/").content.decode()
        shown = re.search(r">queue (\d+) s</span>.*>fold lag (\d+) s<", page, re.DOTALL)
        assert shown is not None
        assert int(shown[1]) == pytest.approx(seconds, abs=20)
        assert int(shown[2]) == pytest.approx(behind, abs=1)
        return age, behind, overloaded

    assert measured(0) == (0, 0, 0)
    cursor = int(store.read_stream("flights").cursor.partition("-")[0])
    # The newest entry of the log is an hour old; two wait, for 300 and 100 seconds.
    with connection.cursor() as statement:
        statement.execute("UPDATE stream SET cursor = %s", [f"{cursor - 3_600_000}-0"])
    redis.delete(redis_keys.events("flights"))
    for seconds in (300, 100):
        fields = streams.fields(uuid4(), codec.encode_batch([]))
        streams.put(redis, fields, id=f"{cursor - seconds * 1000}-0")
    _, behind, overloaded = measured(300)
    # From the oldest waiting entry to the newest one.
    assert (behind, overloaded) == (200, 0)
    backpressure.watch("flights", now=datetime.now(UTC))
    assert measured(300)[1:] == (200, 1)
    assert "agents count failed records without details" in viewer.get("/").content.decode()
    # The older entry is folded, and only waits for its confirmation.
    with connection.cursor() as statement:
        statement.execute("UPDATE stream SET cursor = %s", [f"{cursor - 250_000}-0"])
    assert measured(300)[1] == 150


def test_no_task_is_running_without_a_run(flights: Story, viewer: Client) -> None:
    flights.skips("EWR", 4)
    assert scrape(viewer)["arrester_tasks"][("flights", "RUNNING")] == 1
    flights.stops()
    found = scrape(viewer)
    assert found["arrester_tasks"][("flights", "RUNNING")] == 0
    assert found["arrester_tasks_without_run"][("flights",)] == 1


def test_every_metric_is_documented(flights: Story, viewer: Client) -> None:
    now = datetime.now(UTC)
    current = codec.InProgress(pipeline="delays", input="batch 7", since=now)
    beat = codec.Heartbeat(at=now, status="RUNNING", in_progress=(current,))
    key = redis_keys.heartbeat("flights", flights.instance)
    redis_client.client().set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)

    store.count_reached("flights", store.Limit.QUARANTINE, count=1, at=now)
    flights.pauses("JFK")
    flights.flows(ago=2, micro_batches=1, durations={"total:3": 1}, backlog=7, last_batch_at=now)
    command = flights.command(flights.pauses("LGA"))
    flights.fetches(command)
    flights.resumes("LGA", command)
    documented = set(re.findall(r"^\| `(arrester_\w+)`", DOCUMENT.read_text(), re.MULTILINE))
    viewer.get("/")
    found = {re.sub("(_bucket|_count|_sum)$", "", name) for name in scrape(viewer)}
    assert found == documented


def test_the_number_of_statements_does_not_grow_with_the_data(
    flights: Story, viewer: Client
) -> None:
    # One cause stops two tasks: only then is its error group read.
    flights.pauses("JFK")
    flights.pauses("LGA")
    with CaptureQueriesContext(connection) as few:
        scrape(viewer)
    for number in range(5):
        flights.pauses(f"gate-{number}")
        actions.open_application(f"orders-{number}", actor="ana")
    with CaptureQueriesContext(connection) as many:
        scrape(viewer)
    assert len(many) == len(few)


def test_without_redis_the_other_metrics_are_served(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "unix:///nowhere/redis.sock")
    found = scrape(viewer)
    assert found["arrester_up"][("redis",)] == 0
    assert "arrester_queue_batches" not in found
    assert found["arrester_events_folded_total"]


def test_failures_are_counted_by_pipeline(flights: Story, viewer: Client) -> None:
    flights.skips("EWR", 40)
    flights.pauses("JFK", held=12)
    common: dict[str, Any] = {"task": "EWR", "place": "/letters", "format": "json"}
    flights.report(
        RecordsDeadLettered(**common, count=39, first_position=1, last_position=39),
        DeadLettersFailed(**common, failures=2, waiting=0, failure=TYPO),
    )
    found, of = scrape(viewer), ("flights", "delays")
    tasks = queries.tasks(queries.TaskFilter(application="flights")).rows
    assert found["arrester_record_errors_total"][of] == sum(each.failed for each in tasks) == 41
    for name, counter in {
        "arrester_record_failures_total": "record_failures",
        "arrester_records_skipped_total": "records_skipped",
        "arrester_retries_total": "total_retries",
        "arrester_errors_logged_total": "failures_logged",
        "arrester_dead_letter_produce_failures_total": "dlq_produce_failures",
    }.items():
        assert found[name][of] == sum(getattr(each.counters, counter) for each in tasks)
    produced = sum(each.counters.dlq_records_produced for each in tasks)
    assert produced >= 39
    assert found["arrester_dead_letter_produce_requests_total"][of] == produced + 2
    last = max(filter(None, (each.counters.last_failure_timestamp for each in tasks)))
    assert found["arrester_last_error_timestamp_seconds"][of] == last.timestamp()


def test_tasks_and_error_groups_add_no_sample(flights: Story, viewer: Client) -> None:
    """10,000 tasks and 100 error groups have as many samples as one of each."""
    now, odd = datetime.now(UTC), '"quoted" \\ of\ntwo lines {of="labels"} ' + "x" * 400
    run = Run(pipeline=flights.pipeline, checkpoint=flights.checkpoint, epoch=flights.epoch)

    def fail(first: int, last: int) -> None:
        events = [
            Event(
                occurred_at=now,
                data=RecordFailed(
                    task=f"{number} {odd}",
                    position=number,
                    failure=msgspec.structs.replace(
                        TYPO,
                        fingerprint=f"1-{number % 100:016x}",
                        stage=f"process:{number % 100} {odd}",
                    ),
                    response=FinalResponse.CONTINUE,
                ),
                run=run,
            )
            for number in range(first, last)
        ]
        streams.append(events, received_at=now)

    fail(0, 1)
    few = scrape(viewer)
    assert few["arrester_record_errors_total"] == {("flights", "delays"): 1}
    fail(1, 10_000)
    many = scrape(viewer)
    assert many["arrester_record_errors_total"] == {("flights", "delays"): 10_000}
    assert many["arrester_tasks"]["flights", "RUNNING"] == 10_000
    # The second scrape has a route more: the first one.
    ours = {each for each in many if not each.startswith("arrester_http_")}
    assert {each: {*many[each]} for each in ours} == {each: {*few[each]} for each in ours}


def test_held_records_have_an_age_and_spools_their_size(flights: Story, viewer: Client) -> None:
    flights.pauses("JFK", held=12)
    models.Task.objects.update(since=datetime.now(UTC) - timedelta(minutes=5))
    now = datetime.now(UTC)
    beat = codec.Heartbeat(
        at=now,
        status="RUNNING",
        spooled=7,
        spool_bytes=512,
        spool_since=now - timedelta(seconds=90),
        counted_only=3,
        batches_dropped=2,
    )
    key = redis_keys.heartbeat("flights", flights.instance)
    redis_client.client().set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)
    found = scrape(viewer)
    assert found["arrester_pipeline_held_records"][("flights", "delays")] == 12
    assert 300 <= found["arrester_pipeline_held_age_seconds"][("flights", "delays")] < 360
    spool = {name: found[f"arrester_spool_{name}"][("flights",)] for name in SPOOL}
    assert spool.pop("age_seconds") == pytest.approx(90, abs=5)
    assert spool == {"events": 7, "bytes": 512, "counted_only_records": 3, "dropped_batches": 2}


def test_commands_have_a_duration_by_the_clock_of_the_server(
    flights: Story, viewer: Client
) -> None:
    command = flights.command(flights.pauses("JFK"))
    issued = datetime.now(UTC) - timedelta(seconds=20)
    row = models.Command.objects.get(id=command)
    state = json.loads(row.state) | {"issued_at": issued.isoformat()}
    models.Command.objects.filter(id=command).update(issued_at=issued, state=json.dumps(state))
    flights.fetches(command)
    flights.resumes("JFK", command)
    found = scrape(viewer)
    buckets = found["arrester_command_duration_seconds_bucket"]
    assert [buckets[("flights", limit)] for limit in ("10.0", "30.0", "+Inf")] == [0, 1, 1]
    assert 20 <= found["arrester_command_duration_seconds_sum"][("flights",)] < 60


def test_requests_are_counted_by_route_and_a_foreign_path_makes_no_label(
    flights: Story, viewer: Client
) -> None:
    task = flights.pauses("JFK")
    for path in (reverse("task", args=[task.digest]), f"/nowhere/{uuid4()}", "/tasks"):
        viewer.get(path)
    # What another version has counted, and a second web process.
    metric_sums.count(metric_sums.HTTP_REQUESTS, "/of/another/version", "2xx")
    metric_sums.flush()
    metric_sums.count(metric_sums.HTTP_REQUESTS, "/tasks", "2xx")
    found = scrape(viewer)
    requests = found["arrester_http_requests_total"]
    assert (requests[("/tasks", "2xx")], requests[("", "4xx")]) == (2, 1)
    assert requests[("/tasks/<digest:digest>", "2xx")] == 1
    routes = {route for route, _ in requests}
    assert routes <= server._routes() and len(server._routes()) < 300
    assert found["arrester_http_request_duration_seconds_count"][("/tasks",)] == 1


def test_sums_wait_while_redis_is_away(
    redis: Redis, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(settings, "REDIS_URL", "unix:///nowhere/redis.sock")
        metric_sums.count("test", "a")
        assert metric_sums.read() == {}
    metric_sums.count("test", "a")
    assert metric_sums.read()[("test", "a")] == 2


def test_folds_and_their_errors_are_counted(
    flights: Story, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = scrape(viewer)
    flights.skips("JFK", 1)
    monkeypatch.setattr(
        fold_stream, "fold", Mock(side_effect=BrokenState("task", "a row", "a reason"))
    )
    with pytest.raises(BrokenState):
        flights.skips("JFK", 1)
    after = scrape(viewer)
    changes = [
        after[name][()] - before[name][()]
        for name in ("arrester_fold_duration_seconds_count", "arrester_fold_errors_total")
    ]
    assert changes == [1, 1]


def test_metrics_need_an_account(db: None) -> None:
    assert Client().get("/metrics").status_code in (401, 403)


def test_pipelines_have_their_flow(flights: Story, viewer: Client) -> None:
    flights.flows(
        ago=2,
        micro_batches=4,
        records_in=100,
        records_out=98,
        failed=2,
        skipped=2,
        durations={"total:0": 3, "total:42": 1},
        backlog=7,
        last_batch_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
    )
    flights.flows(ago=1, records_in=10, records_out=10)
    found, of = scrape(viewer), ("flights", "delays")
    records = found["arrester_pipeline_records_total"]
    outcomes = ("read", "written", "skipped", "held")
    assert {each: records[("flights", each, "delays")] for each in outcomes} == {
        "read": 110,
        "written": 108,
        "skipped": 2,
        "held": 0,
    }
    assert found["arrester_pipeline_batches_total"][of] == 4
    buckets = found["arrester_pipeline_batch_duration_seconds_bucket"]
    limits = ("0.1", "5", "+Inf")
    assert [buckets[("flights", limit, "delays")] for limit in limits] == [3, 4, 4]
    assert found["arrester_pipeline_backlog"][of] == 7
    assert found["arrester_pipeline_running"][of] == 1
    assert found["arrester_pipeline_paused"][of] == 0
    assert found["arrester_pipeline_last_batch_timestamp_seconds"][of] == 1795176000
