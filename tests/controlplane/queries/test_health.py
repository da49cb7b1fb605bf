"""Health: which parts answer, and since when the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection
from msgspec.structs import asdict
from redis import Redis

from arrester.controlplane import actions, models, queries, tasks
from arrester.controlplane.redis import reachability

pytestmark = pytest.mark.usefixtures("fresh_database")
EARLIER = datetime(2026, 1, 2, 3, tzinfo=UTC)


def parts_down() -> list[str]:
    return [name for name, part in asdict(queries.health()).items() if not part.up]


@pytest.fixture
def redis_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REDIS_URL", "unix:///nowhere/redis.sock")


@pytest.fixture
def postgres_away(redis: Redis) -> Iterator[None]:
    """Let new connections fail."""
    before = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict["HOST"] = "/nowhere"
    yield
    connection.settings_dict.update(before)


def test_all_parts_are_healthy_after_they_were_seen(redis: Redis) -> None:
    actions.record_running("redis", "wake", "worker", "housekeeper")
    assert parts_down() == []


def test_a_process_without_a_sign_for_a_while_is_down(redis: Redis) -> None:
    actions.record_running("wake", "worker")
    models.Sighting.objects.filter(name="worker").update(at=EARLIER)
    health = queries.health()
    assert health.wake.up
    assert (health.worker.up, health.worker.last_seen) == (False, EARLIER)


def test_a_process_with_a_sign_far_ahead_is_down(redis: Redis) -> None:
    """The clock of the server was ahead, and is right again."""
    actions.record_running("wake", "worker")
    models.Sighting.objects.filter(name="worker").update(at=datetime.now(UTC) + timedelta(hours=3))
    health = queries.health()
    assert (health.wake.up, health.worker.up) == (True, False)


def test_missing_housekeeping_is_reported_after_some_hours(redis: Redis) -> None:
    actions.record_running("redis", "wake", "worker")
    # Before the first housekeeping, a new system counts from its first wake.
    actions.expect("housekeeper")
    assert parts_down() == []
    models.Sighting.objects.filter(name="housekeeper").update(at=EARLIER)
    actions.expect("housekeeper")
    health = queries.health()
    assert (health.housekeeper.up, health.housekeeper.last_seen) == (False, EARLIER)
    tasks.housekeeping()
    assert parts_down() == []


def test_postgres_has_the_last_sign_of_an_unreachable_redis(redis_away: None) -> None:
    models.Sighting.objects.create(name="redis", at=EARLIER)
    health = queries.health()
    assert health.postgres.up
    assert (health.redis.up, health.redis.last_seen) == (False, EARLIER)
    assert health.redis.detail


def test_without_redis_the_lag_is_unknown(redis_away: None) -> None:
    actions.open_application("flights", actor="up")
    lag = queries.lag("flights")
    assert (lag.sequence, lag.waiting, lag.waiting_seconds) == (1, None, None)


def test_redis_has_the_last_sign_of_an_unreachable_postgres(postgres_away: None) -> None:
    reachability.record_postgres(now=EARLIER + timedelta(seconds=1))
    health = queries.health()
    assert health.redis.up
    assert not health.postgres.up
    assert health.postgres.last_seen == EARLIER + timedelta(seconds=1)
    assert not health.wake.up


def test_health_without_any_server_is_reported_and_not_raised(
    postgres_away: None, redis_away: None
) -> None:
    health = queries.health()
    assert not any(each.up for each in (health.postgres, health.redis, health.wake, health.worker))
    assert health.postgres.last_seen is None
