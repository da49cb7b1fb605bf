"""The present conditions that need a person, read from the views."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime

import msgspec

from arrester.controlplane import redis_client
from arrester.controlplane.alerts.causes import AlertCause, read_limits
from arrester.controlplane.alerts.conditions import (
    commands,
    errors,
    instances,
    pipelines,
    server,
)
from arrester.controlplane.alerts.conditions.condition import Condition
from arrester.controlplane.views import row_mapping


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The present conditions, and the causes that could not be checked."""

    conditions: tuple[Condition, ...]
    unknown: Set[AlertCause] = frozenset()


def find(*, now: datetime) -> Found:
    """Return what needs a person now. While Redis is away, what it has is unknown."""
    limits = read_limits()
    threads = row_mapping.THREADS.load_readable("true", [])
    found = [
        *pipelines.find(threads, limits, now=now),
        *instances.find(limits, now=now),
        *errors.find(limits, now=now),
        *commands.find(now=now),
        *server.audit(now=now),
    ]
    try:
        found += server.find(now=now)
    except redis_client.RedisError:
        return Found(conditions=tuple(found), unknown=server.CAUSES)
    return Found(conditions=tuple(found))
