"""Clock check: a WARNING in the log if the clocks of an instance and of the server differ."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from uuid import UUID

from arrester.controlplane.redis import heartbeats

log = logging.getLogger(__name__)

REPEAT_SECONDS = 3600.0
#: When each instance was last reported, by this process.
_reported: dict[UUID, float] = {}


def check(application: str, instances: Collection[UUID]) -> None:
    """Log the instances whose clock is too far from the server's, each once an hour."""
    now = time.monotonic()
    for id, received in heartbeats.read([(application, each) for each in instances]).items():
        skew = received.skew
        if skew is None or abs(skew) <= heartbeats.SKEW_LIMIT:
            _reported.pop(id, None)
        elif id not in _reported or now - _reported[id] >= REPEAT_SECONDS:
            _reported[id] = now
            log.warning(
                "%s: the clock of instance %s differs from the server's by %+.0f s; synchronise"
                " both by NTP",
                *(application, id, skew.total_seconds()),
            )
