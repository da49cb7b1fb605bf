"""Our client of Redis: one pool for each process, and short time-outs, since all can wait."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

__all__ = [
    "Redis", "RedisError", "ResponseError", "ask_waiting", "changed", "client", "entries",
    "last_id",
]  # fmt: skip


def client() -> Redis:
    """Return the client; it connects when it is used."""
    return _client(settings.REDIS_URL)


@cache
def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        socket_timeout=5,
        socket_connect_timeout=2,
        health_check_interval=30,
        # A connection that broke while it was idle; whatever else fails is tried again by a sweep.
        retry=Retry(NoBackoff(), 1),
    )


def entries(
    redis: Redis, stream: str, *, begin: str = "-", count: int | None = None
) -> list[tuple[str, dict[bytes, bytes]]]:
    """Return entries of a stream from `begin` on, with their ids."""
    # The client's types allow for answers that ours, which leaves bytes as they are, never gives.
    found: Any = redis.xrange(stream, min=begin, count=count)
    return [(id.decode(), fields) for id, fields in found]


def ask_waiting(pipe: Pipeline, stream: str) -> None:
    """Ask, in one round trip with others, for the oldest and the newest entry of a stream, and for
    their number: three answers."""
    pipe.xrange(stream, count=1)
    pipe.xrevrange(stream, count=1)
    pipe.xlen(stream)


def changed(redis: Redis, positions: dict[str, str], *, milliseconds: int) -> list[str]:
    """Wait until streams have entries after their positions; return those that have."""
    # One entry of each is enough to know. The client answers by protocol: pairs, or a dictionary.
    streams: Any = dict(positions)
    found: Any = redis.xread(streams, count=1, block=milliseconds)
    names = found.keys() if isinstance(found, dict) else [name for name, _ in found or ()]
    return [name.decode() for name in names]


def last_id(redis: Redis, stream: str) -> str | None:
    """Return the id that a stream gave last; None when there is no such stream."""
    try:
        return str(redis.xinfo_stream(stream)["last-generated-id"].decode())
    except ResponseError as exc:
        if "no such key" in str(exc):
            return None
        raise
