"""Heartbeats that no agent sends: their application has them, and others are not affected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from redis import Redis

from arrester.controlplane.redis import heartbeats
from arrester.domain.identity import redis_keys
from tests.histories import APPLICATION, INSTANCE

FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z"
GOOD: dict[str, Any] = {"at": "2026-11-20T12:00:00Z", "status": "RUNNING"}
PROGRESS = {"pipeline": "p", "input": "batch 1", "since": LAST}
FLOW = {"pipeline": "p", "checkpoint": "c", "last_batch_at": LAST}


def set_heartbeat(redis: Redis, value: bytes, *, milliseconds: int = 30_000) -> None:
    redis.set(redis_keys.heartbeat(APPLICATION, INSTANCE), value, px=milliseconds)


def read() -> heartbeats.ReceivedHeartbeat:
    (found,) = heartbeats.read([(APPLICATION, INSTANCE)]).values()
    return found


@pytest.mark.parametrize(
    "fields",
    [
        {"at": FIRST},
        {"at": LAST},
        {"spool_since": FIRST},
        {"in_progress": [PROGRESS]},
        {"flow": [FLOW]},
    ],
)
def test_times_that_cannot_be_compared_are_invalid(redis: Redis, fields: dict[str, Any]) -> None:
    set_heartbeat(redis, msgspec.json.encode(GOOD | fields))
    assert read().heartbeat is None
    assert heartbeats.with_heartbeat(APPLICATION, [INSTANCE]) == {INSTANCE}


def test_a_heartbeat_that_lives_for_ages_was_received_now(redis: Redis) -> None:
    set_heartbeat(redis, msgspec.json.encode(GOOD), milliseconds=9 * 10**16)
    assert abs(read().received_at - datetime.now(UTC)) < timedelta(seconds=5)


def test_of_large_heartbeats_only_the_beginning_is_read(redis: Redis) -> None:
    large = msgspec.json.encode(GOOD) + b" " * heartbeats.HEARTBEAT_BYTES
    set_heartbeat(redis, large)
    assert read().heartbeat is None
    set_heartbeat(redis, large[: heartbeats.HEARTBEAT_BYTES])
    assert read().heartbeat is not None


def test_the_sum_that_one_call_decodes_is_limited(redis: Redis) -> None:
    value = msgspec.json.encode(GOOD).ljust(heartbeats.HEARTBEAT_BYTES)
    ids = [UUID(int=number) for number in range(200)]
    for each in ids:
        redis.set(redis_keys.heartbeat(APPLICATION, each), value, ex=30)
    found = heartbeats.read([(APPLICATION, each) for each in ids])
    assert len(found) == len(ids)
    decoded = [each for each in found.values() if each.heartbeat is not None]
    assert len(decoded) == heartbeats.READ_BYTES // heartbeats.HEARTBEAT_BYTES
