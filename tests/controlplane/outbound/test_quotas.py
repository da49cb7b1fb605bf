"""Quotas: the agents of an application above one report counts only; others are not affected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from msgspec.structs import replace as replaced
from redis import ConnectionError, Redis

from arrester.controlplane import queries, quotas, store, tasks
from arrester.controlplane.celery_workers import HOUSEKEEPING
from arrester.controlplane.ingest import fold_stream
from arrester.controlplane.management.commands.wake import PERIODIC, Waker
from arrester.controlplane.outbound import agent_connections, backpressure, quota_check
from arrester.controlplane.queries import conditions
from arrester.controlplane.queries.conditions.causes import AlertCause
from arrester.controlplane.quotas import DEFAULTS, Quota
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    Event,
    EventData,
    InstanceStarted,
    InstanceStopped,
    RecordFailed,
)
from arrester.domain.identity import redis_keys
from tests import histories
from tests.controlplane import streams
from tests.histories import APPLICATION, INSTANCE, RUN

pytestmark = pytest.mark.usefixtures("fresh_database")
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUIET = "quiet"


def allow(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Set the quotas of applications."""
    environment = replace(settings.ENVIRONMENT, quotas=quotas.parse(text))
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)


def send(redis: Redis, *events: Event, application: str = APPLICATION) -> None:
    streams.send(redis, events, application=application)
    fold_stream.fold_stream(application)


def in_pipeline(name: str) -> list[Event]:
    """Return the start of another pipeline."""
    return [replaced(each, run=replaced(RUN, pipeline=name)) for each in histories.started()[-1:]]


def instance(number: int, *, ends: bool = False) -> Event:
    data: EventData = InstanceStarted(host="h", pid=number)
    if ends:
        data = InstanceStopped(reason="done")
    return Event(occurred_at=NOW, data=data, instance=UUID(int=number))


def exceeded(application: str = APPLICATION) -> list[tuple[Quota, int, int]]:
    usage = quota_check.usages()[application]
    return [(each.quota, each.value, each.most) for each in usage.exceeded]


def test_quotas_are_those_of_all_applications_or_of_one() -> None:
    found = quotas.parse("groups=7, flights:groups=9,flights:redis_mb=1")
    assert found.of("flights") == {**DEFAULTS, Quota.GROUPS: 9, Quota.REDIS_MB: 1}
    assert found.of("orders") == {**DEFAULTS, Quota.GROUPS: 7}
    assert quotas.parse("").of("orders") == DEFAULTS


@pytest.mark.parametrize(
    "text",
    ["groups", "groups=", "groups=0", "groups=x", "group=1", "A b:groups=1", "tasks=9999999999999"],
)
def test_an_invalid_quota_is_refused_with_the_allowed_ones(text: str) -> None:
    with pytest.raises(InvalidValue, match="events, groups, tasks, pipelines, instances"):
        quotas.parse(text)


def failures(*, keys: int = 1, groups: int = 1) -> list[Event]:
    """Return failures of some tasks, each with some causes."""
    found = []
    for key in range(keys):
        failed = histories.failed(key, key=f"key-{key}")
        assert isinstance(failed.data, RecordFailed)
        for number in range(groups):
            failure = replaced(failed.data.failure, fingerprint=f"cause-{number}")
            found.append(replaced(failed, data=replaced(failed.data, failure=failure)))
    return found


