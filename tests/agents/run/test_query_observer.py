"""Unguarded queries of a session are shown with what flows through them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from arrester import Agent
from arrester.agents.run.query_observer import QueryObserver
from arrester.agents.transport.spool import Spool
from arrester.domain.durations import Phase, buckets
from arrester.domain.events import Event, FlowMeasured, Run, ThreadDied, ThreadStarted
from arrester.domain.wire import received_batch
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
        died = failing_query(spark, tmp_path)
        with pytest.raises(StreamingQueryException):
            died.awaitTermination()
        wait_until(lambda: agent._observer is not None and len(agent._observer._queries) == 1)
    finally:
        query.stop()
        agent.stop()

    [event] = [each for each in flows_in_file(tmp_path) if each.run and each.run.epoch == 0]
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

    started, ended = (event for event in run_events(tmp_path) if of(event) == "no-room")
    assert started.data == ThreadStarted(observed=True)
    assert isinstance(ended.data, ThreadDied) and ended.data.failure is not None
    assert ended.data.reason == "ValueError: no room"
    assert (ended.data.failure.exception_class, ended.data.failure.message) == (
        "ValueError",
        "no room",
    )
    assert ended.body is not None and "refuse" in str(ended.body.stack)
    _, stopped = (event for event in run_events(tmp_path) if of(event) == "plain-lines")
    assert isinstance(stopped.data, ThreadDied) and stopped.data.failure is None


def failing_query(spark: SparkSession, folder: Path) -> StreamingQuery:
    def refuse(_rows: DataFrame, _batch: int) -> None:
        raise ValueError("no room")

    lines = spark.readStream.schema(SCHEMA).json(str(folder / "plain")).writeStream
    return lines.foreachBatch(refuse).queryName("No room").start()


def of(event: Event) -> str:
    return "" if event.run is None else event.run.pipeline


def run_events(folder: Path) -> list[Event]:
    [path] = (folder / "spool" / "tests").glob("*.sqlite")
    spool = Spool(path, id=batch_id(0), limit_bytes=2**20)
    return [
        event
        for batch in spool.unsent(most=1_000, most_bytes=2**20)
        for event in received_batch.decode_batch(batch.events)
        if isinstance(event, Event) and isinstance(event.data, ThreadStarted | ThreadDied)
    ]


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
    observer = observer_of(spool)
    report = {"id": "q1", "timestamp": "2026-03-04T05:06:07.000Z", "batchId": 3, "name": name}
    observer.onQueryProgress(event_with(json.dumps(report | {"durationMs": {"addBatch": 1}})))

    [event] = flow_events(spool)
    assert event.run is not None
    assert event.run.pipeline == pipeline


def observer_of(spool: Spool) -> QueryObserver:
    session: Any = SimpleNamespace(streams=SimpleNamespace(get=lambda id: None))
    return QueryObserver(session, store=spool.flow, instance=INSTANCE, emit=lambda *_, **__: None)


def event_with(report: Any) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=report))


def test_a_report_that_cannot_be_read_is_left_out() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    observer = observer_of(spool)
    observer.onQueryProgress(event_with("{"))
    observer.onQueryProgress(event_with(json.dumps({"id": "q1"})))
    idle = {"id": "q1", "timestamp": "2026-03-04T05:06:07.000Z", "batchId": 3}
    observer.onQueryProgress(event_with(json.dumps(idle)))
    assert spool.flow.is_empty()

    observer.onQueryProgress(event_with(json.dumps(idle | {"durationMs": {"addBatch": 1}})))
    [event] = flow_events(spool)
    assert event.run is not None
    assert event.run.pipeline == "q1"


def test_a_query_that_ends_while_the_agent_ends_is_reported_once() -> None:
    spool = Spool(Path(":memory:"), id=batch_id(0), limit_bytes=2**20)
    observer, ended = observer_of(spool), []

    def emit(*_: object, run: Run, **__: object) -> None:
        ended.append(run.checkpoint)
        # Spark reports the end of the other one meanwhile.
        observer._queries.pop("second", None)

    observer._emit = emit
    for id in ("first", "second"):
        run = Run(pipeline="rollup", checkpoint=id, epoch=0)
        query: Any = SimpleNamespace(id=id)
        observer._queries[id] = (query, run)
    observer.stop()
    assert (ended, observer._queries) == (["first"], {})
