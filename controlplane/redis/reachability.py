"""Since when Redis has been reachable without a gap, and when PostgreSQL last was."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from django.conf import settings

from arrester.controlplane.embedded import diagnosis
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys

#: Three missed checks: what was in Redis meanwhile is unknown.
GAP = timedelta(seconds=15)


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """The checks of Redis without a gap. It is in Redis, and so lost together with heartbeats."""

    since: datetime
    last: datetime


def check_redis(*, now: datetime) -> timedelta:
    """Record a check of Redis, and return for how long it has been reachable without a gap."""
    redis = redis_client.client()
    before = redis_client.decode_json(redis.get(redis_keys.WATCH), Watch)
    # If the clock went back, the time before is ahead: the check begins again.
    since = before.since if before is not None and abs(now - before.last) <= GAP else now
    redis.set(redis_keys.WATCH, msgspec.json.encode(Watch(since=since, last=now)))
    return now - since


def record_postgres(*, now: datetime) -> None:
    """Record in Redis that PostgreSQL answers: it cannot store since when it does not."""
    redis_client.client().set(redis_keys.POSTGRES_SEEN, msgspec.json.encode(now))


def postgres_seen() -> datetime | None:
    """Return when PostgreSQL last answered; None if Redis is unreachable or has no such time."""
    try:
        return redis_client.decode_json(
            redis_client.client().get(redis_keys.POSTGRES_SEEN), datetime
        )
    except redis_client.RedisError:
        return None


def postgres_cause() -> str:
    """Return why the embedded PostgreSQL does not answer; empty if unknown, or if it is another."""
    url = settings.ENVIRONMENT.database_url or ""
    return diagnosis.postgres_cause(settings.ENVIRONMENT.home, url)


def redis_cause() -> str:
    """Return why the embedded Redis does not answer; empty if unknown, or if it is another."""
    return diagnosis.redis_cause(settings.ENVIRONMENT.home, settings.REDIS_URL)
