"""Overhead of guarding a topic: `.write_kafka` ÷ Spark's own Kafka writer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from uuid import uuid4

from pyspark.sql import DataFrame

from arrester import Agent
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from benchmarks.pipelines import Flights, World, session
from benchmarks.table import Figure
from tests import kafka_broker
from tests.kafka_broker import KafkaBroker

_PARTITIONS = 2
_SERVERS = "kafka.bootstrap.servers"


def figures(folder: Path, *, rows: int, pairs: int) -> list[Figure]:
    """Return the ratio of the times of a micro-batch: the median of some pairs.

    The first pair warms up.
    """
    spark = session(jars=",".join(map(str, kafka_broker.connector())))
    found = []
    try:
        world = World(spark=spark, folder=folder, rows=rows)
        flights = Flights(rows=rows)
        with kafka_broker.running() as broker:
            for _ in range(pairs + 1):
                plain = _seconds(world, broker, flights, _run_plain)
                found.append(_seconds(world, broker, flights, _run_guarded) / plain)
    finally:
        spark.stop()
    return [Figure(name="Topic, guarded ÷ plain", value=median(found[1:]), goal="≤ 1.06")]


#: Runs to the end; gets a topic, and a function to call after each write.
_Run = Callable[[World, KafkaBroker, Flights, str, Callable[[], None]], None]


def _seconds(world: World, broker: KafkaBroker, flights: Flights, run: _Run) -> float:
    """Return the median time between the ends of two writes into a new topic."""
    topic, ends = f"flights-{uuid4().hex[:8]}", list[float]()
    broker.make(topic, _PARTITIONS)
    run(world, broker, flights, topic, lambda: ends.append(time.perf_counter()))
    written = len(broker.messages(topic))
    broker.delete(topic)
    if written != flights.first_rows + flights.rows:
        raise RuntimeError(f"{written} rows were written, of {flights}")
    return median(after - before for before, after in pairwise(ends))


def _run_plain(
    world: World, broker: KafkaBroker, flights: Flights, topic: str, at: Callable[[], None]
) -> None:
    def write(df: DataFrame, number: int) -> None:
        writer = df.select("value").write.format("kafka").option(_SERVERS, broker.servers)
        writer.option("topic", topic).save()
        at()

    query = world.source(flights).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", _checkpoint(world))
    query.trigger(availableNow=True).start().awaitTermination()


def _run_guarded(
    world: World, broker: KafkaBroker, flights: Flights, topic: str, at: Callable[[], None]
) -> None:
    agent = Agent(world.spark, application="benchmarks")
    source = world.source(flights)
    pipeline = agent.pipeline("flights", source, task="origin", position="position").write_kafka(
        topic, options={_SERVERS: broker.servers}
    )
    with agent:
        _timed(pipeline, at).start(_checkpoint(world), trigger={"availableNow": True})
        agent.await_termination()


def _timed(pipeline: Pipeline, at: Callable[[], None]) -> Pipeline:
    sink = pipeline.sink
    assert isinstance(sink, Sink)
    write = sink.function

    def timed(df: DataFrame, number: int) -> None:
        write(df, number)
        at()

    # Spark's own writer reads all rows.
    return replace(pipeline, sink=replace(sink, function=timed, partial=True))


def _checkpoint(world: World) -> str:
    return str(world.folder / "checkpoint" / str(time.time_ns()))
