"""Pipelines over rows with the schema of Spark's Kafka source."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import ErrorContext, Handler, Record, RecordError
from arrester.domain.error_policy.policy import Response
from tests.agents.pipeline_bench import Bench, sink_to

Row = dict[str, Any]


class Seen:
    """A handler that records its calls and answers CONTINUE."""

    def __init__(self) -> None:
        self.asked: list[tuple[ErrorContext, Record, RecordError]] = []

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        self.asked.append((context, record, exception))
        return Response.CONTINUE


def failing() -> Any:
    def check(row: Row) -> Row:
        raise ValueError("bad")

    return check


def refusing() -> Any:
    def send(row: Row) -> None:
        raise ValueError("bad")

    return send


def kafka_builder(bench: Bench) -> PipelineBuilder:
    header = F.struct(F.lit("trace").alias("key"), F.lit(b"7").alias("value"))
    source = bench.source().select(
        F.lit(b"k1").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.lit("topic-a").alias("topic"),
        F.lit(5).alias("partition"),
        F.col("position").alias("offset"),
        F.timestamp_millis(F.lit(1_700_000_000_000)).alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.array(header).alias("headers"),
    )
    return define("orders", source).deserialize("text", F.col("value").cast("string"))


def kafka_pipeline(bench: Bench, handler: Handler) -> Pipeline:
    """Return a pipeline whose step fails on every record of `topic-a`."""
    builder = kafka_builder(bench).process("check", failing(), on_error=handler)
    return builder.write(sink_to(bench.folder / "out"))


def sending_pipeline(bench: Bench, handler: Handler) -> Pipeline:
    """Return a pipeline whose `send` fails on every record of `topic-a`."""
    return kafka_builder(bench).produce(refusing(), on_error=handler)
