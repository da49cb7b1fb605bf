"""Delete what the agents of an application have written into Redis."""

from __future__ import annotations

from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys

_KEYS_PER_STEP = 500


def delete(application: str) -> int:
    """Delete waiting events, confirmations and heartbeats; return the number of keys.

    Raises RedisError.
    """
    redis = redis_client.client()
    # Last batches at the end: an agent that appends meanwhile sends a deleted entry again.
    deleted = int(redis.unlink(redis_keys.events(application)))
    for family in (redis_keys.confirmed, redis_keys.heartbeat, redis_keys.sent):
        pattern = family(application, "*")
        for key in redis.scan_iter(match=pattern, count=_KEYS_PER_STEP):
            deleted += int(redis.unlink(key))
    return deleted
