"""The server's Redis client: one pool per process, and short time-outs, since all work can wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from arrester.controlplane.domain.errors import BrokenState

__all__ = [
    "APPLICATION_ERRORS", "Redis", "RedisError", "ResponseError", "StreamEntry", "TimeoutError",
    "added_at", "broker", "changed_streams", "client", "decode_entries", "decode_json",
    "delete_entries", "entries", "last_id",
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
        # For a connection that broke while it was idle; a sweep repeats any other failure.
        retry=Retry(NoBackoff(), 1),
    )


#: Errors of one application: a key of a wrong type, or a row that cannot be read. Loops over all
#: applications continue with the next.
APPLICATION_ERRORS = (ResponseError, BrokenState)
#: An entry's id and fields.
StreamEntry = tuple[str, Mapping[bytes, bytes]]


def entries(
    redis: Redis, stream: str, *, begin: str = "-", count: int | None = None
) -> list[StreamEntry]:
    """Return entries of a stream from `begin` on, with their ids."""
    return decode_entries(redis.xrange(stream, min=begin, count=count))


def decode_entries(answer: Any) -> list[StreamEntry]:
    """Return the result of XRANGE.

    The client's types include results that ours, which does not decode bytes, never returns.
    """
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


#: KEYS: stream. ARGV: each entry's id, its first field, and that field's value.
_DELETE_ENTRIES = """
for i = 1, #ARGV, 3 do
  local found = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])
  local value
  if #found == 1 then
    local fields = found[1][2]
    for j = 1, #fields, 2 do
      if fields[j] == ARGV[i + 1] then
        value = fields[j + 1]
      end
    end
  end
  if value == ARGV[i + 2] then
    redis.call('XDEL', KEYS[1], ARGV[i])
  end
end
"""


def delete_entries(pipe: Pipeline, stream: str, entries: Iterable[StreamEntry]) -> None:
    """Delete entries from a stream, unless their ids now belong to other entries.

    A Redis that was emptied meanwhile assigns an id again: within one millisecond, or if its clock
    goes back. A batch other than the one read has not been folded.
    """
    arguments = [part for id, fields in entries for part in (id, *next(iter(fields.items())))]
    pipe.eval(_DELETE_ENTRIES, 1, stream, *arguments)


def changed_streams(redis: Redis, positions: dict[str, str], *, milliseconds: int) -> list[str]:
    """Wait until streams have entries after their positions; return those that have."""
    # One entry of each is enough. The result depends on the protocol: pairs, or a dictionary.
    streams: Any = dict(positions)
    reply: Any = redis.xread(streams, count=1, block=milliseconds)
    names = reply.keys() if isinstance(reply, dict) else [name for name, _ in reply or ()]
    return [name.decode() for name in names]


def last_id(redis: Redis, stream: str) -> str | None:
    """Return the last id assigned by a stream; None if there is no stream."""
    try:
        return str(redis.xinfo_stream(stream)["last-generated-id"].decode())
    except ResponseError as exc:
        if "no such key" in str(exc):
            return None
        raise
