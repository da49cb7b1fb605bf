"""Compare what applications have and send with their quotas, each minute.

A worker does it, since it counts in PostgreSQL. `backpressure` requests counts from the agents of
an application as long as its key of exceeded quotas exists.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import connection
from msgspec.structs import replace

from arrester.controlplane import store
from arrester.controlplane.outbound import agent_connections
from arrester.controlplane.quotas import Quota
from arrester.controlplane.redis import heartbeats, redis_client
from arrester.domain.errors import InvalidValue
from arrester.domain.identity import redis_keys
from arrester.domain.identity.names import check_name

log = logging.getLogger(__name__)
#: How long a result holds if no further check replaces it.
LASTS_SECONDS = 180
#: A shorter time than this is no measure of the events in a minute: another `wake` has just
#: requested a check.
LEAST_SECONDS = 10
HEARTBEAT_BYTES = heartbeats.HEARTBEAT_BYTES
#: Keys that are looked at in one step of the scan.
_KEYS_PER_STEP = 500
_WEEK = redis_keys.CONFIRMED_SECONDS


class _AgentKey(NamedTuple):
    """What keys of a kind have at most, if an agent writes them or has them written."""

    seconds: int
    size: int


#: By the part of the key after the application.
_AGENT_KEYS = {
    # Agents let a heartbeat live for half as long at most.
    "instance": _AgentKey(2 * redis_keys.LOST_AFTER_SECONDS, HEARTBEAT_BYTES),
    "sent": _AgentKey(_WEEK, 1024),
    # An agent reads its confirmations while it sends: some thousand wait.
    "confirmed": _AgentKey(_WEEK, 8 * 2**20),
}
_ENDED = "('NOT_RUNNING', 'ERROR')"
_COUNTS: Mapping[Quota, str] = {
    Quota.GROUPS: "SELECT application, count(*) FROM error_group GROUP BY 1",
    Quota.TASKS: "SELECT application, count(*) FROM task GROUP BY 1",
    Quota.PIPELINES: "SELECT application, count(DISTINCT pipeline) FROM thread GROUP BY 1",
    Quota.INSTANCES: (
        f"SELECT application, count(*) FROM instance WHERE status NOT IN {_ENDED} GROUP BY 1"
    ),
}


class Excess(msgspec.Struct, frozen=True):
    """A quota of an application, and what it has."""

    quota: Quota
    value: int
    most: int

    @property
    def text(self) -> str:
        """The excess in words."""
        return f"{self.value:,} {self.quota.unit}, {self.most:,} are allowed"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What an application had when its events were last counted."""

    at: datetime
    #: Its newest log position: the difference of two checks gives the events in a minute.
    sequence: int
    redis_bytes: int
    #: The events in a minute before.
    events: int = 0
    exceeded: tuple[Excess, ...] = ()


def check(*, now: datetime) -> dict[str, Usage]:
    """Compare all applications with their quotas, and publish the result; raises RedisError.

    Heartbeats that never expire, or are too large, are deleted: agents send no such ones.
    """
    before, used = usages(), _redis_bytes(now=now)
    connections = agent_connections.by_application()
    counts = {quota: _count(statement) for quota, statement in _COUNTS.items()}
    found: dict[str, Usage] = {}
    for stream in store.all_streams():
        name = stream.application
        values = {quota: some.get(name, 0) for quota, some in counts.items()}
        values[Quota.REDIS_MB] = used[name] // 10**6
        values[Quota.CONNECTIONS] = len(connections.get(name, ()))
        counted = _counted(before.get(name), stream.sequence, now=now)
        values[Quota.EVENTS] = counted.events
        quotas = settings.ENVIRONMENT.quotas.of(name)
        found[name] = replace(
            counted,
            redis_bytes=used[name],
            exceeded=tuple(
                Excess(quota, values[quota], most)
                for quota, most in quotas.items()
                if values[quota] > most
            ),
        )
    for name in used.keys() - found.keys():
        found[name] = Usage(at=now, sequence=0, redis_bytes=used[name])
    _publish(found, before)
    return found


