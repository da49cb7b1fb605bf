"""Dead letters of a Spark task in a Kafka topic: headers, bytes, refusals, retries."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from arrester.agents.worker.errors import Rules
from arrester.agents.worker.kafka_dead_letters import DeadLetterSender
from arrester.agents.worker.redactor import RedactRow
from arrester.domain.error_policy import exception_identity
from arrester.domain.error_policy.classify import DEFAULT_TABLE
from arrester.domain.error_policy.retry import RetryPolicy
from tests.agents.kafka_cluster import (
    NOT_ENOUGH_REPLICAS,
    TOO_LARGE,
    KafkaCluster,
    headers_of,
    kafka,
)
from tests.kafka_broker import KafkaBroker

TOPIC = "letters"
TOPIC_AUTHORIZATION = 29
RULES = Rules(
    wait_after=RetryPolicy().wait_after,
    describe=exception_identity.describe,
    known_as=exception_identity.known_as,
    kinds={name: ruling.kind.value for name, ruling in DEFAULT_TABLE.classifications.items()},
    retries=False,
)
DEAD_LETTER: dict[str, Any] = {
    "id": "0123",
    "checkpoint": "0190",
    "at": datetime(2026, 11, 26, 12, 30, 0, 123_456, UTC),
    "application": "flights",
    "pipeline": "delays",
    "task": "0",
    "position": 10,
    "stage": "process:validate",
    "exception_class": "ValueError",
    "condition": None,
    "message": "Test Exception",
    "stack": "Traceback (most recent call last):\n  in validate",
    "row": b'{"value": "NA"}',
    "reason": None,
    "configs": None,
    "key": b"\xff\x00",
    "value": b"NA\xfe",
    "has_value": True,
    "headers": [],
    "timestamp": 1_700_000_000_123,
    "topic": "source-topic",
    "partition": "7",
    "offset": "10",
    "executing_class": "flights.validate",
    "source": None,
}


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[KafkaCluster]:
    with kafka() as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: KafkaCluster) -> KafkaCluster:
    module_cluster._call("rd_kafka_mock_topic_delete", TOPIC.encode())
    module_cluster.make(TOPIC, 1)
    module_cluster.heal()
    return module_cluster


def sender(cluster: KafkaCluster, *, retries: int = 0, **more: Any) -> DeadLetterSender:
    configuration = {"bootstrap.servers": cluster.servers, "message.timeout.ms": 2_000}
    # The retries of the client itself are not under test.
    configuration["retries"] = 0
    wait_after = RetryPolicy(limit=retries, delay_max_ms=1).wait_after
    rules = replace(RULES, wait_after=wait_after, retries=retries > 0)
    given = {"context_headers": True, "include_messages": False, **more}
    return DeadLetterSender(topic=TOPIC, configuration=configuration, rules=rules, **given)


def send(sender: DeadLetterSender, *dead_letters: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{**DEAD_LETTER, **changed} for changed in dead_letters]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {"headers": pa.list_(header), "timestamp": pa.int64(), "position": pa.int64()}
    kinds |= {"row": pa.binary(), "key": pa.binary(), "value": pa.binary()}
    kinds |= {"has_value": pa.bool_(), "at": pa.timestamp("us", "UTC")}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in DEAD_LETTER])
    reported = list(sender([pa.RecordBatch.from_pylist(rows, schema=schema)]))
    return [row for batch in reported for row in batch.to_pylist()]


def test_key_value_timestamp_and_headers_are_kept_and_added_headers_follow(
    cluster: KafkaCluster,
) -> None:
    original = [("__connect.errors.topic", b"dummy"), ("trace", b"\xff"), ("empty", None)]
    headers = [{"key": name, "value": value} for name, value in original]
    assert send(sender(cluster), {"headers": headers}) == []

    [message] = cluster.messages(TOPIC)
    assert (message.key(), message.value()) == (DEAD_LETTER["key"], DEAD_LETTER["value"])
    assert message.timestamp()[1] == DEAD_LETTER["timestamp"]
    sent: Any = message.headers()
    assert sent[:3] == original
    assert [name for name, _ in sent[3:13]] == [
        f"__connect.errors.{name}"
        for name in (
            *("topic", "partition", "offset", "connector.name", "task.id", "stage"),
            *("class.name", "exception.class.name", "exception.message", "exception.stacktrace"),
        )
    ]
    assert dict(sent)["__connect.errors.topic"] == b"source-topic"
    assert dict(sent)["__arrester.record.id"] == b"0123"


def test_a_timestamp_of_zero_is_not_sent_as_now(cluster: KafkaCluster) -> None:
    send(sender(cluster), *({"timestamp": given} for given in (0, -1, 1)))
    assert [message.timestamp()[1] for message in cluster.messages(TOPIC)] == [1, -1, 1]


def test_a_record_without_bytes_is_converted_to_json_by_default(
    cluster: KafkaCluster,
) -> None:
    without = {"value": None, "has_value": False, "timestamp": None, "key": None}
    send(sender(cluster, include_messages=True), without)
    send(sender(cluster, converter=lambda row: f"<{row['value']}>"), without)
    send(sender(cluster), {"value": None})  # a tombstone has a value: none

    converted, xml, tombstone = cluster.messages(TOPIC)
    assert json.loads(converted.value() or b"") == {"value": "NA"}
    assert headers_of(converted)["__arrester.row"] == '{"value": "NA"}'
    assert xml.value() == b"<NA>"
    assert tombstone.value() is None


def test_a_dead_letter_has_its_id_without_context_headers(cluster: KafkaCluster) -> None:
    send(sender(cluster, context_headers=False), {})
    [message] = cluster.messages(TOPIC)
    assert headers_of(message) == {"__arrester.record.id": "0123"}


def test_refused_dead_letters_are_reported_by_task_and_the_others_are_sent(
    cluster: KafkaCluster,
) -> None:
    cluster.refuse(TOO_LARGE)
    [reported] = send(sender(cluster, retries=2), {})
    assert (reported["task"], reported["failures"], reported["waiting"]) == ("0", 1, 1)
    assert reported["ids"] == ["0123"]
    assert reported["names"][0] == "confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE"

    assert send(sender(cluster), {}) == []
    assert len(cluster.messages(TOPIC)) == 1


def test_a_dead_letter_that_is_too_large_is_sent_with_shortened_headers(
    cluster: KafkaCluster,
) -> None:
    large = {"stack": "ValueError: x\n" + "é" * 5_000, "id": "large"}
    cluster.refuse(TOO_LARGE)
    [reported] = send(sender(cluster), large)
    assert (reported["failures"], reported["waiting"], reported["ids"]) == (1, 0, [])
    # The client itself refuses a message that is too large.
    small = sender(cluster)
    small.configuration["message.max.bytes"] = 8_000  # type: ignore[index]
    [reported] = send(small, large, {"id": "hopeless", "value": b"x" * 9_000}, {})
    assert (reported["failures"], reported["waiting"], reported["ids"]) == (2, 1, ["hopeless"])

    *cut, whole = sorted(cluster.messages(TOPIC), key=lambda sent: len(headers_of(sent)))[::-1]
    assert len(cut) == 2
    for message in cut:
        headers = headers_of(message)
        assert (headers["__arrester.cut"], message.value()) == ("true", DEAD_LETTER["value"])
        for name in ("__connect.errors.exception.stacktrace", "__streams.errors.stacktrace"):
            assert str(headers[name]).startswith("ValueError: x\né")
            assert str(headers[name]).endswith("é…[cut]")
            assert len(str(headers[name]).encode()) < 1_100
        assert headers["__arrester.record.id"] == "large"
    assert "__arrester.cut" not in headers_of(whole)


def test_a_retriable_failure_is_reported_before_a_permanent_one(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        return {"NA": b"fine"}[row["value"]]

    poison = {"row": b'{"value": "x"}', "id": "poison"}
    cluster.refuse(*[NOT_ENOUGH_REPLICAS] * 2)
    [reported] = send(sender(cluster, converter=convert), {"id": "later"}, poison)
    assert (reported["kind"], sorted(reported["ids"])) == ("RETRIABLE", ["later", "poison"])

    cluster.heal()
    cluster.refuse(NOT_ENOUGH_REPLICAS)
    [reported] = send(sender(cluster, converter=convert, retries=1), {"id": "later"}, poison)
    assert (reported["kind"], reported["ids"]) == (None, ["poison"])


def test_a_retriable_refusal_is_retried_within_the_limit(cluster: KafkaCluster) -> None:
    patient = sender(cluster, retries=2)
    cluster.refuse(NOT_ENOUGH_REPLICAS)
    [retried] = send(patient, {})
    assert (retried["failures"], retried["waiting"], retried["attempts"]) == (1, 0, 1)
    assert len(cluster.messages(TOPIC)) == 1

    cluster.refuse(*[NOT_ENOUGH_REPLICAS] * 3)
    [exhausted] = send(patient, {})
    assert (exhausted["failures"], exhausted["waiting"], exhausted["attempts"]) == (3, 1, 3)
    assert len(cluster.messages(TOPIC)) == 1


def test_an_exception_of_the_converter_refuses_its_dead_letter_only(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        return {"NA": b"fine"}[row["value"]]

    reported = send(sender(cluster, converter=convert), {}, {"row": b'{"value": "x"}', "task": "1"})
    assert [(row["task"], row["exception_class"]) for row in reported] == [
        ("1", "builtins.KeyError")
    ]
    assert [message.value() for message in cluster.messages(TOPIC)] == [b"fine"]


def test_the_message_of_a_failed_converter_is_redacted(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        raise ValueError(f"no user {row['password']} at {row['place']}")

    hiding = RedactRow(rules=("password",), only=None, fields=("password", "place"), key=None)
    row = b'{"password": "hunter22", "place": "Berlin"}'
    [reported] = send(sender(cluster, converter=convert, redacting=hiding), {"row": row})
    assert "hunter22" not in reported["message"]
    assert reported["message"].endswith("at Berlin")


def test_a_broker_refuses_single_dead_letters_of_a_batch(kafka_broker: KafkaBroker) -> None:
    now_ms, day_ms = int(time.time() * 1_000), 86_400_000
    ahead = {"timestamp": now_ms + 3 * day_ms, "id": "ahead", "task": "1"}
    cases: list[tuple[str, dict[str, str], list[dict[str, Any]], str, str]] = [
        ("dated", {}, [ahead], "INVALID_TIMESTAMP", "message.timestamp.after.max.ms"),
        ("two", {}, [ahead] * 2, "INVALID_TIMESTAMP", "message.timestamp.after.max.ms"),
        (
            *("keyed", {"cleanup.policy": "compact"}, [{"key": None, "id": "none", "task": "1"}]),
            *("INVALID_RECORD", "cleanup.policy=compact"),
        ),
    ]
    for name, settings, bad, code, named in cases:
        topic = f"{name}-{uuid4().hex[:8]}"
        kafka_broker.make(topic)
        for setting, value in settings.items():
            kafka_broker.configure(topic, setting, value)
        to_broker = DeadLetterSender(
            topic=topic,
            configuration=kafka_broker.secured_client,
            rules=RULES,
            context_headers=True,
            include_messages=False,
        )
        good = [{"timestamp": now_ms, "value": value} for value in (b"a", b"b", b"c")]
        given = [good[0], *({"timestamp": now_ms, **each} for each in bad), *good[1:]]
        [reported] = send(to_broker, *given)
        assert (reported["task"], reported["waiting"]) == ("1", len(bad))
        assert set(reported["ids"]) == {bad[0]["id"]}
        assert reported["names"][0] == f"confluent_kafka.KafkaError.{code}"
        assert named in reported["message"]
        sent = sorted(message.value() or b"" for message in kafka_broker.messages(topic))
        assert sent == [b"a", b"b", b"c"]


def test_each_refusal_of_a_batch_that_has_no_kind_is_repeated_in_halves(
    cluster: KafkaCluster,
) -> None:
    policy_violation, invalid_record, corrupt = 44, 87, 2
    for error in (TOO_LARGE, policy_violation, invalid_record, corrupt):
        cluster.refuse(error)
        assert send(sender(cluster), *({"id": str(n)} for n in range(4))) == []
    assert len(cluster.messages(TOPIC)) == 4 * 4
    # A fatal one is not.
    cluster.refuse(TOPIC_AUTHORIZATION)
    [reported] = send(sender(cluster), {}, {})
    assert (reported["kind"], reported["waiting"]) == ("FATAL", 2)


def test_dead_letters_wait_while_brokers_are_unreachable(cluster: KafkaCluster) -> None:
    cluster.down()
    try:
        [reported] = send(sender(cluster), {}, {})
    finally:
        cluster.up()
    assert (reported["failures"], reported["waiting"]) == (2, 2)
