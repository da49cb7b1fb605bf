"""`.produce` with the client of confluent-kafka, whose errors a broker causes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from arrester.agents.definition.builder import define
from arrester.agents.handlers import CONTINUE
from arrester.domain.events import RecordFailed
from tests.agents.pipeline_bench import Bench
from tests.agents.test_kafka_pipeline import connected, topic
from tests.agents.test_write_kafka import reading
from tests.kafka_broker import KafkaBroker, Sent
from tests.patience import wait_until

__all__ = ["connected", "topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.long]

Row = dict[str, Any]


def sending(
    settings: dict[str, Any], missing: str, target: str, mark: Path
) -> Callable[[], AbstractContextManager[Callable[[Row], None]]]:
    """Return a function that opens a client.

    Records with the key `missing` go to that topic. At the first record `fenced`, a newer client
    takes over the transactional id.
    """

    @contextmanager
    def connect() -> Iterator[Callable[[Row], None]]:
        # Its classes name a module that cannot be imported, so they do not travel to executors.
        from confluent_kafka import KafkaException, Producer

        transactional = {**settings, "transactional.id": target, "error_cb": lambda error: None}
        producer = Producer(settings)

        def send(row: Row) -> None:
            errors: list[Any] = []
            producer.produce(
                missing if row["key"] == b"missing" else target,
                bytes(row["value"]),
                on_delivery=lambda error, _: errors.append(error),
            )
            producer.flush()
            if errors[0] is not None:
                raise KafkaException(errors[0])

        def send_in_transaction(row: Row) -> None:
            fenced = Producer(transactional)
            fenced.init_transactions(30)
            fenced.begin_transaction()
            if not mark.exists():
                mark.touch()
                Producer(transactional).init_transactions(30)
            fenced.produce(target, bytes(row["value"]))
            fenced.commit_transaction(30)

        yield lambda row: (send_in_transaction if row["key"] == b"fenced" else send)(row)

    return connect


def test_errors_of_the_client_are_answered_as_documented(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    target, missing = f"{topic}-out", f"{topic}-missing"
    kafka_broker.make(topic)
    kafka_broker.make(target)
    kafka_broker.configure(target, "max.message.bytes", "1000")
    source = reading(connected, kafka_broker.servers, subscribe=topic)
    settings = kafka_broker.secured_client | {"topic.metadata.propagation.max.ms": 500}
    connect = sending(settings, missing, target, bench.folder / "fenced")
    too_large = "confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE"
    pipeline = define("flights", source).produce(connect=connect, on={too_large: CONTINUE})
    keys: dict[str, Any] = {"errors_retry_timeout": -1, "errors_retries_delay_max_ms": 200}

    def arrived(at: str = target) -> list[Any]:
        return [each.value() for each in kafka_broker.messages(at)]

    kafka_broker.send(
        topic,
        Sent(value=b"a"),
        Sent(value=b"x" * 5_000),
        Sent(value=b"b"),
        Sent(value=b"c", key=b"missing"),
        Sent(value=b"d", key=b"fenced"),
    )
    bench.start(pipeline, **keys)
    wait_until(lambda: arrived() == [b"a", b"b"] or bool(bench.ends), what="first records")
    # A missing topic is retried, and nothing later is sent.
    kafka_broker.make(missing)
    wait_until(lambda: arrived()[-1:] == [b"d"] or bool(bench.ends), what="all records")
    bench.wait_for_input()
    assert bench.ends == []
    # A fenced client restarts the query, which sends its micro-batch again.
    assert (bench.folder / "fenced").exists()
    assert set(arrived()) == {b"a", b"b", b"d"}
    assert set(arrived(missing)) == {b"c"}
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, "MSG_SIZE_TOO_LARGE" in failed.failure.message) == (1, True)

    # No handler is called: no record could be sent.
    kafka_broker.deny_writes(target)
    kafka_broker.send(topic, Sent(value=b"e"))
    wait_until(lambda: bool(bench.ends), what="the end of the run")
    [end] = bench.ends
    assert "Topic authorization failed" in end.reason
    kafka_broker.allow_writes(target)
    bench.ends.clear()
    bench.start(pipeline, **keys)
    wait_until(lambda: arrived()[-1:] == [b"e"] or bool(bench.ends), what="the last record")
    bench.stop()
    assert bench.ends == []
    assert arrived().count(b"e") == 1
