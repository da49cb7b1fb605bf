"""The heartbeats of instances, and since when Redis has been reachable without a gap."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from arrester.controlplane import redis_client
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.wire.codec import Heartbeat

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


def look(*, now: datetime) -> timedelta:
    """Record a check of Redis, and return for how long it has been reachable without a gap."""
    redis = redis_client.client()
    before = _read(redis.get(redis_keys.WATCH))
    unbroken = before is not None and now - before.last <= GAP
    since = before.since if before is not None and unbroken else now
    redis.set(redis_keys.WATCH, msgspec.json.encode(Watch(since=since, last=now)))
    return now - since


def heard(application: str, instances: Collection[UUID]) -> set[UUID]:
    """Return those of `instances` that have a live heartbeat."""
    if not instances:
        return set()
    asked = list(instances)
    found = redis_client.client().mget([redis_keys.heartbeat(application, id) for id in asked])
    return {id for id, beat in zip(asked, found, strict=True) if beat is not None}


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat, and when it was received: by the server's clock, from its remaining lifetime."""

    heard_at: datetime
    #: None if it could not be decoded.
    said: Heartbeat | None

    @property
    def skew(self) -> timedelta | None:
        """How far the instance's clock is ahead of ours; negative if it is behind."""
        return None if self.said is None else self.said.at - self.heard_at


def beats(instances: Collection[tuple[str, UUID]]) -> dict[UUID, Beat] | None:
    """Return the live heartbeats, in one round trip; None while Redis is unreachable."""
    asked = list(instances)
    try:
        with redis_client.client().pipeline(transaction=True) as pipe:
            for application, id in asked:
                pipe.get(redis_keys.heartbeat(application, id))
                pipe.pttl(redis_keys.heartbeat(application, id))
            found = pipe.execute()
    except redis_client.RedisError:
        return None
    now = datetime.now(UTC)
    life = timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    return {
        id: Beat(heard_at=now - life + timedelta(milliseconds=left), said=_said(text))
        for (_, id), text, left in zip(asked, found[::2], found[1::2], strict=True)
        if text is not None and left >= 0
    }


def _said(text: bytes) -> Heartbeat | None:
    try:
        return msgspec.json.decode(text, type=Heartbeat)
    except msgspec.DecodeError:
        return None


def is_folded(application: str, *, now: datetime) -> bool:
    """Whether nothing of the application has waited in Redis for long."""
    oldest = redis_client.entries(redis_client.client(), redis_keys.events(application), count=1)
    return not oldest or now - added_at(oldest[0][0]) < BEHIND


def note_postgres(*, now: datetime) -> None:
    """Record in Redis that PostgreSQL answers: while it does not, it cannot say since when."""
    redis_client.client().set(redis_keys.POSTGRES_SEEN, msgspec.json.encode(now))


def postgres_seen() -> datetime | None:
    """Return when PostgreSQL was last recorded, as far as Redis has it."""
    try:
        text = redis_client.client().get(redis_keys.POSTGRES_SEEN)
        return None if text is None else msgspec.json.decode(text, type=datetime)
    except (redis_client.RedisError, msgspec.DecodeError):
        return None


def added_at(entry: str) -> datetime:
    """Return when Redis received an entry, from its id; at most the end of the year 9999."""
    milliseconds = min(int(entry.partition("-")[0]), _LATEST)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _read(text: bytes | str | None) -> Watch | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=Watch)
    except msgspec.DecodeError:
        return None
