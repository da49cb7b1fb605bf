"""What the suites about dead letters in Kafka have in common: a pipeline, a cluster, a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Message
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import Handler, LogAndContinue
from tests.agents.kafka_cluster import KafkaCluster, kafka
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench, sink_to

Row = dict[str, Any]
TOPIC = "letters"


class ConnectException(Exception):
    """Represents any exception that is one record's own."""


class NullPointerException(Exception):
    """The same."""


class RetriableException(TimeoutError):
    """One that trying again may help."""


def raising(name: str, message: str | None) -> Callable[[Row], Row]:
    """Return a step that raises, for each record."""
    kind = {each.__name__: each for each in (ConnectException, NullPointerException)}[name]

    def step(row: Row) -> Row:
        raise kind() if message is None else kind(message)

    return step


def pipeline(
    bench: Bench, step: Callable[[Row], Row], *, on_error: Handler | None = None
) -> Pipeline:
    """Return a pipeline of one task over Kafka's columns, whose step leaves out what it refuses."""
    builder = define("job", kafka_source(bench), task=F.lit("0"))
    builder = builder.process("step", step, on_error=on_error or LogAndContinue())
    return builder.write(sink_to(bench.folder / "out"))


@contextmanager
def dead_letter_topic(topic: str = TOPIC) -> Iterator[KafkaCluster]:
    """Run a cluster that has the topic."""
    with kafka() as cluster:
        cluster.make(topic)
        yield cluster


def keys(cluster: KafkaCluster, topic: str = TOPIC, **more: Any) -> dict[str, Any]:
    """Return what names the topic."""
    servers = {"errors_dlq_producer_bootstrap_servers": cluster.servers}
    return {"errors_dlq_topic_name": topic, **servers, **more}


def dead_letter(
    bench: Bench, record: KafkaRecord, step: Callable[[Row], Row], *, topic: str = TOPIC
) -> Message:
    """Run one record through the pipeline; return what it became in the topic."""
    with dead_letter_topic(topic) as cluster:
        add_records(bench, record)
        bench.start(pipeline(bench, step), **keys(cluster, topic))
        bench.wait_for_input()
        bench.stop()
        [message] = cluster.messages(topic)
        return message


def check_headers(found: Mapping[str, str | None], expected: Mapping[str, str]) -> None:
    """Compare headers: what a case only describes, in `<>`, has to be there."""
    for name, value in expected.items():
        header = found[name]
        if "starts with" in value:
            assert header is not None
            exception = found["__connect.errors.exception.class.name"]
            message = found["__connect.errors.exception.message"]
            assert header.startswith(f"{exception}: {message}")
        elif value.startswith("<"):
            assert header
        else:
            assert header == value, name
