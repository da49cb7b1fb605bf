"""The heartbeats of instances in Redis."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from arrester.controlplane.redis import event_streams, redis_client
from arrester.domain.identity import redis_keys
from arrester.domain.wire.codec import Heartbeat

#: An entry that waits longer means that the fold is behind.
BEHIND = timedelta(seconds=5)
#: A larger difference between the clocks of an instance and the server is reported.
SKEW_LIMIT = timedelta(seconds=5)
#: The most bytes of a heartbeat; one of an instance with hundreds of pipelines has less.
HEARTBEAT_BYTES = 128 * 2**10
#: The most bytes of heartbeats that one call decodes.
READ_BYTES = 16 * 2**20
#: Times outside of these years are invalid: differences of valid ones are always times.
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_KEYS_PER_STEP = 50


class ReceivedHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat, and when it was received: by the server's clock, from its remaining lifetime."""

    received_at: datetime
    #: What it reports; None if it could not be decoded.
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
    with redis_client.client().pipeline(transaction=False) as pipe:
        for id in ids:
            # The value is not read: it may be very large.
            pipe.exists(redis_keys.heartbeat(application, id))
        return {id for id, exists in zip(ids, pipe.execute(), strict=True) if exists}


def read(instances: Collection[tuple[str, UUID]]) -> dict[UUID, ReceivedHeartbeat]:
    """Return the live heartbeats; none while Redis is unreachable.

    An instance with an invalid or too large heartbeat is alive; its reports are not known.
    """
    found: dict[UUID, ReceivedHeartbeat] = {}
    left = READ_BYTES
    all_of_them = list(instances)
    for first in range(0, len(all_of_them), _KEYS_PER_STEP):
        some = all_of_them[first : first + _KEYS_PER_STEP]
        try:
            answers = _send(some)
        except redis_client.RedisError:
            return {}
        now = datetime.now(UTC)
        for (_, id), (value, remaining) in zip(some, answers, strict=True):
            if remaining >= 0:
                left -= len(value)
                found[id] = ReceivedHeartbeat(
                    received_at=_received_at(remaining, now=now),
                    heartbeat=_decoded(value) if left >= 0 else None,
                )
    return found


def _send(instances: Collection[tuple[str, UUID]]) -> list[tuple[bytes, int]]:
    """Return the beginning of the value of each, and its remaining lifetime in milliseconds."""
    with redis_client.client().pipeline(transaction=True) as pipe:
        for application, id in instances:
            pipe.getrange(redis_keys.heartbeat(application, id), 0, HEARTBEAT_BYTES)
            pipe.pttl(redis_keys.heartbeat(application, id))
        answers = pipe.execute()
    return [*zip(answers[::2], answers[1::2], strict=True)]


def _received_at(remaining: int, *, now: datetime) -> datetime:
    """Return when a heartbeat was received; now, if it lives longer than those of agents."""
    elapsed = max(0, redis_keys.LOST_AFTER_SECONDS * 1000 - remaining)
    return now - timedelta(milliseconds=elapsed)


def _decoded(value: bytes) -> Heartbeat | None:
    if len(value) > HEARTBEAT_BYTES:
        return None
    beat = redis_client.decode_json(value, Heartbeat)
    return beat if beat is not None and all(_FIRST <= at < _LAST for at in _times(beat)) else None


def _times(beat: Heartbeat) -> Iterator[datetime]:
    yield beat.at
    yield from (each.since for each in beat.in_progress)
    yield from filter(None, (beat.spool_since, *(each.last_batch_at for each in beat.flow)))


def is_folded(application: str, *, now: datetime) -> bool:
    """Whether no event of the application has waited in Redis for long.

    Otherwise the last events of a silent instance may not be folded yet.
    """
    oldest = event_streams.read_ends(redis_client.client(), redis_keys.events(application)).first
    return oldest is None or now - redis_client.added_at(oldest) < BEHIND
