"""Refuse a start whose Kafka servers or topics are wrong, in one line instead of time-outs."""

from __future__ import annotations

from collections.abc import Mapping

from arrester.agents.definition.kafka_topic import KafkaTopic
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.spark.jvm.kafka_admin import TopicFault, topic_fault
from arrester.agents.spark.kafka_source import BOOTSTRAP, checkable_sources
from arrester.controlplane.domain.errors import ArresterError


class KafkaUnusable(ArresterError):
    """Servers or a topic of a source or sink cannot be used; the message names the reason."""


def check_kafka(pipeline: Pipeline, *, first: bool) -> None:
    """Raise KafkaUnusable for servers and topics with which the pipeline cannot run.

    `first`: no micro-batch is planned yet. Later the sources have worked, and their failures are
    retried by `errors.retries.limit`; so are time-outs of the sink.
    """
    spark = pipeline.source.sparkSession
    if first:
        for options, topics in checkable_sources(pipeline.source):
            if fault := topic_fault(spark, options, topics):
                raise KafkaUnusable(_message("source", "subscribe or assign", options, fault))
    function = pipeline.sink.function
    if isinstance(function, KafkaTopic):
        fault = topic_fault(spark, function.options, [function.topic])
        if fault is not None and (first or not fault.is_timeout):
            raise KafkaUnusable(_message("write_kafka", "topic", function.options, fault))


def _message(part: str, name: str, options: Mapping[str, str], fault: TopicFault) -> str:
    servers = options[BOOTSTRAP]
    if fault.is_missing:
        return (
            f"{part}: topic {fault.topic!r} does not exist at {servers}; create it, or correct "
            f"{name}"
        )
    if fault.is_timeout:
        return (
            f"{part}: no broker of {BOOTSTRAP}={servers} answers ({fault.reason}); correct it, or "
            "start when the brokers run"
        )
    place = "" if fault.topic is None else f" topic {fault.topic!r} at"
    return f"{part}:{place} {servers} cannot be used ({fault.reason}); correct the options kafka.*"
