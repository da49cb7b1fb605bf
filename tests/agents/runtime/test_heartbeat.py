"""What the heartbeat reports about the flow of each run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from arrester.agents.runtime.heartbeat import heartbeat
from arrester.agents.transport.spool import Spool
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire.codec import Heartbeat, RunFlow
from tests.agents.fake_thread import FakeThread
from tests.agents.pipeline_bench import MemoryOutbox
from tests.agents.sample_events import NOW, batch_id


def test_the_heartbeat_has_the_flow_of_each_run_that_is_measured() -> None:
    flow = RunFlow(
        pipeline="delays",
        checkpoint="c1",
        rows_per_second=2.5,
        last_batch_at=NOW,
        backlog=7,
        backlog_unit="records",
    )
    threads = [FakeThread(MemoryOutbox(), print, flow=each) for each in (flow, None)]
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    beat = msgspec.json.decode(heartbeat(InstanceStatus.RUNNING, threads, spool), type=Heartbeat)

    assert len(beat.runs) == 2
    assert beat.flow == (flow,)


def test_the_heartbeat_of_an_older_agent_has_no_flow() -> None:
    text = '{"at": "2026-03-04T05:06:07Z", "status": "RUNNING"}'
    assert msgspec.json.decode(text, type=Heartbeat).flow == ()