def usages() -> dict[str, Usage]:
    """Return the last results by application; raises RedisError."""
    answer: Any = redis_client.client().hgetall(redis_keys.USAGE)
    decoded = {
        name.decode(): redis_client.decode_json(text, Usage) for name, text in answer.items()
    }
    return {name: each for name, each in decoded.items() if each is not None}


def _counted(before: Usage | None, sequence: int, *, now: datetime) -> Usage:
    """Return the usage with the events of a minute since the count before."""
    seconds = 0.0 if before is None else (now - before.at).total_seconds()
    if before is not None and 0 <= seconds < LEAST_SECONDS:
        return before
    events = 0
    if before is not None and LEAST_SECONDS <= seconds <= LASTS_SECONDS:
        events = max(0, round((sequence - before.sequence) * 60 / seconds))
    return Usage(at=now, sequence=sequence, redis_bytes=0, events=events)


def _count(statement: str) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return dict(cursor.fetchall())


def _redis_bytes(*, now: datetime) -> Counter[str]:
    """Return the bytes of the keys of applications, and delete those that no agent writes."""
    redis, used, deleted = redis_client.client(), Counter[str](), Counter[str]()
    for keys in _keys():
        with redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.memory_usage(key)
                pipe.pttl(key)
            answers = pipe.execute(raise_on_error=False)
        invalid: list[bytes] = []
        for key, size, lifetime in zip(keys, answers[::2], answers[1::2], strict=True):
            name = _parts(key)[1]
            if not isinstance(size, int):
                continue
            if _is_invalid(key, size, lifetime):
                # The key of the last sent batch is deleted, too: then the agent sends those batches
                # again whose confirmations are deleted.
                invalid += [key, key.replace(b":confirmed:", b":sent:").removesuffix(b":signed")]
                deleted[name] += 1
            else:
                used[name] += size
        if invalid:
            # Deleted in each step of the scan: there may be millions.
            redis.unlink(*invalid)
    for name, number in deleted.items():
        log.warning("%s: %s keys of agents that live too long or are too large", name, number)
        store.count_reached(name, store.Limit.HEARTBEAT, count=number, at=now)
    return used


def _keys() -> Iterator[list[bytes]]:
    """Yield the keys of applications, some at a time."""
    cursor = None
    while cursor != 0:
        answer: Any = redis_client.client().scan(
            cursor or 0, match=redis_keys.OF_APPLICATIONS, count=_KEYS_PER_STEP
        )
        cursor, keys = answer
        # Keys are compared as bytes: a name may be no UTF-8.
        if ours := [each for each in keys if _is_of_application(each)]:
            yield ours


def _parts(key: bytes) -> list[str]:
    return key.decode(errors="replace").split(":")


def _is_of_application(key: bytes) -> bool:
    try:
        check_name("application", _parts(key)[1])
    except InvalidValue:
        return False
    return True


def _is_invalid(key: bytes, size: int, milliseconds: int) -> bool:
    """Return whether no agent writes a key of this size and lifetime; -1: without an expiry."""
    most = _AGENT_KEYS.get(_parts(key)[2])
    if most is None:
        return False
    return milliseconds == -1 or milliseconds > most.seconds * 1000 or size > most.size


def _publish(found: Mapping[str, Usage], before: Mapping[str, Usage]) -> None:
    with redis_client.client().pipeline(transaction=True) as pipe:
        pipe.delete(redis_keys.USAGE)
        for name, each in found.items():
            pipe.hset(redis_keys.USAGE, name, msgspec.json.encode(each))
            key = redis_keys.over_quota(name)
            if each.exceeded:
                pipe.set(key, ",".join(some.quota for some in each.exceeded), ex=LASTS_SECONDS)
            else:
                pipe.delete(key)
        pipe.expire(redis_keys.USAGE, LASTS_SECONDS)
        pipe.execute()
    for name, each in found.items():
        known = before[name].exceeded if name in before else ()
        if each.exceeded and not known:
            texts = "; ".join(some.text for some in each.exceeded)
            log.warning("%s exceeds its quotas: %s", name, texts)
            store.count_reached(name, store.Limit.QUOTA, count=1, at=each.at)
