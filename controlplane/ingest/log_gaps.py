"""Gaps of logs: events that PostgreSQL lost because it was restored from an older dump.

Agents have deleted the confirmed batches of those events. Redis has the position of the newest
confirmed event, so a log that ends before it has a gap.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

from redis.client import Pipeline

from arrester.controlplane.models import LogGap
from arrester.controlplane.redis import redis_client
from arrester.controlplane.store import LogStream
from arrester.domain.identity import redis_keys

log = logging.getLogger(__name__)


def record_end(pipe: Pipeline, stream: LogStream) -> None:
    """Record in Redis where a log ends, with the confirmation of its last batches."""
    pipe.set(redis_keys.log_end(stream.application), stream.sequence)


def notice(redis: redis_client.Redis, stream: LogStream) -> None:
    """Record a gap of a log; the caller holds its fold lock.

    New events get the positions of the missing ones, and the states of tasks are corrected by the
    reports of their instances.
    """
    key = redis_keys.log_end(stream.application)
    value = redis.get(key)
    # A position has at most 18 digits; anything else is not ours.
    if not isinstance(value, bytes) or re.fullmatch(rb"\d{1,18}", value) is None:
        return
    if int(value) <= stream.sequence:
        return
    first, last = stream.sequence + 1, int(value)
    LogGap.objects.get_or_create(
        application=stream.application,
        first=first,
        last=last,
        defaults={"noticed_at": datetime.now(UTC)},
    )
    log.error(
        "%s: PostgreSQL is older than Redis: events %s to %s of the log are missing, and their"
        " batches were confirmed to the agents",
        stream.application,
        first,
        last,
    )
    redis.set(key, stream.sequence)
