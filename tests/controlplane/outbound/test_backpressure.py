"""Overload: agents report counts in time, Redis stays bounded, and the sums are exact."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from redis import Redis

from arrester.agents.transport.redis_client import RedisClient
from arrester.agents.transport.sender import Sender
from arrester.agents.transport.spool import Spool
from arrester.controlplane import embedded, queries, store
from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.celery_workers import FOLDS, HOUSEKEEPING
from arrester.controlplane.ingest import fold_requests, fold_stream
from arrester.controlplane.management.commands.wake import MAXIMUM_MESSAGES, Waker
from arrester.controlplane.outbound import backpressure
from arrester.domain.events import FailuresCounted, TaskPaused
from arrester.domain.identity import redis_keys, uuids
from arrester.domain.wire import codec
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE
from tests.patience import wait_until

pytestmark = pytest.mark.usefixtures("fresh_database")
NOW = datetime.now(UTC)
STREAM_LIMIT = 100


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the limits to eight batches and 30 seconds."""
    environment = replace(settings.ENVIRONMENT, overload_seconds=30, overload_batches=8)
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)


def test_counts_are_requested_above_a_limit_until_the_backlog_is_small(
    redis: Redis, limits: None
) -> None:
    key = redis_keys.overload(APPLICATION)
    for _ in range(8):
        streams.send(redis, [histories.failed(1)])
    assert not backpressure.watch(APPLICATION, now=NOW)
    streams.send(redis, [histories.failed(1)])
    assert backpressure.watch(APPLICATION, now=NOW)
    assert redis.get(key) == b"COUNTS"
    assert 0 < redis.ttl(key) <= redis_keys.OVERLOAD_SECONDS
    # The overload does not end just below the limit.
    redis.xtrim(redis_keys.events(APPLICATION), maxlen=3, approximate=False)
    assert backpressure.watch(APPLICATION, now=NOW)
    redis.xtrim(redis_keys.events(APPLICATION), maxlen=2, approximate=False)
    assert not backpressure.watch(APPLICATION, now=NOW)
    assert not redis.exists(key)


def test_a_long_wait_is_an_overload_too(redis: Redis, limits: None) -> None:
    streams.send(redis, [histories.failed(1)])
    now = datetime.now(UTC)
    assert not backpressure.watch(APPLICATION, now=now + timedelta(seconds=29))
    assert backpressure.watch(APPLICATION, now=now + timedelta(seconds=31))
    assert backpressure.watch(APPLICATION, now=now + timedelta(seconds=9))
    assert not backpressure.watch(APPLICATION, now=now + timedelta(seconds=5))


def test_the_lag_contains_the_delay_of_the_fold(redis: Redis) -> None:
    body = codec.encode_batch([histories.failed(1)])
    begin = int(datetime.now(UTC).timestamp() * 1000) - 100_000
    streams.put(redis, streams.fields(uuids.uuid7(NOW), body), id=f"{begin}-0")
    fold_stream.fold_stream(APPLICATION)
    assert (queries.lag(APPLICATION).fold_seconds, queries.lag(APPLICATION).waiting) == (0, 0)
    for seconds in (10, 40):
        id = f"{begin + seconds * 1000}-0"
        streams.put(redis, streams.fields(uuids.uuid7(NOW), body), id=id)
    lag = queries.lag(APPLICATION)
    assert (lag.waiting, lag.fold_seconds, lag.overloaded) == (2, 30, False)
    assert lag.waiting_seconds == pytest.approx(90, abs=30)


@pytest.mark.parametrize("id", ["253402300800000-0", "18446744073709551615-1"])
def test_an_entry_with_an_impossible_year_blocks_no_other(redis: Redis, id: str) -> None:
    body = codec.encode_batch([histories.failed(1)])
    streams.put(redis, streams.fields(uuids.uuid7(NOW), body), id=id)
    store.open_stream(APPLICATION)
    Waker().poll()
    assert queries.lag(APPLICATION).waiting == 1
    fold_stream.fold_stream(APPLICATION)
    lag = queries.lag(APPLICATION)
    assert (lag.sequence, lag.waiting, lag.fold_seconds) == (1, 0, 0)


def test_a_key_of_another_type_hides_the_lag_of_its_application_only(redis: Redis) -> None:
    for application in ("broken", APPLICATION):
        store.open_stream(application)
    redis.set(redis_keys.events("broken"), "no stream")
    streams.send(redis, [histories.failed(1)])
    assert [(each.application, each.waiting) for each in queries.lags()] == [
        ("broken", None),
        (APPLICATION, 1),
    ]