@pytest.mark.parametrize(
    ("quota", "events", "value"),
    [
        (Quota.GROUPS, failures(groups=3), 3),
        (Quota.TASKS, failures(keys=3), 3),
        (Quota.PIPELINES, [each for name in "abc" for each in in_pipeline(name)], 3),
        (Quota.INSTANCES, [*map(instance, range(1, 5)), instance(4, ends=True)], 3),
    ],
)
def test_what_exceeds_a_quota_is_requested_to_report_counts_only(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, quota: Quota, events: list[Event], value: int
) -> None:
    send(redis, *events)
    send(redis, histories.failed(1), application=QUIET)
    key = redis_keys.overload(APPLICATION)

    allow(monkeypatch, f"{quota}={value}")
    quota_check.check(now=NOW)
    assert exceeded() == []
    assert not backpressure.watch(APPLICATION, now=NOW)

    allow(monkeypatch, f"{quota}={value - 1}")
    quota_check.check(now=NOW)
    assert exceeded() == [(quota, value, value - 1)]
    assert backpressure.watch(APPLICATION, now=NOW)
    assert redis.get(key) == b"COUNTS"
    # Another application goes on.
    assert exceeded(QUIET) == []
    assert not backpressure.watch(QUIET, now=NOW)
    # It is an alert, a line of the application and a finding, and no delay of the server.
    found = conditions.lasting(now=NOW).conditions
    named = [(each.cause, each.application) for each in found if each.cause in _OF_SERVER]
    assert named == [(AlertCause.QUOTA_EXCEEDED, APPLICATION)]
    text = f"{value:,} {quota.unit}, {value - 1:,} are allowed"
    assert [each.value for each in queries.findings() if each.check == "quota"] == [
        f"{APPLICATION}: {text}; its agents report counts only"
    ]
    (reached,) = queries.limits_reached(APPLICATION)
    assert (reached.limit, reached.count) == (store.Limit.QUOTA, 1)

    # It is counted once as long as it lasts, and ends with a raised quota.
    quota_check.check(now=NOW)
    assert queries.limits_reached(APPLICATION) == (reached,)
    allow(monkeypatch, f"{quota}={value - 1},{APPLICATION}:{quota}={value}")
    quota_check.check(now=NOW)
    assert not backpressure.watch(APPLICATION, now=NOW)
    assert not redis.exists(key)


_OF_SERVER = (AlertCause.QUOTA_EXCEEDED, AlertCause.SERVER_BEHIND)


def test_events_in_a_minute_are_counted_between_two_checks(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "events=19")
    send(redis, histories.failed(1))
    quota_check.check(now=NOW)
    send(redis, *(histories.failed(number) for number in range(10)))
    quota_check.check(now=NOW + timedelta(seconds=30))
    assert exceeded() == [(Quota.EVENTS, 20, 19)]
    quota_check.check(now=NOW + timedelta(seconds=90))
    assert exceeded() == []
    # A second `wake` requests a check of its own: the count of the first one stays.
    for seconds in (0, 1, 5):
        send(redis, *(histories.failed(number) for number in range(10)))
        quota_check.check(now=NOW + timedelta(seconds=120 + seconds))
        assert exceeded() == [(Quota.EVENTS, 20, 19)]
    quota_check.check(now=NOW + timedelta(seconds=180))
    assert exceeded() == [(Quota.EVENTS, 20, 19)]
    # After a longer time without a check the rate is not known.
    send(redis, *(histories.failed(number) for number in range(100)))
    quota_check.check(now=NOW + timedelta(hours=1))
    assert exceeded() == []


def test_the_memory_of_an_application_in_redis_is_measured(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "redis_mb=1")
    send(redis, histories.failed(1))
    send(redis, histories.failed(1), application=QUIET)
    for _ in range(20):
        streams.put(redis, {"batch": "", "events": bytes(10**5)})
    quota_check.check(now=NOW)
    assert exceeded() in ([(Quota.REDIS_MB, 2, 1)], [(Quota.REDIS_MB, 3, 1)])
    assert exceeded(QUIET) == []
    (memory,) = (each for each in queries.findings() if each.check == "redis memory by application")
    assert memory.value.startswith((f"{APPLICATION} 2 MB, {QUIET} 0 MB", f"{APPLICATION} 3 MB"))


def test_keys_that_no_agent_writes_are_deleted_and_counted(redis: Redis) -> None:
    send(redis, histories.failed(1))
    keys = [redis_keys.heartbeat(APPLICATION, each) for each in (INSTANCE, uuid4(), uuid4())]
    redis.set(keys[0], b"x" * 50_000, ex=30)
    redis.set(keys[1], b"x")
    redis.set(keys[2], b"x" * (quota_check.HEARTBEAT_BYTES + 1), ex=30)
    redis.set("arrester:No name:instance:7", b"x")
    foreign = f"arrester:{APPLICATION}:instance:".encode() + b"\xff"
    redis.set(foreign, b"x")
    redis.set(redis_keys.heartbeat(APPLICATION, UUID(int=7)), b"x", ex=10**6)
    sent = [redis_keys.sent(APPLICATION, each) for each in (INSTANCE, uuid4(), uuid4())]
    for key in sent:
        redis.sadd(key, "x")
    redis.sadd(sent[1], b"x" * 2000)
    for key in sent[:2]:
        redis.expire(key, redis_keys.CONFIRMED_SECONDS)
    confirmed = [redis_keys.confirmed(APPLICATION, each) for each in (INSTANCE, uuid4())]
    sent_too = confirmed[1].replace("confirmed", "sent")
    redis.sadd(sent_too, "x")
    redis.expire(sent_too, redis_keys.CONFIRMED_SECONDS)
    redis.sadd(confirmed[0], *map(str, range(1000)))
    redis.sadd(confirmed[1], *(str(each) * 10 for each in range(200_000)))
    for key in confirmed:
        redis.expire(key, redis_keys.CONFIRMED_SECONDS)
    redis.config_resetstat()

    quota_check.check(now=NOW)

    assert redis.info("commandstats")["cmdstat_unlink"]["calls"] == 1

    assert [redis.exists(key) for key in keys] == [1, 0, 0]
    assert not redis.exists(foreign, redis_keys.heartbeat(APPLICATION, UUID(int=7)))
    assert redis.exists("arrester:No name:instance:7")
    assert [redis.exists(key) for key in (*sent, *confirmed)] == [1, 0, 0, 1, 0]
    assert not redis.exists(sent_too)
    (reached,) = queries.limits_reached(APPLICATION)
    assert (reached.limit, reached.count) == (store.Limit.HEARTBEAT, 7)
    assert queries.limits_reached(QUIET) == ()


