"""One message at a time asks for a stream to be folded: the one that the stream's mark names.

Whoever sends a message writes its id into the mark, `keys.woken`, before; a fold at work writes
over it. A message that the mark does not name is void: so however many are sent, or are delivered
twice, one chain of them goes on. The mark of a message that waits in the queue is kept alive by
`wake`; any other is gone soon after nobody has renewed it, and the stream is asked for anew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import uuid4

import msgspec

from arrester.controlplane import redis_client
from arrester.controlplane.celery import DRAINS, FOLDS
from arrester.controlplane.domain.identity import redis_keys


class _Headers(msgspec.Struct):
    id: str


class _Message(msgspec.Struct):
    headers: _Headers


def claim(application: str) -> str | None:
    """Mark a message that is to be sent, and return its id; None when one is on its way, or a fold
    is at work."""
    message = str(uuid4())
    redis, mark = redis_client.client(), redis_keys.woken(application)
    return message if redis.set(mark, message, nx=True, ex=redis_keys.WOKEN_SECONDS) else None


def replace(application: str) -> str:
    """Mark a message that is to be sent, and return its id; whatever else is on its way is void."""
    message = str(uuid4())
    redis_client.client().set(redis_keys.woken(application), message, ex=redis_keys.WOKEN_SECONDS)
    return message


def is_void(application: str, message: str) -> bool:
    """Whether another message, or a fold at work, has taken this message's place."""
    redis, mark = redis_client.client(), redis_keys.woken(application)
    if redis.set(mark, message, nx=True, ex=redis_keys.WOKEN_SECONDS):
        return False
    named: Any = redis.get(mark)
    return named is not None and named != message.encode()


def nobody_waits() -> bool:
    """Whether no message waits for a process that folds."""
    return not redis_client.client().exists(FOLDS, DRAINS)


def unasked(applications: Collection[str]) -> tuple[set[str], set[str]]:
    """Keep the marks of messages that wait in the queue. Return the applications that have no mark:
    those with entries that wait, and those without."""
    asked, redis = list(applications), redis_client.client()
    with redis.pipeline(transaction=False) as pipe:
        for application in asked:
            pipe.get(redis_keys.woken(application))
            pipe.xlen(redis_keys.events(application))
        # A key of another type in the place of one of ours is no other application's matter.
        found = pipe.execute(raise_on_error=False)
    waiting, done, queued = set(), set(), _queued(redis)
    for application, mark, length in zip(asked, found[::2], found[1::2], strict=True):
        if mark in queued:
            redis.expire(redis_keys.woken(application), redis_keys.WOKEN_SECONDS)
        elif mark is None and length and isinstance(length, int):
            waiting.add(application)
        elif not isinstance(mark, bytes):
            done.add(application)
    return waiting, done


def _queued(redis: redis_client.Redis) -> set[bytes]:
    """Return the ids of the messages that wait."""
    found = set()
    messages: Any = redis.lrange(DRAINS, 0, -1)
    for text in messages:
        try:
            found.add(msgspec.json.decode(text, type=_Message).headers.id.encode())
        except msgspec.DecodeError:
            continue
    return found
