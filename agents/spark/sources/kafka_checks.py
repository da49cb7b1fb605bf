"""Refuse a start whose Kafka servers or topics are wrong, in one line instead of time-outs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.spark.jvm.stores.kafka_admin import TopicFault, topic_fault
from arrester.agents.spark.sources.kafka_source import BOOTSTRAP, checkable_sources
from arrester.domain.errors import ArresterError


class KafkaUnusable(ArresterError):
    """Servers or a topic of a source or sink cannot be used; the message names the reason."""


def check_sources(source: DataFrame) -> None:
    """Raise KafkaUnusable for servers and topics that the source cannot read."""
    for options, topics in checkable_sources(source):
        if fault := topic_fault(source.sparkSession, options, topics):
            raise KafkaUnusable(_message("source", "subscribe or assign", options, fault))


def check_topic(
    spark: SparkSession, topic: str, options: Mapping[str, str], *, may_time_out: bool
) -> None:
    """Raise KafkaUnusable if the sink cannot write the topic.

    `may_time_out`: brokers that do not answer are accepted, since the sink tries again.
    """
    fault = topic_fault(spark, options, [topic])
    if fault is not None and not (may_time_out and fault.is_timeout):
        raise KafkaUnusable(_message("write_kafka", "topic", options, fault))


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
