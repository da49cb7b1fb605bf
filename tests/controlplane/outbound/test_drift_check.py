"""Heartbeats contain a hash of the task states, and a view that differs is corrected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from redis import Redis

from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.outbound import drift_check
from arrester.domain.identity import redis_keys
from arrester.domain.state import drift
from arrester.domain.state.states import TaskState, TaskStatus
from arrester.domain.wire import codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, JFK, RUN

pytestmark = pytest.mark.usefixtures("fresh_database")

NOW = datetime.now(UTC)


@pytest.fixture
def paused(redis: Redis) -> Redis:
    """Return Redis, with a view in which JFK is PAUSED."""
    streams.send(redis, [*histories.started(), *histories.paused()])
    fold_stream.fold_stream(APPLICATION)
    return redis


def beat(redis: Redis, number: int, *tasks: TaskState, epoch: int = 1) -> list[UUID]:
    """Send a heartbeat in which only `tasks` do not run; return who has to send a report."""
    at = NOW + timedelta(seconds=5 * number)
    run = msgspec.structs.replace(RUN, epoch=epoch)
    standing = drift.state_hash([drift.weight(tasks)])
    heartbeat = codec.Heartbeat(at=at, status="RUNNING", runs=(run,), standing=standing)
    key = redis_keys.heartbeat(APPLICATION, INSTANCE)
    redis.set(key, msgspec.json.encode(heartbeat), ex=redis_keys.LOST_AFTER_SECONDS)
    return drift_check.check(APPLICATION, [INSTANCE], now=at)


def test_a_lasting_difference_is_repaired_by_a_requested_report(paused: Redis) -> None:
    requested = [beat(paused, number) for number in range(5)]
    assert requested == [[], [], [INSTANCE], [], []]
    assert paused.get(redis_keys.report(APPLICATION, INSTANCE)) is not None

    streams.send(paused, [histories.event(each) for each in drift.report([])])
    fold_stream.fold_stream(APPLICATION)

    task = streams.task(JFK.digest)
    assert (task.status, task.position, task.held) == (TaskStatus.RUNNING, None, 0)
    assert streams.log()[-1].event.type == "StateReported"
    streams.assert_exact()
    assert beat(paused, 6) == []
    assert paused.get(redis_keys.drift(APPLICATION, INSTANCE)) is None


def test_no_report_is_requested_for_equal_states(paused: Redis) -> None:
    same = streams.task(JFK.digest)
    assert [beat(paused, number, same) for number in range(5)] == [[]] * 5


def test_one_heartbeat_read_twice_counts_once(paused: Redis) -> None:
    assert [beat(paused, 0) for _ in range(5)] == [[]] * 5


def test_no_report_is_requested_while_events_are_in_transit(paused: Redis) -> None:
    assert [beat(paused, number, epoch=2) for number in range(5)] == [[]] * 5
    streams.put(paused, {"of": "another"})
    assert [beat(paused, 1000 + number) for number in range(5)] == [[]] * 5
