"""Locks of periodic tasks: one of a name runs at a time, and a slow one rests.

They have precedence over folds. Without a rest, tasks that take longer than their interval would
leave no time to fold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from arrester.controlplane.redis import redis_client
from arrester.controlplane.redis.redis_client import RedisError
from arrester.domain.identity import redis_keys

#: The lock of a worker that was killed ends after this time.
LASTS_SECONDS = 60
#: A task that takes longer rests for a multiple of its time.
SLOW_SECONDS, REST = 1.0, 3


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Yield whether the task may run now.

    While Redis is unavailable it may, since the broker may be another server: then alerts are most
    needed, and a task that runs twice at a time does no harm.
    """
    redis, key, began = redis_client.client(), redis_keys.PERIODIC + name, time.monotonic()
    try:
        is_free = bool(redis.set(key, 1, nx=True, ex=LASTS_SECONDS))
    except RedisError:
        yield True
        return
    if not is_free:
        yield False
        return
    try:
        yield True
    finally:
        seconds = time.monotonic() - began
        with suppress(RedisError):
            if seconds < SLOW_SECONDS:
                redis.delete(key)
            else:
                redis.set(key, 1, px=int(REST * 1000 * seconds))
