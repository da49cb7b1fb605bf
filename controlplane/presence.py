"""Who is heard: the heartbeats of instances, and since when Redis has carried them unbroken."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from controlplane import broker
from controlplane.domain import keys

#: Three looks missed: nobody can say what was in Redis meanwhile.
GAP = timedelta(seconds=15)
#: An entry that waits longer than this says that the fold is behind.
BEHIND = timedelta(seconds=5)


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Kept in Redis itself, so that it is lost with what it vouches for."""

    since: datetime
    last: datetime


def look(*, now: datetime) -> timedelta:
    """Note that we looked at Redis, and return for how long it has been there without a gap."""
    redis = broker.client()
    before = _read(redis.get(keys.WATCH))
    unbroken = before is not None and now - before.last <= GAP
    since = before.since if before is not None and unbroken else now
    redis.set(keys.WATCH, msgspec.json.encode(Watch(since=since, last=now)))
    return now - since


def heard(application: str, instances: Collection[UUID]) -> set[UUID]:
    """Return those of `instances` whose heartbeat lives."""
    if not instances:
        return set()
    asked = list(instances)
    found = broker.client().mget([keys.heartbeat(application, id) for id in asked])
    return {id for id, beat in zip(asked, found, strict=True) if beat is not None}


def is_folded(application: str, *, now: datetime) -> bool:
    """Whether nothing of the application has waited in Redis for long."""
    oldest = broker.entries(broker.client(), keys.events(application), count=1)
    return not oldest or now - added_at(oldest[0][0]) < BEHIND


def note_postgres(*, now: datetime) -> None:
    """Note in Redis that PostgreSQL answers: it cannot say itself since when it does not."""
    broker.client().set(keys.POSTGRES_SEEN, msgspec.json.encode(now))


def postgres_seen() -> datetime | None:
    """Return when PostgreSQL was last noted, as far as Redis knows."""
    try:
        text = broker.client().get(keys.POSTGRES_SEEN)
        return None if text is None else msgspec.json.decode(text, type=datetime)
    except (broker.RedisError, msgspec.DecodeError):
        return None


def added_at(entry: str) -> datetime:
    """Return when Redis took an entry, from its id."""
    milliseconds = int(entry.partition("-")[0])
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _read(text: bytes | str | None) -> Watch | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=Watch)
    except msgspec.DecodeError:
        return None
