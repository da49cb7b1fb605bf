"""Delete what the agents of an application have written into Redis."""

from __future__ import annotations

from arrester.controlplane import redis_client
from arrester.controlplane.domain.identity import redis_keys

_KEYS_PER_STEP = 500


def delete(application: str) -> int:
    """Delete waiting events, confirmations and heartbeats; return the number of keys.

    Raises RedisError.
    """
    redis, deleted = redis_client.client(), 0
    families = (redis_keys.confirmed, redis_keys.sent, redis_keys.heartbeat)
    for family in families:
        pattern = family(application, "*")
        for key in redis.scan_iter(match=pattern, count=_KEYS_PER_STEP):
            deleted += int(redis.unlink(key))
    return deleted + int(redis.unlink(redis_keys.events(application)))
