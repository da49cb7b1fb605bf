"""What a Spark task sends to a Kafka topic, over the wire: headers, bytes, refusals, retries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from arrester.agents.executor.kafka_dead_letters import DeadLetterSender, TopicMaker
from arrester.agents.executor.redact_frame import Redacting
from arrester.agents.executor.retries import Rules
from arrester.controlplane.domain.error_policy import exception_identity
from arrester.controlplane.domain.error_policy.classify import DEFAULT_TABLE
from arrester.controlplane.domain.error_policy.retry import RetryPolicy
from tests.agents.kafka_cluster import (
    NOT_ENOUGH_REPLICAS,
    TOO_LARGE,
    KafkaCluster,
    RecordedAdmin,
    headers_of,
    kafka,
)

TOPIC = "letters"
LETTER: dict[str, Any] = {
    "id": "0123",
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
    # The client's own retries are not what is looked at here.
    configuration["retries"] = 0
    rules = Rules(
        wait_after=RetryPolicy(limit=retries, delay_max_ms=1).wait_after,
        describe=exception_identity.describe,
        known_as=exception_identity.known_as,
        kinds={name: ruling.kind.value for name, ruling in DEFAULT_TABLE.rulings.items()},
        retries=retries > 0,
    )
    given = {"context_headers": True, "include_messages": False, **more}
    return DeadLetterSender(topic=TOPIC, configuration=configuration, rules=rules, **given)


def send(made: DeadLetterSender, *letters: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{**LETTER, **each} for each in letters]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {"headers": pa.list_(header), "timestamp": pa.int64(), "position": pa.int64()}
    kinds |= {"row": pa.binary(), "key": pa.binary(), "value": pa.binary()}
    kinds |= {"has_value": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in LETTER])
    told = list(made([pa.RecordBatch.from_pylist(rows, schema=schema)]))
    return [row for batch in told for row in batch.to_pylist()]


def test_key_value_time_and_headers_are_untouched_and_ours_are_behind_them(
    cluster: KafkaCluster,
) -> None:
    theirs = [("__connect.errors.topic", b"dummy"), ("trace", b"\xff"), ("empty", None)]
    headers = [{"key": name, "value": value} for name, value in theirs]
    assert send(sender(cluster), {"headers": headers}) == []

    [message] = cluster.messages(TOPIC)
    assert (message.key(), message.value()) == (LETTER["key"], LETTER["value"])
    assert message.timestamp()[1] == LETTER["timestamp"]
    found: Any = message.headers()
    assert found[:3] == theirs
    assert [name for name, _ in found[3:13]] == [
        f"__connect.errors.{name}"
        for name in (
            *("topic", "partition", "offset", "connector.name", "task.id", "stage"),
            *("class.name", "exception.class.name", "exception.message", "exception.stacktrace"),
        )
    ]
    assert dict(found)["__connect.errors.topic"] == b"source-topic"
    assert dict(found)["__arrester.record.id"] == b"0123"


def test_a_time_of_zero_is_not_taken_for_now(cluster: KafkaCluster) -> None:
    send(sender(cluster), *({"timestamp": given} for given in (0, -1, 1)))
    assert [message.timestamp()[1] for message in cluster.messages(TOPIC)] == [1, -1, 1]


def test_bytes_that_a_record_has_not_are_made_by_the_converter_json_by_default(
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


def test_without_context_headers_a_letter_still_has_its_id(cluster: KafkaCluster) -> None:
    send(sender(cluster, context_headers=False), {})
    [message] = cluster.messages(TOPIC)
    assert headers_of(message) == {"__arrester.record.id": "0123"}


def test_what_the_broker_refuses_is_told_by_task_and_the_rest_is_sent(
    cluster: KafkaCluster,
) -> None:
    cluster.refuse(TOO_LARGE)
    [told] = send(sender(cluster, retries=2), {})
    assert (told["task"], told["failures"], told["waiting"]) == ("0", 1, 1)
    assert told["ids"] == ["0123"]
    assert told["names"][0] == "confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE"

    assert send(sender(cluster), {}) == []
    assert len(cluster.messages(TOPIC)) == 1


def test_a_letter_that_is_too_large_is_sent_with_its_headers_cut_which_it_says(
    cluster: KafkaCluster,
) -> None:
    large = {"stack": "ValueError: x\n" + "é" * 5_000, "id": "large"}
    cluster.refuse(TOO_LARGE)
    [told] = send(sender(cluster), large)
    assert (told["failures"], told["waiting"], told["ids"]) == (1, 0, [])
    # The client itself refuses a message that is too large.
    small = sender(cluster)
    small.configuration["message.max.bytes"] = 8_000  # type: ignore[index]
    [told] = send(small, large, {"id": "hopeless", "value": b"x" * 9_000}, {})
    assert (told["failures"], told["waiting"], told["ids"]) == (2, 1, ["hopeless"])

    *cut, whole = sorted(cluster.messages(TOPIC), key=lambda each: len(headers_of(each)))[::-1]
    assert len(cut) == 2
    for message in cut:
        headers = headers_of(message)
        assert (headers["__arrester.cut"], message.value()) == ("true", LETTER["value"])
        for name in ("__connect.errors.exception.stacktrace", "__streams.errors.stacktrace"):
            assert str(headers[name]).startswith("ValueError: x\né")
            assert str(headers[name]).endswith("é…[cut]")
            assert len(str(headers[name]).encode()) < 1_100
        assert headers["__arrester.record.id"] == "large"
    assert "__arrester.cut" not in headers_of(whole)


def test_what_may_pass_by_itself_is_told_before_what_never_will(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        return {"NA": b"fine"}[row["value"]]

    poison = {"row": b'{"value": "x"}', "id": "poison"}
    cluster.refuse(*[NOT_ENOUGH_REPLICAS] * 2)
    [told] = send(sender(cluster, converter=convert), {"id": "later"}, poison)
    assert (told["kind"], sorted(told["ids"])) == ("RETRIABLE", ["later", "poison"])

    cluster.heal()
    cluster.refuse(NOT_ENOUGH_REPLICAS)
    [told] = send(sender(cluster, converter=convert, retries=1), {"id": "later"}, poison)
    assert (told["kind"], told["ids"]) == (None, ["poison"])


def test_a_retriable_refusal_is_tried_again_within_the_budget(cluster: KafkaCluster) -> None:
    patient = sender(cluster, retries=2)
    cluster.refuse(NOT_ENOUGH_REPLICAS)
    [helped] = send(patient, {})
    assert (helped["failures"], helped["waiting"], helped["attempts"]) == (1, 0, 1)
    assert len(cluster.messages(TOPIC)) == 1

    cluster.refuse(*[NOT_ENOUGH_REPLICAS] * 3)
    [spent] = send(patient, {})
    assert (spent["failures"], spent["waiting"], spent["attempts"]) == (3, 1, 3)
    assert len(cluster.messages(TOPIC)) == 1


def test_a_converter_that_raises_refuses_its_letter_alone(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        return {"NA": b"fine"}[row["value"]]

    told = send(sender(cluster, converter=convert), {}, {"row": b'{"value": "x"}', "task": "1"})
    assert [(each["task"], each["exception_class"]) for each in told] == [
        ("1", "builtins.KeyError")
    ]
    assert [message.value() for message in cluster.messages(TOPIC)] == [b"fine"]


def test_what_a_converter_says_of_a_record_is_redacted(cluster: KafkaCluster) -> None:
    def convert(row: dict[str, Any]) -> bytes:
        raise ValueError(f"no user {row['password']} at {row['place']}")

    hiding = Redacting(rules=("password",), only=None, fields=("password", "place"), key=None)
    row = b'{"password": "hunter22", "place": "Berlin"}'
    [told] = send(sender(cluster, converter=convert, redacting=hiding), {"row": row})
    assert "hunter22" not in told["message"]
    assert told["message"].endswith("at Berlin")


def test_brokers_that_are_away_leave_the_letters_waiting(cluster: KafkaCluster) -> None:
    cluster.down()
    try:
        [told] = send(sender(cluster), {}, {})
    finally:
        cluster.up()
    assert (told["failures"], told["waiting"]) == (2, 2)


def maker() -> TopicMaker:
    return TopicMaker(configuration={}, name=TOPIC, partitions=5, replication_factor=3)


def test_a_missing_topic_is_asked_for_with_its_partitions_and_replicas() -> None:
    admin = RecordedAdmin(["others"])
    assert maker().make(admin)
    assert admin.requests == [(TOPIC, 5, 3)]


def test_a_topic_that_is_there_is_left_alone() -> None:
    admin = RecordedAdmin([TOPIC])
    assert not maker().make(admin)
    assert admin.requests == []


def test_only_a_topic_that_another_run_has_just_made_is_no_failure() -> None:
    there = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    assert maker().make(RecordedAdmin([], there))
    refused = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))
    with pytest.raises(KafkaException):
        maker().make(RecordedAdmin([], refused))
