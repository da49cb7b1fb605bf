"""Records of dead letters from Kafka topics: only configured ones; else a reason."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from django.conf import LazySettings
from msgspec.structs import replace
from redis import Redis

from arrester.controlplane import dead_letter_records, queries, tasks
from arrester.controlplane.dead_letter_records import requests, topics
from arrester.controlplane.dead_letter_records.files import RecordUnavailable
from arrester.controlplane.ingest import fold_stream
from arrester.domain.events import RecordsDeadLettered
from tests import histories
from tests.agents.kafka_cluster import KafkaCluster, kafka
from tests.controlplane import streams
from tests.histories import APPLICATION, dead_lettered

TOPIC = "flights-dead-letters"
ID = "0a" * 16
#: The numbers of Kafka's requests.
FETCH, METADATA = 1, 3
HEADERS = {
    "record.id": ID,
    "application": APPLICATION,
    "checkpoint": "0190",
    "at": "2026-11-26T23:59:59.123456+00:00",
    "source": '"value"',
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with kafka() as made:
        made.make(TOPIC, 2)
        made.make("empty", 1)
        producer = Producer({"bootstrap.servers": made.servers})
        for number in range(20):
            send(producer, number % 2, b"{}", **{"record.id": f"{number:032x}"})
        send(producer, 1, b'{"n": 0}', application="orders")
        send(producer, 1, b'{"flight": "B6 1", "password": "x"}')
        send(producer, 0, b"?", **{"record.id": "0b" * 16, "at": None})
        assert producer.flush(30) == 0
        yield made


def send(producer: Producer, partition: int, value: bytes, **changed: str | None) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        (f"__arrester.{name}", text) for name, text in (HEADERS | changed).items() if text
    ]
    producer.produce(TOPIC, value, partition=partition, headers=headers)


def read(cluster: KafkaCluster, place: str = f"topic {TOPIC}", id: str = ID) -> str:
    permitted = {key: {"bootstrap.servers": cluster.servers} for key in (TOPIC, "empty")}
    return topics.read_row(place, application=APPLICATION, id=id, topics=permitted)


def test_a_record_is_found_by_application_and_id(cluster: KafkaCluster) -> None:
    assert json.loads(read(cluster))["flight"] == "B6 1"


@pytest.mark.parametrize(
    ("place", "id", "reason"),
    [
        ("topic other", ID, "Topic other is not in ARRESTER_DEAD_LETTERS_KAFKA"),
        ("/data/dlq", ID, "Topic /data/dlq is not in ARRESTER_DEAD_LETTERS_KAFKA"),
        ("topic empty", ID, "Topic empty has no dead letter of flights with this id. Its message"),
        (f"topic {TOPIC}", "0c" * 16, "Its message may have expired"),
        (f"topic {TOPIC}", "0b" * 16, f"The message in topic {TOPIC} has no header __arrester.at"),
    ],
)
def test_a_record_that_may_not_or_cannot_be_read_has_a_reason(
    cluster: KafkaCluster, place: str, id: str, reason: str
) -> None:
    with pytest.raises(RecordUnavailable) as raised:
        read(cluster, place, id)
    assert reason in str(raised.value)


def test_a_broker_that_refuses_has_a_reason(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.refuse(*[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 9, request=FETCH)
    with pytest.raises(RecordUnavailable, match=r"TOPIC_AUTHORIZATION_FAILED.*account may read"):
        read(cluster)
    cluster.heal(FETCH)
    monkeypatch.setattr(topics, "_REQUEST_SECONDS", 0.5)
    for properties, reason in (
        ({"bootstrap.servers": "127.0.0.1:1"}, "cannot be read .*_TRANSPORT"),
        ({"bootstrap.server": "a:1"}, "has an invalid property for topic .*bootstrap.server"),
    ):
        with pytest.raises(RecordUnavailable, match=reason):
            topics.read_row(
                f"topic {TOPIC}", application=APPLICATION, id=ID, topics={TOPIC: properties}
            )


def test_a_worker_reads_the_record_from_the_topic(
    fresh_database: object, redis: Redis, cluster: KafkaCluster, settings: LazySettings
) -> None:
    event = dead_lettered([3])
    assert isinstance(event.data, RecordsDeadLettered)
    data = replace(event.data, place=f"topic {TOPIC}", format="kafka")
    streams.send(redis, [*histories.started(), replace(event, data=data)])
    fold_stream.fold_stream(APPLICATION)
    [found] = queries.dead_letters(queries.DeadLetterFilter()).rows
    refused = dead_letter_records.request(found)
    assert (refused.state, refused.reason) == (requests.State.FAILED, topics.NO_TOPICS)

    producer = Producer({"bootstrap.servers": cluster.servers})
    send(producer, 0, b'{"flight": "B6 1", "password": "x"}', **{"record.id": found.id})
    assert producer.flush(30) == 0
    permitted: dict[str, Any] = {TOPIC: {"bootstrap.servers": cluster.servers}}
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, dead_letter_topics=permitted)
    assert dead_letter_records.request(found).state is requests.State.PENDING
    tasks.read_dead_letter(APPLICATION, found.id)
    body = dead_letter_records.request(found).body
    assert body is not None
    assert (body.record, body.redacted) == ({"flight": "B6 1"}, ("password",))
