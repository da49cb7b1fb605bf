"""The server's Redis client: one pool per process, and short time-outs, since all work can wait."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.db import DataError, IntegrityError
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from arrester.domain.errors import BrokenState

__all__ = [
    "APPLICATION_ERRORS", "Redis", "RedisError", "ResponseError", "StreamEntry", "TimeoutError",
    "added_at", "broker", "client", "decode_json", "entries",
]  # fmt: skip

T = TypeVar("T")
#: The id of a foreign entry may contain a year beyond datetime.
_LATEST_MS = int(datetime.max.replace(tzinfo=UTC).timestamp()) * 1000 - 1


def client() -> Redis:
    """Return the client; it connects on first use."""
    return _client(settings.REDIS_URL)


def broker() -> Redis:
    """Return the client of Celery's broker: its queues may be in another database, or server."""
    return _client(settings.BROKER_URL)


@cache
def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        **settings.REDIS_OPTIONS,
        health_check_interval=30,
        # For a connection that broke while it was idle, or to a former master that has become a
        # replica; a sweep repeats any other failure.
        retry=Retry(NoBackoff(), 1),
        retry_on_error=[ReadOnlyError],
    )


#: Errors of one application: a key of a wrong type, a row that cannot be read, or an unforeseen
#: value, also one that PostgreSQL refuses. Loops over all applications continue with the next.
APPLICATION_ERRORS = (
    ResponseError, BrokenState, ValueError, TypeError, ArithmeticError, LookupError, DataError,
    IntegrityError,
)  # fmt: skip
#: An entry's id and fields.
StreamEntry = tuple[str, Mapping[bytes, bytes]]


def entries(
    redis: Redis, stream: str, *, begin: str = "-", count: int | None = None
) -> list[StreamEntry]:
    """Return entries of a stream of the server's own from `begin` on, with their ids.

    For streams of events see `event_streams`.
    """
    # The client's types include results that ours, which does not decode bytes, never returns.
    answer: Any = redis.xrange(stream, min=begin, count=count)
    return [(id.decode(), fields) for id, fields in answer]


def added_at(entry: str) -> datetime:
    """Return when Redis received an entry, from its id; at most the end of the year 9999."""
    milliseconds = min(int(entry.partition("-")[0]), _LATEST_MS)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def decode_json(value: bytes | str | None, type: type[T]) -> T | None:
    """Return a value of Redis, decoded; None if it is missing or invalid."""
    try:
        return None if value is None else msgspec.json.decode(value, type=type)
    except ValueError:  # also of invalid UTF-8
        return None
