"""The heartbeats of instances in Redis."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from arrester.controlplane import event_streams, redis_client
from arrester.controlplane.domain.identity import redis_keys
from arrester.controlplane.domain.wire.codec import Heartbeat

#: An entry that waits longer means that the fold is behind.
BEHIND = timedelta(seconds=5)
#: A larger difference between the clocks of an instance and the server is reported.
SKEW_LIMIT = timedelta(seconds=5)


class ReceivedHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat, and when it was received: by the server's clock, from its remaining lifetime."""

    received_at: datetime
    #: None if it could not be decoded.
    heartbeat: Heartbeat | None

    @property
    def skew(self) -> timedelta | None:
        """How far the instance's clock is ahead of the server's; negative if it is behind."""
        return None if self.heartbeat is None else self.heartbeat.at - self.received_at


def with_heartbeat(application: str, instances: Collection[UUID]) -> set[UUID]:
    """Return those of `instances` that have a live heartbeat; raises RedisError."""
    if not instances:
        return set()
    ids = list(instances)
    values = redis_client.client().mget([redis_keys.heartbeat(application, id) for id in ids])
    return {id for id, value in zip(ids, values, strict=True) if value is not None}


def read(instances: Collection[tuple[str, UUID]]) -> dict[UUID, ReceivedHeartbeat]:
    """Return the live heartbeats, in one round trip; none while Redis is unreachable."""
    try:
        with redis_client.client().pipeline(transaction=True) as pipe:
            for application, id in instances:
                pipe.get(redis_keys.heartbeat(application, id))
                pipe.pttl(redis_keys.heartbeat(application, id))
            answers = pipe.execute()
    except redis_client.RedisError:
        return {}
    sent_at = datetime.now(UTC) - timedelta(seconds=redis_keys.LOST_AFTER_SECONDS)
    return {
        id: ReceivedHeartbeat(
            received_at=sent_at + timedelta(milliseconds=remaining),
            heartbeat=redis_client.decode_json(value, Heartbeat),
        )
        for (_, id), value, remaining in zip(instances, answers[::2], answers[1::2], strict=True)
        if value is not None and remaining >= 0
    }


def is_folded(application: str, *, now: datetime) -> bool:
    """Whether no event of the application has waited in Redis for long.

    Otherwise the last events of a silent instance may not be folded yet.
    """
    oldest = event_streams.read_ends(redis_client.client(), redis_keys.events(application)).first
    return oldest is None or now - redis_client.added_at(oldest) < BEHIND
