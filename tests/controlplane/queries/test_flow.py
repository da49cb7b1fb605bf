"""What flows through pipelines: now, over time, and by run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from django.db import connection
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import queries
from arrester.controlplane.queries import Duration, FlowSums, Trend
from arrester.domain import durations
from arrester.domain.commands import agent_versions
from arrester.domain.errors import NotFound
from arrester.domain.events import (
    Event,
    EventData,
    FinalResponse,
    FlowMeasured,
    InstanceStarted,
    RecordFailed,
    Run,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.live_runs import RunStatus
from arrester.domain.wire import codec
from benchmarks.flow import fill_statements, fill_values
from benchmarks.sample_history import PIPELINE
from tests.controlplane import streams
from tests.histories import APPLICATION, FAILURE, INSTANCE, OTHER_INSTANCE

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, 30, 40, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RUN = Run(pipeline="delays", checkpoint="cp-1", epoch=1)


def event(
    data: EventData, at: datetime, *, run: Run | None = RUN, instance: UUID = INSTANCE
) -> Event:
    return Event(occurred_at=at, data=data, instance=instance, run=run)


def started(at: datetime, *, run: Run = RUN, release: str | None = None) -> list[Event]:
    version = {agent_versions.REPORTED_AS: str(agent_versions.VERSION)}
    versions = version if release is None else version | {"release": release}
    instance = InstanceStarted(host="spark-1", pid=7, versions=versions)
    return [event(instance, at, run=None), event(ThreadStarted(), at, run=run)]


def measured(ago: int, *, run: Run = RUN, **values: object) -> Event:
    """Return what was measured in the minute that began some minutes ago."""
    minute = (NOW - ago * MINUTE).replace(second=0)
    data = FlowMeasured(minute=minute, **values)  # type: ignore[arg-type]  # by the caller's names
    return event(data, minute + MINUTE, run=run)


def append(*events: Event) -> None:
    streams.append(events, received_at=NOW)


def test_a_line_has_rates_shares_and_the_newest_values() -> None:
    last = NOW - MINUTE
    append(
        *started(NOW - 90 * MINUTE, release="1.4.2"),
        measured(50, records_in=400, failed=10, durations={"total:10": 18}),
        measured(5, records_in=600, records_out=300, held=300, backlog=100, backlog_unit="records"),
        measured(1, micro_batches=2, durations={"total:50": 2}, backlog=300, last_batch_at=last),
    )
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.run, line.release, line.checkpoint) == (RunStatus.RUNNING, "1.4.2", "cp-1")
    assert (line.records_in_per_second, line.records_out_per_second) == (2.0, 1.0)
    assert line.recent == FlowSums(
        micro_batches=2, records_in=1000, records_out=300, failed=10, held=300
    )
    assert line.failed_share == 0.01
    assert line.batch_p95_ms == durations.middle_of(50)
    assert (line.newest.backlog, line.newest.backlog_unit) == (300, "records")
    assert (line.newest.last_batch_at, line.backlog_trend) == (last, Trend.GROWS)


@pytest.mark.parametrize(
    ("backlogs", "unit", "trend"),
    [
        # 100 records are read in a second.
        ((100, 5_900), "records", Trend.STEADY),
        ((5_900, 0), "records", Trend.STEADY),
        ((100, 6_200), "records", Trend.GROWS),
        ((100_000, 109_000), "records", Trend.STEADY),
        ((100_000, 80_000), "records", Trend.SHRINKS),
        ((3, 5), "files", Trend.GROWS),
    ],
)
def test_a_backlog_grows_by_more_than_is_read_in_a_minute(
    backlogs: tuple[int, int], unit: str, trend: Trend
) -> None:
    first, last = backlogs
    append(
        *started(NOW - 90 * MINUTE),
        measured(5, records_in=30_000, backlog=first, backlog_unit=unit),
        measured(1, backlog=last, backlog_unit=unit),
    )
    [line] = queries.pipeline_flows(now=NOW)
    assert line.backlog_trend == trend


def test_what_is_not_known_is_no_number() -> None:
    append(*started(NOW - 90 * MINUTE))
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.recent, line.records_in_per_second, line.failed_share) == (None, None, None)
    assert (line.batch_p95_ms, line.newest.backlog, line.backlog_trend) == (None, None, None)


def test_an_idle_pipeline_reads_nothing_and_one_without_a_run_has_no_rate() -> None:
    other = Run(pipeline="gates", checkpoint="cp-2", epoch=1)
    append(
        *started(NOW - 90 * MINUTE),
        measured(80, records_in=5),
        *started(NOW - 90 * MINUTE, run=other),
        measured(3, records_in=5, run=other),
        event(ThreadDied(reason="failed", failure=FAILURE), NOW - 2 * MINUTE, run=other),
    )
    dead, idle = queries.pipeline_flows(now=NOW)
    assert (dead.pipeline, dead.run) == ("gates", RunStatus.DEAD)
    assert (dead.records_in_per_second, dead.recent) == (None, FlowSums(records_in=5))
    assert (idle.records_in_per_second, idle.recent) == (0.0, FlowSums())
    assert queries.pipeline_flow(APPLICATION, "delays", now=NOW) == idle
    with pytest.raises(NotFound, match="there is no pipeline 'x' in 'flights'"):
        queries.pipeline_flow(APPLICATION, "x", now=NOW)


def test_the_rate_of_a_young_run_is_that_of_its_own_time() -> None:
    append(*started(NOW - timedelta(seconds=100)), measured(1, records_in=60))
    [line] = queries.pipeline_flows(now=NOW)
    assert line.records_in_per_second == 1.0


QUERY = Run(pipeline="rollup", checkpoint="q-1", epoch=0)
OBSERVED = ThreadStarted(observed=True)


def test_an_unguarded_query_is_listed_with_its_run_and_its_end() -> None:
    [instance, _] = started(NOW - 90 * MINUTE)
    start = event(OBSERVED, NOW - 30 * MINUTE, run=QUERY)
    append(instance, start, measured(2, run=QUERY, records_in=30))
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.run, line.observed) == (RunStatus.RUNNING, True)
    assert (line.records_in_per_second, line.records_out_per_second) == (0.1, None)
    assert line.failed_share is None

    died = ThreadDied(reason="failed", failure=FAILURE, recordless=True)
    append(event(died, NOW - MINUTE, run=QUERY))
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.run, line.observed, line.reason) == (RunStatus.DEAD, True, "failed")
    append(event(OBSERVED, NOW, run=QUERY))
    [line] = queries.pipeline_flows(now=NOW)
    assert line.run is RunStatus.RUNNING
    newest, first = queries.past_runs(APPLICATION, "rollup")
    assert (newest.started_at, newest.ended_at) == (NOW, None)
    assert (first.started_at, first.ended_at) == (NOW - 30 * MINUTE, NOW - MINUTE)
    assert first.failure == FAILURE


def test_a_name_has_one_line_of_its_newest_unguarded_query_or_of_its_run() -> None:
    newer = replace(QUERY, checkpoint="q-2")
    append(
        event(OBSERVED, NOW - 9 * MINUTE, run=newer), event(OBSERVED, NOW - 30 * MINUTE, run=QUERY)
    )
    [line] = queries.pipeline_flows(now=NOW)
    assert line.checkpoint == "q-2"
    append(*started(NOW - 10 * MINUTE, run=replace(RUN, pipeline="rollup")))
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.checkpoint, line.observed) == ("cp-1", False)


def test_what_flowed_before_a_restart_is_divided_by_its_time() -> None:
    append(*started(NOW - 90 * MINUTE), *(measured(ago, records_in=600) for ago in range(1, 6)))
    again = replace(RUN, epoch=2)
    append(event(ThreadStarted(), NOW - timedelta(seconds=50), run=again))
    [line] = queries.pipeline_flows(now=NOW)
    assert line.records_in_per_second == 10


def test_a_run_without_a_whole_minute_has_no_numbers() -> None:
    append(*started(NOW - timedelta(seconds=35)))
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.recent, line.records_in_per_second) == (None, None)
    # What is reported counts at once, a rate needs a minute.
    append(measured(0, records_in=7))
    [line] = queries.pipeline_flows(now=NOW)
    assert line.recent is not None
    assert (line.recent.records_in, line.records_in_per_second) == (7, None)


def test_an_older_agent_after_a_newer_one_measures_nothing() -> None:
    append(*started(NOW - 90 * MINUTE), measured(9, records_in=600, last_batch_at=NOW))
    versions = {agent_versions.REPORTED_AS: "1"}
    older = InstanceStarted(host="spark-1", pid=8, versions=versions)
    run = replace(RUN, epoch=2)
    append(
        event(older, NOW - 8 * MINUTE, run=None, instance=OTHER_INSTANCE),
        event(ThreadStarted(), NOW - 8 * MINUTE, run=run, instance=OTHER_INSTANCE),
    )
    [line] = queries.pipeline_flows(now=NOW)
    assert (line.run, line.recent, line.records_in_per_second) == (RunStatus.RUNNING, None, None)
    assert line.newest.last_batch_at is None


def test_a_series_has_the_steps_in_which_something_was_measured() -> None:
    noon = NOW.replace(hour=12, minute=0, second=0)
    other = Run(pipeline="delays", checkpoint="cp-2", epoch=1)
    append(
        measured(30, records_in=1, durations={"total:0": 1, "total:10": 1}, backlog=7),
        measured(30, records_in=2, run=other),
        measured(28, records_in=4, run=Run(pipeline="gates", checkpoint="cp-9", epoch=1)),
    )
    first, *rest = queries.flow_series(
        since=noon, until=NOW, step=MINUTE, application=APPLICATION, pipeline="delays"
    )
    assert (first.moment, first.sums.records_in, first.backlog, rest) == (noon, 3, 7, [])
    longest = durations.middle_of(10)
    assert first.durations == {"total": Duration(p50_ms=1, p95_ms=longest, longest_ms=longest)}
    [hour] = queries.flow_series(since=noon, until=NOW, step=timedelta(hours=1))
    assert (hour.sums.records_in, hour.durations) == (7, {})


def test_runs_have_their_ends_and_what_they_processed() -> None:
    second = replace(RUN, epoch=2)
    append(
        *started(NOW - 20 * MINUTE, release="1.0"),
        measured(20, records_in=5),
        event(ThreadDied(reason="failed", failure=FAILURE), NOW - 10 * MINUTE),
        *started(NOW - 9 * MINUTE, run=second),
        measured(10, records_in=3, run=second),
    )
    newest, oldest = queries.past_runs(APPLICATION, "delays")
    assert (newest.epoch, newest.ended_at, newest.flow) == (2, None, FlowSums(records_in=3))
    assert (oldest.seconds, oldest.reason, oldest.failure) == (600, "failed", FAILURE)
    assert oldest.flow == FlowSums(records_in=5)
    assert queries.past_runs(APPLICATION, "delays", limit=1) == (newest,)
    ends = queries.run_ends([(APPLICATION, "delays"), (APPLICATION, "gates")])
    assert [(each.ended_at, each.failed) for each in ends[APPLICATION, "delays"]] == [
        (NOW - 10 * MINUTE, True)
    ]
    assert ends[APPLICATION, "gates"] == []


def test_a_heartbeat_is_newer_than_the_last_minute(redis: Redis) -> None:
    now = datetime.now(UTC)
    streams.append(started(now - 90 * MINUTE), received_at=now)
    ahead = timedelta(seconds=40)
    last = now - timedelta(seconds=3)
    flow = codec.RunFlow(
        pipeline="delays",
        checkpoint="cp-1",
        last_batch_at=last + ahead,
        backlog=41,
        backlog_unit="records",
    )
    beat = codec.Heartbeat(
        at=now + ahead,
        status="RUNNING",
        flow=(flow,),
        spooled=7,
        spool_since=now + ahead - MINUTE,
    )
    key = redis_keys.heartbeat(APPLICATION, INSTANCE)
    redis.set(key, msgspec.json.encode(beat), ex=redis_keys.LOST_AFTER_SECONDS)
    [line] = queries.pipeline_flows(now=now)
    assert (line.newest.backlog, line.newest.backlog_unit) == (41, "records")
    found = line.newest.last_batch_at
    assert found is not None and abs(found - last) < timedelta(seconds=5)
    reports = queries.reports(queries.instances(APPLICATION))
    assert reports.waiting == 7 and reports.waiting_since is not None
    assert abs(reports.waiting_since - (now - MINUTE)) < timedelta(seconds=5)
    redis.delete(key)
    [line] = queries.pipeline_flows(now=now)
    assert (line.newest.backlog, queries.reports(queries.instances(APPLICATION)).waiting) == (
        None,
        0,
    )


def test_an_error_is_new_since_the_release_in_which_it_was_first_seen() -> None:
    assert queries.first_release(APPLICATION, NOW) is None
    append(*started(NOW - 60 * MINUTE, release="1.4.1"))
    first = queries.first_release(APPLICATION, NOW)
    assert first is not None and (first.release, first.is_new) == ("1.4.1", False)
    other = InstanceStarted(host="spark-2", pid=8, versions={"release": "1.4.2"})
    append(event(other, NOW - 30 * MINUTE, run=None, instance=OTHER_INSTANCE))
    first = queries.first_release(APPLICATION, NOW)
    assert first is not None and (first.release, first.is_new) == ("1.4.2", True)
    before = queries.first_release(APPLICATION, NOW - 45 * MINUTE)
    assert before is not None and before.release == "1.4.1"
    assert queries.first_release(APPLICATION, None) is None


def test_the_flow_that_the_benchmark_of_pages_adds_is_shown() -> None:
    run = Run(pipeline=PIPELINE, checkpoint="cp-1", epoch=1)
    failed = RecordFailed(task="JFK", position=1, failure=FAILURE, response=FinalResponse.CONTINUE)
    append(*started(NOW - 90 * MINUTE, run=run), event(failed, NOW, run=run))
    with connection.cursor() as cursor:
        for statement in fill_statements():
            cursor.execute(statement, fill_values(days=1))

    [line] = queries.pipeline_flows(now=datetime.now(UTC))
    assert line.recent is not None
    assert line.recent.micro_batches > 0
    assert line.recent.records_in == 1_000 * line.recent.micro_batches
    assert line.newest.backlog == 100
