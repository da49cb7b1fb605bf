"""What flowed through the runs of a test, as their spool would send it."""

from __future__ import annotations

from datetime import UTC, datetime

from arrester.agents.transport.flow_store import added
from arrester.agents.transport.spool import Spool
from arrester.domain.events import FLOW_COUNTS, Event, FlowMeasured
from arrester.domain.wire import received_batch


def flow_events(spool: Spool) -> list[Event]:
    """Return the events of all minutes, without what is pending."""
    spool.put_flow(datetime.now(UTC), all=True)
    return [
        event
        for batch in spool.unsent(most=1_000, most_bytes=2**20)
        for event in received_batch.decode_batch(batch.events)
        if isinstance(event, Event) and isinstance(event.data, FlowMeasured)
    ]


def flow_in(spool: Spool) -> FlowMeasured:
    """Return the sum of all minutes, in which each record has one outcome."""
    total = FlowMeasured(minute=datetime(2026, 1, 1, tzinfo=UTC))
    for event in flow_events(spool):
        assert isinstance(event.data, FlowMeasured)
        total = added(total, event.data)
    assert total.records_in + total.drained == total.records_out + total.skipped + total.held
    return total


def counts_of(spool: Spool) -> dict[str, int]:
    """Return the counts that are not 0."""
    flow = flow_in(spool)
    return {name: getattr(flow, name) for name in FLOW_COUNTS if getattr(flow, name)}
