"""Overhead of guarding a topic: `.write_kafka` ÷ Spark's own Kafka writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from uuid import uuid4

from pyspark.sql import DataFrame

from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from benchmarks.pipelines import Flights, World, session
from benchmarks.table import Figure
from benchmarks.timed_writes import AtEnd, run_guarded, run_plain, seconds_between_writes
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
_Run = Callable[[World, KafkaBroker, Flights, str, AtEnd], None]


def _seconds(world: World, broker: KafkaBroker, flights: Flights, run: _Run) -> float:
    """Return the median time between the ends of two writes into a new topic."""
    topic = f"flights-{uuid4().hex[:8]}"
    broker.make(topic, _PARTITIONS)
    seconds = seconds_between_writes(lambda at_end: run(world, broker, flights, topic, at_end))
    written = len(broker.messages(topic))
    broker.delete(topic)
    if written != flights.first_rows + flights.rows:
        raise RuntimeError(f"{written} rows were written, of {flights}")
    return seconds


def _run_plain(
    world: World, broker: KafkaBroker, flights: Flights, topic: str, at_end: AtEnd
) -> None:
    def write(df: DataFrame) -> None:
        writer = df.select("value").write.format("kafka").option(_SERVERS, broker.servers)
        writer.option("topic", topic).save()

    run_plain(world, flights, write, at_end)


def _run_guarded(
    world: World, broker: KafkaBroker, flights: Flights, topic: str, at_end: AtEnd
) -> None:
    def finish(builder: PipelineBuilder) -> Pipeline:
        pipeline = builder.write_kafka(topic, options={_SERVERS: broker.servers})
        sink = pipeline.sink
        assert isinstance(sink, Sink)
        write = sink.function

        def timed(df: DataFrame, number: int) -> None:
            write(df, number)
            at_end()

        # Spark's own writer reads all rows.
        return replace(pipeline, sink=replace(sink, function=timed, partial=True))

    run_guarded(world, flights, finish)
