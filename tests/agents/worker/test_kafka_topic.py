"""The creation of the Kafka topic of dead letters."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from arrester.agents.worker.kafka_topic import TopicCreator
from tests.agents.kafka_cluster import RecordedAdmin

TOPIC = "letters"


def creator() -> TopicCreator:
    return TopicCreator(configuration={}, name=TOPIC, partitions=5, replication_factor=3)


def test_a_missing_topic_is_created_with_its_partitions_and_replicas() -> None:
    admin = RecordedAdmin(["others"])
    assert creator().create(admin)
    assert admin.requests == [(TOPIC, 5, 3)]


def test_an_existing_topic_is_not_changed() -> None:
    admin = RecordedAdmin([TOPIC])
    assert not creator().create(admin)
    assert admin.requests == []


def test_a_topic_that_another_run_has_just_created_is_no_failure() -> None:
    exists = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    assert creator().create(RecordedAdmin([], exists))
    refused = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))
    with pytest.raises(KafkaException):
        creator().create(RecordedAdmin([], refused))
