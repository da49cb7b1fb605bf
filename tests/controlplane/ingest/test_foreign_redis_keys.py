"""A key of another type with the name of a stream: other applications continue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import pytest
from django.conf import settings
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import actions, queries, tasks
from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.ingest import fold_requests, fold_stream
from arrester.controlplane.management.commands import wake
from arrester.controlplane.redis import heartbeats, reachability, redis_client
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams

pytestmark = pytest.mark.usefixtures("fresh_database")
APPLICATIONS = ("alpha", "beta", "gamma")
OTHERS = {"alpha", "gamma"}


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requests of the waker: applications to fold, or names of tasks."""
    found: list[str] = []
    monkeypatch.setattr(
        wake.Waker, "_send", lambda _, task, *args, **__: found.append(*args or [task.name])
    )
    monkeypatch.setattr(wake, "POLL_SECONDS", 0.05)
    return found


def send_to_all(redis: Redis) -> None:
    for application in APPLICATIONS:
        instance = uuid4()
        started = [replace(each, instance=instance) for each in histories.started()]
        streams.send(redis, started, application=application)


@pytest.fixture
def waker(redis: Redis, requested: list[str]) -> wake.Waker:
    """Return a waker with three known streams; one became another type, two have entries."""
    send_to_all(redis)
    reachability.check_redis(now=datetime.now(UTC))  # Otherwise it would sweep at once.
    waker = wake.Waker()
    waker.poll()
    assert set(APPLICATIONS) < set(requested)
    requested.clear()
    redis.set(redis_keys.events("beta"), "whose?")
    for application in APPLICATIONS:
        redis.delete(redis_keys.pending_fold(application))
    return waker


def test_wake_searches_for_streams_again(
    redis: Redis, waker: wake.Waker, requested: list[str]
) -> None:
    """Its sweep finds out first; between them it is no stream with entries."""
    waker.poll()
    assert set(requested) == OTHERS


def test_the_sweep_of_wake_ignores_a_foreign_key(waker: wake.Waker, requested: list[str]) -> None:
    waker.next_sweep = 0.0
    waker.poll()
    periodic = {"arrester.sweep", "arrester.watch", "arrester.alert"}
    assert set(requested) == OTHERS | periodic
    assert set(map(redis_keys.application_of, waker.streams)) == OTHERS


@pytest.fixture
def folded(redis: Redis) -> Redis:
    """Return a Redis client and store three applications."""
    send_to_all(redis)
    for application in APPLICATIONS:
        fold_stream.fold_stream(application)
        redis.delete(redis_keys.state(application))
    return redis


def test_other_applications_are_relayed(folded: Redis) -> None:
    folded.set(redis_keys.commands("beta"), "whose?")
    tasks.sweep()
    assert all(folded.exists(redis_keys.state(application)) for application in OTHERS)


def test_timeouts_of_other_applications_are_checked(folded: Redis) -> None:
    folded.set(redis_keys.events("beta"), "whose?")
    now = datetime.now(UTC)
    watched = reachability.Watch(since=now - timedelta(hours=1), last=now)
    folded.set(redis_keys.WATCH, msgspec.json.encode(watched))
    assert actions.watch(now=now) == 2
    lost = {name for name in APPLICATIONS if any(each.lost for each in queries.instances(name))}
    assert lost == OTHERS


def test_an_outage_ends_the_round(folded: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "unix:///nowhere/redis.sock")
    for operation in (tasks.sweep, actions.watch, wake.Waker().poll):
        with pytest.raises(redis_client.RedisError) as away:
            operation()
        assert not isinstance(away.value, redis_client.ResponseError)


@pytest.mark.parametrize("value", [b"{}", b'{"status": "\xff"}', b"\xff", b"[" * 10_000])
def test_an_invalid_heartbeat_is_one_without_content(redis: Redis, value: bytes) -> None:
    instance = uuid4()
    redis.set(redis_keys.heartbeat("alpha", instance), value, ex=redis_keys.LOST_AFTER_SECONDS)
    assert heartbeats.read([("alpha", instance)])[instance].heartbeat is None
    assert heartbeats.with_heartbeat("alpha", [instance]) == {instance}


@pytest.mark.parametrize("value", [b"whose?", b"9" * 30, b"-1"])
def test_an_invalid_end_of_a_log_is_no_gap(redis: Redis, value: bytes) -> None:
    redis.set(redis_keys.log_end("alpha"), value)
    send_to_all(redis)
    assert fold_stream.fold_stream("alpha").events
    assert queries.log_gaps() == ()


def test_an_invalid_message_of_the_queue_hides_no_other(redis: Redis) -> None:
    message = fold_requests.claim(["alpha"])["alpha"]
    for text in (b'{"headers": {"id": "\xff"}}', msgspec.json.encode({"headers": {"id": message}})):
        redis.lpush(STREAM_FOLDS, text)
    redis.persist(redis_keys.pending_fold("alpha"))
    fold_requests.unrequested(["alpha"])
    # The key of a queued message is renewed.
    assert redis.ttl(redis_keys.pending_fold("alpha")) > 0
