"""The heartbeats of instances, and since when Redis has been reachable without a gap."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import msgspec

from arrester.controlplane import redis_client
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.wire.codec import Heartbeat

T = TypeVar("T")
#: Three missed checks: what was in Redis meanwhile is unknown.
GAP = timedelta(seconds=15)
#: An entry that waits longer means that the fold is behind.
BEHIND = timedelta(seconds=5)
#: A foreign id may contain a year beyond datetime.
_LATEST = int(datetime.max.replace(tzinfo=UTC).timestamp()) * 1000 - 1


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Stored in Redis, so that it is lost together with the heartbeats."""

    since: datetime
    last: datetime


class ReceivedHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat, and when it was received: by the server's clock, from its remaining lifetime."""

    received_at: datetime
    #: None if it could not be decoded.
    heartbeat: Heartbeat | None

    @property
    def skew(self) -> timedelta | None:
        """How far the instance's clock is ahead of ours; negative if it is behind."""
        return None if self.heartbeat is None else self.heartbeat.at - self.received_at


def check_redis(*, now: datetime) -> timedelta:
    """Record a check of Redis, and return for how long it has been reachable without a gap."""
    redis = redis_client.client()
    before = decode(redis.get(redis_keys.WATCH), Watch)
    since = before.since if before is not None and now - before.last <= GAP else now
    redis.set(redis_keys.WATCH, msgspec.json.encode(Watch(since=since, last=now)))
    return now - since


def with_heartbeat(application: str, instances: Collection[UUID]) -> set[UUID]:
    """Return those of `instances` that have a live heartbeat; raises RedisError."""
    if not instances:
        return set()
    ids = list(instances)
    found = redis_client.client().mget([redis_keys.heartbeat(application, id) for id in ids])
    return {id for id, heartbeat in zip(ids, found, strict=True) if heartbeat is not None}


def read(instances: Collection[tuple[str, UUID]]) -> dict[UUID, ReceivedHeartbeat]:
    """Return the live heartbeats, in one round trip; none while Redis is unreachable."""
    try:
        with redis_client.client().pipeline(transaction=True) as pipe:
            for application, id in instances:
                pipe.get(redis_keys.heartbeat(application, id))
                pipe.pttl(redis_keys.heartbeat(application, id))
            found = pipe.execute()
    except redis_client.RedisError:
        return {}
    sent_at = datetime.now(UTC) - timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    return {
        id: ReceivedHeartbeat(
            received_at=sent_at + timedelta(milliseconds=remaining),
            heartbeat=decode(text, Heartbeat),
        )
        for (_, id), text, remaining in zip(instances, found[::2], found[1::2], strict=True)
        if text is not None and remaining >= 0
    }


def is_folded(application: str, *, now: datetime) -> bool:
    """Whether nothing of the application has waited in Redis for long."""
    oldest = redis_client.entries(redis_client.client(), redis_keys.events(application), count=1)
    return not oldest or now - added_at(oldest[0][0]) < BEHIND


def record_postgres(*, now: datetime) -> None:
    """Record in Redis that PostgreSQL answers: it cannot store since when it does not."""
    redis_client.client().set(redis_keys.POSTGRES_SEEN, msgspec.json.encode(now))


def postgres_seen() -> datetime | None:
    """Return when PostgreSQL was last recorded, as far as Redis has it."""
    try:
        return decode(redis_client.client().get(redis_keys.POSTGRES_SEEN), datetime)
    except redis_client.RedisError:
        return None


def added_at(entry: str) -> datetime:
    """Return when Redis received an entry, from its id; at most the end of the year 9999."""
    milliseconds = min(int(entry.partition("-")[0]), _LATEST)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def decode(text: bytes | str | None, type: type[T]) -> T | None:
    """Return a value of Redis; None if it is missing or invalid."""
    try:
        return None if text is None else msgspec.json.decode(text, type=type)
    except msgspec.DecodeError:
        return None
