"""Unguarded queries of a session are shown with what flows through them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester import Agent
from arrester.agents.run.query_observer import QueryObserver
from arrester.agents.transport.spool import Spool
from arrester.controlplane.domain.events import Event, FlowMeasured
from arrester.controlplane.domain.state.durations import Phase, buckets
from tests.agents.measured_flow import flow_events
from tests.agents.pipeline_bench import SCHEMA, Bench, sink_to, write_batch
from tests.agents.sample_events import INSTANCE, batch_id
from tests.patience import wait_until


@pytest.mark.spark
def test_an_unguarded_query_is_observed_and_a_guarded_one_is_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A port at which nothing listens: the events stay in the spool.
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("ARRESTER_SPOOL", str(tmp_path / "spool"))
    bench = Bench(spark, tmp_path)
    bench.add(("a", 0, "x"), ("a", 1, "x"))
    write_batch(tmp_path / "plain", 1, [{"task": "a", "position": 0, "value": "x"}] * 3)
    agent = Agent(spark, application="tests")
    agent.observe()
    agent.observe()
    spool = agent._runtime._opened.spool
    guarded = agent.pipeline("lines", bench.source(), task="task", position="position")
    guarded.write(sink_to(tmp_path / "out"), atomic=True).start(bench.checkpoint)
    plain = spark.readStream.schema(SCHEMA).json(str(tmp_path / "plain")).writeStream
    plain = plain.format("noop").queryName("Plain lines")
    query = plain.option("checkpointLocation", str(tmp_path / "plain-checkpoint")).start()
    try:
        wait_until(lambda: bench.committed() == 0, what="the guarded micro-batch")
        wait_until(
            lambda: "plain-lines" in {each.run.pipeline for each in flow_events(spool) if each.run},
            what="the report of the query",
        )
    finally:
        query.stop()
        agent.stop()

    observed = [each for each in flows_in_file(tmp_path) if getattr(each.data, "observed", False)]
    [event] = observed
    assert event.run is not None
    assert (event.run.pipeline, event.run.checkpoint, event.run.epoch) == (
        "plain-lines",
        str(query.id),
        0,
    )
    flow = event.data
    assert isinstance(flow, FlowMeasured)
    assert (flow.micro_batches, flow.records_in, flow.records_out) == (1, 3, 0)
    assert buckets(flow.durations, Phase.TOTAL)


def flows_in_file(folder: Path) -> list[Event]:
    [path] = (folder / "spool" / "tests").glob("*.sqlite")
    return flow_events(Spool(path, id=batch_id(0), limit_bytes=2**20))


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("Plain lines", "plain-lines"),
        ("delays", "delays"),
        ("-_Übung 7", "bung-7"),
        ("x" * 100, "x" * 63),
        ("__", "q1"),
        (None, "q1"),
    ],
)
def test_a_query_has_a_valid_name(name: str | None, pipeline: str) -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    observer = QueryObserver(None, store=spool.flow, instance=INSTANCE)  # type: ignore[arg-type]
    report = {"id": "q1", "timestamp": "2026-03-04T05:06:07.000Z", "batchId": 3, "name": name}
    observer.onQueryProgress(event_with(json.dumps(report | {"durationMs": {"addBatch": 1}})))

    [event] = flow_events(spool)
    assert event.run is not None
    assert event.run.pipeline == pipeline


def event_with(report: Any) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=report))


def test_a_report_that_cannot_be_read_is_left_out() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    observer = QueryObserver(None, store=spool.flow, instance=INSTANCE)  # type: ignore[arg-type]
    observer.onQueryProgress(event_with("{"))
    observer.onQueryProgress(event_with(json.dumps({"id": "q1"})))
    idle = {"id": "q1", "timestamp": "2026-03-04T05:06:07.000Z", "batchId": 3}
    observer.onQueryProgress(event_with(json.dumps(idle)))
    assert spool.flow.is_empty()

    observer.onQueryProgress(event_with(json.dumps(idle | {"durationMs": {"addBatch": 1}})))
    [event] = flow_events(spool)
    assert event.run is not None
    assert event.run.pipeline == "q1"
