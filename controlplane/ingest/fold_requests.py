"""Request folds of streams: one valid message per stream, named by the pending-fold key.

A sender writes the message's id into the key first; a running fold overwrites it. A message that
the key does not name is void. However many are sent or delivered twice, only one chain of them
continues. `wake` renews the key of a queued message; any other key expires, and the fold
is requested again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import uuid4

import msgspec

from arrester.controlplane.celery import STREAM_FOLDS
from arrester.controlplane.redis import redis_client
from arrester.domain.identity import redis_keys


class _Headers(msgspec.Struct):
    id: str


class _Message(msgspec.Struct):
    headers: _Headers


def claim(applications: Collection[str]) -> dict[str, str]:
    """Return the ids for messages to send, now named by the keys, in one round trip; without the
    applications with a queued message or a running fold."""
    messages = {application: str(uuid4()) for application in applications}
    with redis_client.client().pipeline(transaction=False) as pipe:
        for application, message in messages.items():
            key = redis_keys.pending_fold(application)
            pipe.set(key, message, nx=True, ex=redis_keys.PENDING_FOLD_SECONDS)
        claimed = pipe.execute()
    return {each: messages[each] for each, done in zip(messages, claimed, strict=True) if done}


def replace(application: str) -> str:
    """Return the id for a message to send, now named by the key; all other messages are void."""
    message = str(uuid4())
    redis_client.client().set(
        redis_keys.pending_fold(application), message, ex=redis_keys.PENDING_FOLD_SECONDS
    )
    return message


def is_void(application: str, message: str) -> bool:
    """Whether another message, or a running fold, has replaced this message."""
    redis, key = redis_client.client(), redis_keys.pending_fold(application)
    if redis.set(key, message, nx=True, ex=redis_keys.PENDING_FOLD_SECONDS):
        return False
    named: Any = redis.get(key)
    return named is not None and named != message.encode()


def unrequested(applications: Collection[str]) -> tuple[set[str], set[str]]:
    """Renew the keys of queued messages. Return the applications without a key: those with
    waiting entries, and those without."""
    names, redis = list(applications), redis_client.client()
    with redis.pipeline(transaction=False) as pipe:
        for application in names:
            pipe.get(redis_keys.pending_fold(application))
            pipe.xlen(redis_keys.events(application))
        # A key of a wrong type must not affect other applications.
        replies = pipe.execute(raise_on_error=False)
    waiting, done, queued = set(), set(), _queued()
    with redis.pipeline(transaction=False) as pipe:
        for application, key, length in zip(names, replies[::2], replies[1::2], strict=True):
            if key in queued:
                pipe.expire(redis_keys.pending_fold(application), redis_keys.PENDING_FOLD_SECONDS)
            elif key is None and length and isinstance(length, int):
                waiting.add(application)
            elif not isinstance(key, bytes):
                done.add(application)
        pipe.execute()
    return waiting, done


def _queued() -> set[bytes]:
    """Return the ids of the queued messages."""
    ids = set()
    messages: Any = redis_client.broker().lrange(STREAM_FOLDS, 0, -1)
    for text in messages:
        try:
            ids.add(msgspec.json.decode(text, type=_Message).headers.id.encode())
        except ValueError:
            continue
    return ids