@pytest.fixture
def connect(redis: Redis) -> Iterator[Callable[[str], Redis]]:
    """Return a function that opens a connection of an application's agents."""
    opened: list[Redis] = []

    def open_one(application: str) -> Redis:
        user = redis_keys.agent_user(application)
        redis.acl_setuser(user, enabled=True, nopass=True, commands=["+ping"])
        url = str(settings.REDIS_URL)
        client = Redis.from_url(url, username=user, password="", single_connection_client=True)
        opened.append(client)
        client.ping()
        return client

    yield open_one
    for client in opened:
        client.close()
    for application in (APPLICATION, QUIET):
        redis.acl_deluser(redis_keys.agent_user(application))


def sweep() -> None:
    waker = Waker()
    waker.next_request |= dict.fromkeys(PERIODIC, math.inf)
    waker.poll()


def test_the_newest_connections_above_twice_the_quota_are_closed(
    redis: Redis, connect: Callable[[str], Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "connections=3,quiet:connections=1")
    send(redis, histories.failed(1))
    quiet = [connect(QUIET) for _ in range(2)]
    noisy = [connect(APPLICATION) for _ in range(6)]
    sweep()
    assert queries.limits_reached(APPLICATION) == ()
    own, most = redis.client_id(), redis.config_get("maxclients")["maxclients"]
    redis.config_set("maxclients", redis.info("clients")["connected_clients"] + 4)
    try:
        newer = [connect(APPLICATION) for _ in range(4)]
        with pytest.raises(ConnectionError):
            connect(APPLICATION)
        # Another `wake` closes them at the same time: they are counted once.
        before = agent_connections.by_application()
        sweep()
        with monkeypatch.context() as other:
            other.setattr(agent_connections, "by_application", lambda: before)
            sweep()
        # The server can open new connections, and keeps its own.
        with Redis.from_url(settings.REDIS_URL) as another:
            another.ping()
    finally:
        redis.config_set("maxclients", str(most))

    assert redis.client_id() == own
    for client in (*quiet, *noisy):
        client.ping()
    for client in newer:
        with pytest.raises(ConnectionError):
            client.ping()
    (reached,) = queries.limits_reached(APPLICATION)
    assert (reached.limit, reached.count) == (store.Limit.CONNECTIONS, 4)
    assert queries.limits_reached(QUIET) == ()
    # What is left is still above the quota, and named.
    quota_check.check(now=NOW)
    assert exceeded() == [(Quota.CONNECTIONS, 6, 3)]


def test_an_application_that_is_in_redis_only_is_measured_too(redis: Redis) -> None:
    streams.put(redis, {"events": bytes(10**6)}, application="unknown")
    found = quota_check.check(now=NOW)
    assert found["unknown"].redis_bytes > 10**6


def test_wake_requests_a_check_each_minute(redis: Redis) -> None:
    waker = Waker()
    waker.next_request[tasks.verify_audit] = math.inf
    for _ in range(2):
        waker.next_sweep = 0.0
        waker.poll()
    assert redis.llen(HOUSEKEEPING) == 1
    waker.next_sweep = waker.next_request[tasks.check_quotas] = 0.0
    waker.poll()
    assert redis.llen(HOUSEKEEPING) == 2
    tasks.check_quotas()
    assert quota_check.usages() == {}