def test_a_flood_without_workers_is_bounded_and_the_sums_add_up(
    redis: Redis, limits: None, services: embedded.Urls, tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool.sqlite", id=streams.SPOOL, limit_bytes=2**30)
    transport = RedisClient(
        services.redis, application=APPLICATION, instance=INSTANCE, stream_limit=STREAM_LIMIT
    )
    sender = Sender(spool, transport, heartbeat=lambda: b"alive")
    stream = redis_keys.events(APPLICATION)

    def flood(batches: int) -> None:
        for _ in range(batches):
            events = [histories.failed(number) for number in range(20)]
            spool.put(uuids.uuid7(datetime.now(UTC)), events)

    def is_obeyed() -> bool:
        assert redis.xlen(stream) <= STREAM_LIMIT
        backpressure.watch(APPLICATION, now=datetime.now(UTC))
        return spool.counts_only

    sender.start()
    try:
        flood(120)
        wait_until(is_obeyed)
        flood(120)
        spool.put(uuids.uuid7(datetime.now(UTC)), histories.paused())
        # Changes of states are reported in full.
        assert redis.xlen(stream) <= STREAM_LIMIT

        def is_folded() -> bool:
            fold_stream.fold_stream(APPLICATION)
            backpressure.watch(APPLICATION, now=datetime.now(UTC))
            return spool.events == 0

        wait_until(is_folded)
    finally:
        sender.stop(flush_seconds=1)
        transport.close()
        spool.close()
    failed = queries.application(APPLICATION).state.failed
    assert failed == 240 * 20 + 1
    log = streams.log()
    assert any(isinstance(each.event.data, FailuresCounted) for each in log)
    assert any(isinstance(each.event.data, TaskPaused) for each in log)
    assert not redis.exists(redis_keys.overload(APPLICATION))
    streams.assert_exact()


def test_agents_learn_the_memory_that_they_may_use(redis: Redis) -> None:
    streams.send(redis, [histories.failed(1)])
    key, waker = redis_keys.memory_limit(APPLICATION), Waker()
    limit = int(redis.config_get("maxmemory")["maxmemory"] or 0)
    waker.poll()
    assert redis.get(key) == str(limit * 3 // 4).encode()
    redis.config_set("maxmemory", 0)
    try:
        waker.next_sweep = 0.0
        waker.poll()
    finally:
        redis.config_set("maxmemory", limit)
    assert redis.get(key) == b"0"


def test_the_queues_of_another_broker_are_read_there(
    redis: Redis, services: embedded.Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = services.redis.replace("db=0", "db=1")
    assert other != services.redis
    monkeypatch.setattr(settings, "BROKER_URL", other)
    with Redis.from_url(other) as broker:
        broker.rpush(STREAM_FOLDS, *["x"] * MAXIMUM_MESSAGES)
        broker.rpush(FOLDS, *["x"] * MAXIMUM_MESSAGES)
        message = fold_requests.claim([APPLICATION])[APPLICATION]
        streams.send(redis, [histories.failed(1)])
        broker.rpush(STREAM_FOLDS, msgspec.json.encode({"headers": {"id": message}}))
        redis.expire(redis_keys.pending_fold(APPLICATION), 1)
        assert fold_requests.unrequested([APPLICATION]) == (set(), set())
    # The key of a queued message was renewed.
    assert redis.ttl(redis_keys.pending_fold(APPLICATION)) > 1
    Waker().poll()
    assert not redis.llen(FOLDS) and not redis.llen(STREAM_FOLDS)


def test_the_queue_of_the_broker_is_bounded_without_workers(redis: Redis) -> None:
    store.open_stream(APPLICATION)
    streams.send(redis, [histories.failed(1)])
    for queue in (FOLDS, STREAM_FOLDS):
        redis.rpush(queue, *["x"] * MAXIMUM_MESSAGES)
    waker = Waker()
    waker.poll()
    assert redis.llen(FOLDS) == redis.llen(STREAM_FOLDS) == MAXIMUM_MESSAGES
    # The housekeeper runs: audit and quotas are checked.
    assert redis.llen(HOUSEKEEPING) == 2
    redis.delete(FOLDS, STREAM_FOLDS, redis_keys.pending_fold(APPLICATION))
    waker.next_sweep = 0.0
    waker.poll()
    # The three periodic tasks; one fold.
    assert (redis.llen(FOLDS), redis.llen(STREAM_FOLDS)) == (3, 1)
