"""Dead letters in a topic of a broker that is secured, away, or refuses them."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.spark.worker_tracebacks import exception_traced_in
from arrester.domain.error_policy.classify import Kind, describe
from arrester.domain.error_policy.policy import Policy
from arrester.domain.events import DeadLettersFailed, RecordsDeadLettered
from tests.agents.kafka_cluster import headers_of
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench
from tests.agents.test_kafka_pipeline import guarded, settings, topic
from tests.kafka_broker import PASSWORD, USER, KafkaBroker
from tests.kafka_certificates import authority
from tests.patience import wait_until

__all__ = ["topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SKIPPING: dict[str, Any] = {
    "production_exception_handler": "arrester.agents.handlers.LogAndContinue"
}

SCRAM = {"sasl_mechanism": "SCRAM-SHA-512"}


def secured(topic: str, broker: KafkaBroker, **more: Any) -> dict[str, Any]:
    """Return the settings of dead letters by the listener with SASL and TLS."""
    producer = {
        "bootstrap_servers": broker.secured_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        "ssl_ca_location": str(broker.authority),
        **more,
    }
    return {
        "errors_dlq_topic_name": topic,
        **{f"errors_dlq_producer_{name}": value for name, value in producer.items()},
    }


@pytest.mark.long
def test_dead_letters_by_sasl_and_tls(
    bench: Bench, kafka_broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    source = kafka_source(bench)
    kafka_broker.make(topic)
    add_records(bench, KafkaRecord(value=b"one", offset=0))
    for refused, expected in (
        ({"sasl_password": "wrong"}, "_AUTHENTICATION: .*Invalid username or password"),
        (SCRAM | {"sasl_password": "wrong"}, "_AUTHENTICATION: .*invalid credentials.*SCRAM"),
        ({"ssl_ca_location": str(authority(tmp_path))}, "_SSL: .*certificate verify failed"),
        ({"ssl_ca_location": "/missing.pem"}, r"_INVALID_ARG: .*ssl\.ca\.location failed"),
    ):
        with pytest.raises(DeadLettersUnusable, match=expected) as raised:
            bench.start(guarded(bench, source), **secured(topic, kafka_broker, **refused))
        assert f"errors.dlq.topic.name='{topic}'" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert PASSWORD not in str(raised.value)

    bench.start(guarded(bench, source), **secured(topic, kafka_broker), **SKIPPING)
    bench.wait_for_input()
    bench.stop()
    assert [each.value() for each in kafka_broker.messages(topic)] == [b"one"]

    # Every dead letter would be refused, so the run ends and no handler is called (KIP-210).
    kafka_broker.deny_writes(topic)
    add_records(bench, KafkaRecord(value=b"two", offset=1))
    bench.start(guarded(bench, source), **secured(topic, kafka_broker), **SKIPPING)
    wait_until(lambda: bool(bench.ends))
    [end] = bench.ends
    assert "Topic authorization failed" in end.reason
    bench.ends.clear()
    kafka_broker.allow_writes(topic)
    bench.start(guarded(bench, source), **secured(topic, kafka_broker, **SCRAM))
    bench.wait_for_input()
    bench.stop()
    assert [each.value() for each in kafka_broker.messages(topic)] == [b"one", b"two"]
    failures = {each.failure.exception_class for each in bench.outbox.of(DeadLettersFailed)}
    assert failures == {"confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED"}


@pytest.mark.long
@pytest.mark.parametrize("outage_seconds", [0, 60])
def test_dead_letters_wait_while_the_broker_is_down(
    bench: Bench, kafka_broker: KafkaBroker, topic: str, outage_seconds: float
) -> None:
    kafka_broker.make(topic)
    source, values = kafka_source(bench), [f"no json {number}".encode() for number in range(50)]
    keys = settings(topic, kafka_broker, errors_dlq_producer_message_timeout_ms=2_000)
    bench.start(guarded(bench, source), **keys, **SKIPPING)
    add_records(bench, *(KafkaRecord(value=each, offset=n) for n, each in enumerate(values[:10])))
    bench.wait_for_input()
    kafka_broker.kill()
    try:
        for begin in range(10, 50, 10):
            added = enumerate(values[begin : begin + 10], begin)
            add_records(bench, *(KafkaRecord(value=each, offset=n) for n, each in added))
            bench.wait_for_input()
            time.sleep(outage_seconds / 4)
        assert bench.ends == []
        failed = bench.outbox.of(DeadLettersFailed)
        assert {each.failure.exception_class for each in failed} == {
            "confluent_kafka.KafkaError._MSG_TIMED_OUT"
        }
        assert failed[0].waiting == 10
    finally:
        kafka_broker.start()
    # The next delivery includes what waits.
    bench.stop()
    bench.start(guarded(bench, source), **keys)
    bench.stop()
    messages = kafka_broker.messages(topic)
    by_id = {headers_of(each)["__arrester.record.id"]: each.value() for each in messages}
    assert sorted(map(str, by_id.values())) == sorted(map(str, values))
    reported = [each for event in bench.outbox.of(RecordsDeadLettered) for each in event.ids]
    assert sorted(reported) == sorted(map(str, by_id))


def test_errors_of_a_broker_have_the_kind_that_is_documented(
    kafka_broker: KafkaBroker, topic: str
) -> None:
    small, denied = f"{topic}-small", f"{topic}-denied"
    for each in (topic, small, denied):
        kafka_broker.make(each)
    kafka_broker.configure(small, "max.message.bytes", "1000")
    kafka_broker.deny_writes(denied)
    login = kafka_broker.secured_client

    def kind_of(exc: BaseException) -> tuple[str, Kind]:
        cause = describe(exc)
        # The driver reads the same from the traceback of an executor.
        [last] = traceback.format_exception_only(exc)
        trace = "Traceback (most recent call last):\n" + '  File "a.py", line 1, in send\n' + last
        traced = exception_traced_in(trace)
        assert traced is not None and traced.cause.names[0] == cause.names[0]
        return cause.names[0].rpartition(".")[2], Policy().table.classify(cause).kind

    def sent(to: str, value: bytes = b"x", producer: Any = None, **more: Any) -> tuple[str, Kind]:
        errors: list[Any] = []
        producer = producer or Producer(login)
        try:
            producer.produce(to, value, on_delivery=lambda error, _: errors.append(error), **more)
        except KafkaException as exc:
            return kind_of(exc)
        producer.flush()
        [error] = errors
        return kind_of(KafkaException(error))

    assert sent(small, b"x" * 5_000) == ("MSG_SIZE_TOO_LARGE", Kind.OTHER)
    assert sent(small, b"x" * 5_000_000) == ("MSG_SIZE_TOO_LARGE", Kind.OTHER)
    assert sent(topic, partition=7) == ("_UNKNOWN_PARTITION", Kind.OTHER)
    assert sent(denied) == ("TOPIC_AUTHORIZATION_FAILED", Kind.FATAL)
    assert sent("no topic") == ("TOPIC_EXCEPTION", Kind.FATAL)
    # The client waits for a missing topic, and afterwards refuses it at once.
    waiting = Producer({**login, "topic.metadata.propagation.max.ms": 1_000})
    missing = f"{topic}-missing"
    assert sent(missing, producer=waiting) == ("UNKNOWN_TOPIC_OR_PART", Kind.RETRIABLE)
    assert sent(missing, producer=waiting) == ("_UNKNOWN_TOPIC", Kind.RETRIABLE)
    away = Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 500, "log_level": 0})
    assert sent(topic, producer=away) == ("_MSG_TIMED_OUT", Kind.RETRIABLE)

    transactional = {**login, "transactional.id": topic, "error_cb": lambda error: None}
    fenced, newer = Producer(transactional), Producer(transactional)
    fenced.init_transactions(30)
    fenced.begin_transaction()
    newer.init_transactions(30)
    fenced.produce(topic, b"x")
    with pytest.raises(KafkaException) as raised:
        fenced.commit_transaction(30)
    assert kind_of(raised.value) == ("_FENCED", Kind.SELF_HEALING)
