"""The content of the heartbeat that `transport.sender` sends every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from arrester.agents.runtime.thread_protocol import Thread, run_of
from arrester.agents.transport.spool import Spool
from arrester.domain.python_versions import UTC
from arrester.domain.state import drift
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire import codec


def in_progress(running: Sequence[Thread]) -> tuple[codec.InProgress, ...]:
    """Return what the threads process now."""
    inputs = (thread.in_progress for thread in running)
    return tuple(each for each in inputs if each is not None)


def flow(running: Sequence[Thread]) -> tuple[codec.RunFlow, ...]:
    """Return what flows through the threads now."""
    found = (thread.flow for thread in running)
    return tuple(each for each in found if each is not None)


def heartbeat(status: InstanceStatus, running: Sequence[Thread], spool: Spool) -> bytes:
    """Return the heartbeat, packed."""
    weights = [thread.task_weight() for thread in running]
    published = [weight for weight in weights if weight is not None]
    return msgspec.json.encode(
        codec.Heartbeat(
            at=datetime.now(UTC),
            status=status.value,
            runs=tuple(map(run_of, running)),
            in_progress=in_progress(running),
            flow=flow(running),
            spooled=spool.events,
            counted_only=spool.counted_only,
            spool_bytes=spool.size_bytes,
            spool_since=spool.oldest(),
            batches_dropped=spool.dropped,
            # None while a thread has unpublished events.
            standing=drift.state_hash(published) if len(published) == len(weights) else None,
        )
    )
