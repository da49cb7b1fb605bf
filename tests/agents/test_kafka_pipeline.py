"""A pipeline that reads from a Kafka broker, and dead letters in one of its topics."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench, sink_to
from tests.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.smoke, pytest.mark.timeout(300)]


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"flights-{uuid.uuid4().hex[:8]}"


def guarded(bench: Bench, source: DataFrame) -> Pipeline:
    """Return a pipeline over Kafka's columns with all their defaults."""

    def known(row: dict[str, Any]) -> dict[str, Any]:
        if row["flight"] is not None and row["flight"]["origin"] == "XXX":
            raise ValueError("unknown origin")
        return row

    return (
        define("flights", source)
        .deserialize(
            "flight",
            F.from_json(F.col("value").cast("string"), "origin STRING, dep_delay INT"),
            on_error=LogAndContinue(),
        )
        .process("known", known, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )


def dead_letters(topic: str, broker: KafkaBroker, **more: Any) -> dict[str, Any]:
    servers = {"errors_dlq_producer_bootstrap_servers": broker.servers}
    return {"errors_dlq_topic_name": topic, **servers, **more}


def test_a_missing_topic_of_dead_letters_is_created_as_configured(
    bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    source, target = kafka_source(bench), f"{topic}-dead-letters"
    add_records(bench, KafkaRecord(value=b"no json", key=None))
    with pytest.raises(DeadLettersUnusable, match=r"cannot be looked for, or made.*[Rr]eplication"):
        bench.start(guarded(bench, source), **dead_letters(target, kafka_broker))
    assert kafka_broker.partitions(target) is None

    configured = {"errors_dlq_topic_partitions": 3, "errors_dlq_topic_replication_factor": 1}
    bench.start(guarded(bench, source), **dead_letters(target, kafka_broker, **configured))
    bench.wait_for_input()
    bench.stop()
    assert bench.deaths == []
    assert kafka_broker.partitions(target) == 3
    [message] = kafka_broker.messages(target)
    assert (message.key(), message.value()) == (None, b"no json")
