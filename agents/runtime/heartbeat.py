"""The heartbeat that an instance sends every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from arrester.agents.runtime.protocols import Thread
from arrester.agents.transport.spool import Spool
from arrester.controlplane.domain.events import Run
from arrester.controlplane.domain.state import drift
from arrester.controlplane.domain.state.states import InstanceStatus
from arrester.controlplane.domain.wire import codec


def heartbeat(
    status: InstanceStatus, running: Sequence[Thread], spool: Spool, *, at: datetime
) -> bytes:
    """Return the heartbeat, packed."""
    runs = tuple(
        Run(pipeline=each.pipeline_name, checkpoint=each.checkpoint_id, epoch=each.epoch)
        for each in running
    )
    return msgspec.json.encode(
        codec.Heartbeat(
            at=at,
            status=status.value,
            runs=runs,
            spooled=spool.events,
            counted_only=spool.counted_only,
            spool_bytes=spool.size_bytes,
            spool_since=spool.oldest(),
            standing=_standing(running),
        )
    )


def _standing(running: Sequence[Thread]) -> str | None:
    """Return the hash of the tasks that are not RUNNING; None while a thread has unpublished
    events."""
    weights = [each.standing() for each in running]
    known = [weight for weight in weights if weight is not None]
    return drift.standing(known) if len(known) == len(weights) else None
