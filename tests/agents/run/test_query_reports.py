"""What a run makes of the progress reports of its query."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.run.query_reports import QueryReports
from arrester.agents.spark.query_progress import Backlog, Progress
from arrester.agents.transport.spool import Spool
from arrester.domain.durations import Phase, bucket_of, buckets
from tests.agents.measured_flow import flow_in
from tests.agents.sample_events import INSTANCE, NOW, RUN, batch_id


def progress(batch: int, total: float = 500, **more: Any) -> Progress:
    values: dict[str, Any] = {
        "name": None,
        "timestamp": f"2026-03-04T05:06:0{batch}Z",
        "ended_at": NOW,
        "committed": batch,
        "is_batch": True,
        "rows": 1,
        "total": total,
        "source": 100,
        "backlog": Backlog(),
        "watermark": None,
    }
    return Progress(**(values | more))


def reports_into(spool: Spool, *, is_on: bool = True) -> QueryReports:
    store: Any = spool.flow if is_on else None
    unused: Any = None
    return QueryReports(
        FlowMeter(
            store=store,
            run=RUN,
            instance=INSTANCE,
            journal=unused,
            progress=unused,
            clock=lambda: datetime.now(UTC),
        )
    )


def query_with(*found: Progress) -> Any:
    def progress_after(last: Progress | None) -> list[Progress]:
        return [each for each in found if last is None or each.timestamp > last.timestamp]

    return SimpleNamespace(progress_after=progress_after)


def test_the_wait_of_a_paused_pipeline_is_not_a_duration_of_its_micro_batch() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    reports = reports_into(spool)
    reports.waited(0, 3_600)
    reports.waited(1, 0.001)
    query = query_with(progress(0, 3_600_900), progress(1, 501))
    reports.read(query, now=True)
    reports.read(query, now=True)

    found = dict(buckets(flow_in(spool).durations, Phase.TOTAL))
    assert found == {bucket_of(900): 1, bucket_of(500): 1}
    assert buckets(flow_in(spool).durations, Phase.SOURCE) == [(bucket_of(100), 2)]


def test_an_idle_trigger_reports_the_backlog_of_now_only() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    reports = reports_into(spool)
    idle = progress(2, is_batch=False, committed=1, backlog=Backlog(7, "records"))
    reports.read(query_with(progress(1), idle), now=True)

    flow = reports.flow(2.5)
    assert (flow.backlog, flow.backlog_unit, flow.last_batch_at) == (7, "records", NOW)
    assert (flow.pipeline, flow.checkpoint, flow.rows_per_second) == ("delays", "c1", 2.5)
    assert flow_in(spool).backlog is None


def test_reports_of_an_ended_query_break_no_run() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)

    def gone(last: Progress | None) -> list[Progress]:
        raise ConnectionError("the session was stopped")

    reports = reports_into(spool)
    reports.read(SimpleNamespace(progress_after=gone), now=True)
    assert reports.flow(None).last_batch_at is None
    reports_into(spool, is_on=False).read(None, now=True)  # type: ignore[arg-type]
