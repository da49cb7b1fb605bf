"""Periodic tasks have precedence over folds, so a slow one rests."""

from __future__ import annotations

import pytest
from redis import Redis

from arrester.controlplane import actions, models, tasks
from arrester.controlplane.outbound import periodic_locks
from arrester.controlplane.outbound.periodic_locks import try_lock
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys
from tests.controlplane.alerts.test_alerts import paused


def test_one_task_of_a_name_runs_at_a_time(redis: Redis) -> None:
    with try_lock("sweep") as first, try_lock("sweep") as second, try_lock("watch") as other:
        assert (first, second, other) == (True, False, True)
        # The lock of a killed worker ends by itself.
        assert 0 < redis.ttl(f"{redis_keys.PERIODIC}sweep") <= periodic_locks.LASTS_SECONDS
    with try_lock("sweep") as again:
        assert again


def test_a_slow_periodic_task_rests(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[None] = []
    monkeypatch.setattr(actions, "watch", lambda: runs.append(None))
    for _ in range(3):
        tasks.watch()
    assert len(runs) == 3
    monkeypatch.setattr(periodic_locks, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(periodic_locks, "REST", 10**6)
    for _ in range(3):
        tasks.watch()
    assert len(runs) == 4
    # It is no key of an application.
    assert not redis.keys(redis_keys.OF_APPLICATIONS)
    redis.delete(f"{redis_keys.PERIODIC}watch")
    tasks.watch()
    assert len(runs) == 5


@pytest.mark.usefixtures("fresh_database")
def test_alerts_are_found_while_redis_is_away_and_the_broker_is_not(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may be another server."""

    paused(redis)
    away = Redis(port=1)
    monkeypatch.setattr(redis_client, "client", lambda: away)
    tasks.alert()
    assert models.Alert.objects.filter(cause="TASKS_PAUSED", resolved_at=None).exists()
