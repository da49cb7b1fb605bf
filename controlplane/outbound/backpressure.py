"""Backpressure: how much waits to be folded, and what agents omit until it is less.

It reads Redis only: it is needed most when everything else is slow or unreachable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings

from arrester.controlplane.redis import event_streams, redis_client
from arrester.domain.identity import redis_keys

log = logging.getLogger(__name__)
#: An overload ends at this share of its limit, so that it does not flap.
CALM = 0.25
#: The share of Redis's memory that agents may use, if it is limited. The rest is for commands and
#: for Celery's queues, without which nothing is folded and no memory becomes free.
AGENT_MEMORY_SHARE = 0.75


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting entries of an application's stream."""

    waiting: int
    oldest: str | None
    newest: str | None
    #: Agents are requested to report counts only.
    overloaded: bool
    #: Since the application exceeds a quota.
    over_quota: bool = False

    def age(self, *, now: datetime) -> float:
        """Return for how many seconds the oldest batch has waited; 0 if there is none."""
        if self.oldest is None:
            return 0.0
        return max(0.0, (now - redis_client.added_at(self.oldest)).total_seconds())

    def behind(self, cursor: str) -> float:
        """Return how many seconds of the stream are not folded yet, according to a log's cursor."""
        if self.newest is None or self.oldest is None:
            return 0.0
        # Before the first fold, and after Redis was emptied, the cursor has no meaning.
        since = max(redis_client.added_at(cursor), redis_client.added_at(self.oldest))
        return max(0.0, (redis_client.added_at(self.newest) - since).total_seconds())


def loads(applications: Sequence[str]) -> list[Load | redis_client.ResponseError]:
    """Return the load of each application, in two round trips; raises RedisError.

    If Redis refuses one (its key is not a stream), the error is its result. Most streams are
    usually empty and need no second query.
    """
    if not applications:
        return []
    with redis_client.client().pipeline(transaction=False) as pipe:
        pipe.mget([redis_keys.overload(each) for each in applications])
        pipe.mget([redis_keys.over_quota(each) for each in applications])
        for application in applications:
            pipe.xlen(redis_keys.events(application))
        levels, quotas, *lengths = pipe.execute(raise_on_error=False)
    busy = [each for each, length in zip(applications, lengths, strict=True) if length != 0]
    with redis_client.client().pipeline(transaction=False) as pipe:
        for application in busy:
            event_streams.send_ends(pipe, redis_keys.events(application))
        ends = pipe.execute(raise_on_error=False) if busy else ()
    waiting = dict(zip(busy, ends, strict=True))
    return [
        _load(level, quota, waiting.get(each, (0, None, None)))
        for each, level, quota in zip(
            applications, _without_error(levels), _without_error(quotas), strict=True
        )
    ]


def _without_error(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def _load(
    level: bytes | None, quota: bytes | None, result: Any
) -> Load | redis_client.ResponseError:
    if isinstance(result, redis_client.ResponseError):
        return result
    ends = event_streams.ends(_without_error(result))
    return Load(
        waiting=ends.length,
        oldest=ends.first,
        newest=ends.last,
        overloaded=level is not None,
        over_quota=quota is not None,
    )


def watch_all(
    applications: Sequence[str], *, now: datetime
) -> dict[str, redis_client.ResponseError]:
    """Watch applications, in few round trips for all; return those that Redis refuses."""
    refused = {}
    for application, load in zip(applications, loads(applications), strict=True):
        if isinstance(load, redis_client.ResponseError):
            refused[application] = load
        else:
            _watch(application, load, now=now)
    return refused


def watch(application: str, *, now: datetime) -> bool:
    """Request counts from the application's agents, or end the request; return whether it is
    active.

    A request expires after OVERLOAD_SECONDS unless it is repeated. Raises RedisError.
    """
    (load,) = loads([application])
    if isinstance(load, redis_client.ResponseError):
        raise load
    return _watch(application, load, now=now)


def _watch(application: str, load: Load, *, now: datetime) -> bool:
    limits = settings.ENVIRONMENT
    share = CALM if load.overloaded else 1.0
    too_much = (
        load.waiting > limits.overload_batches * share
        or load.age(now=now) > limits.overload_seconds * share
        or load.over_quota
    )
    key = redis_keys.overload(application)
    if too_much:
        level = redis_keys.OverloadLevel.COUNTS
        redis_client.client().set(key, level.value, ex=redis_keys.OVERLOAD_SECONDS)
    elif load.overloaded:
        redis_client.client().delete(key)
    if too_much is not load.overloaded:
        change = "count failures only" if too_much else "report failures in full again"
        why = "a quota is exceeded" if load.over_quota else f"{load.waiting} batches wait"
        log.warning("%s: %s; its agents %s", application, why, change)
    return too_much


def memory_limit() -> int:
    """Return the memory in bytes up to which agents may fill Redis; 0 means no limit.

    Agents may not read it: INFO is one of the commands that their Redis user does not have.
    """
    memory: Any = redis_client.client().info("memory")
    return int(int(memory.get("maxmemory") or 0) * AGENT_MEMORY_SHARE)


def publish_memory_limit(applications: Sequence[str], limit: int) -> None:
    """Publish the memory limit to the applications' agents. A full Redis keeps the former one."""
    if not applications:
        return
    redis, keys = redis_client.client(), [*map(redis_keys.memory_limit, applications)]
    known: Any = redis.mget(keys)
    changed = [key for key, each in zip(keys, known, strict=True) if each != str(limit).encode()]
    if changed:
        redis.mset(dict.fromkeys(changed, limit))
