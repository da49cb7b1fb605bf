"""Kafka without a broker: librdkafka's mock cluster, whose brokers speak the wire protocol.

Other processes reach it over TCP. Its C interface injects faults; it has no topic creation by
request, no access control and no transactions that matter here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from tests.kafka_topics import messages_of

PRODUCE = 0


class KafkaCluster:
    """One broker; topics of four partitions are created on first use."""

    def __init__(self) -> None:
        libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
        [library] = libraries.glob("librdkafka*")
        self._c = ctypes.CDLL(str(library))
        for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._c, name).restype = ctypes.c_void_p
        self._c.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        why = ctypes.create_string_buffer(512)
        self._handle = ctypes.c_void_p(self._c.rd_kafka_new(0, None, why, len(why)))
        self._cluster = ctypes.c_void_p(self._c.rd_kafka_mock_cluster_new(self._handle, 1))
        servers = self._c.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.servers: str = servers.decode()

    def make(self, topic: str, partitions: int = 4) -> None:
        self._call("rd_kafka_mock_topic_create", topic.encode(), partitions, 1)

    def refuse(self, *errors: int, request: int = PRODUCE) -> None:
        """Answer the next requests of this kind with these errors, one each."""
        array = (ctypes.c_int * len(errors))(*errors)
        count = ctypes.c_size_t(len(errors))
        self._call("rd_kafka_mock_push_request_errors_array", request, count, array)

    def heal(self, request: int = PRODUCE) -> None:
        """Drop the errors that are not used yet."""
        self._call("rd_kafka_mock_clear_request_errors", request)

    def down(self) -> None:
        self._call("rd_kafka_mock_broker_set_down", 1)

    def up(self) -> None:
        self._call("rd_kafka_mock_broker_set_up", 1)

    def _call(self, name: str, *given: Any) -> None:
        getattr(self._c, name)(self._cluster, *given)

    def messages(self, topic: str) -> list[Message]:
        """Return all messages of a topic, partition by partition."""
        return messages_of(self.servers, topic)

    def close(self) -> None:
        self._c.rd_kafka_mock_cluster_destroy(self._cluster)
        self._c.rd_kafka_destroy(self._handle)


@contextmanager
def kafka() -> Iterator[KafkaCluster]:
    """Run a cluster until the block ends."""
    cluster = KafkaCluster()
    try:
        yield cluster
    finally:
        cluster.close()


def headers_of(message: Message) -> dict[str, str | None]:
    """Return the headers as texts; of several with one name the last one, as a reader does."""
    given: list[Any] = list(message.headers() or [])
    return {name: None if value is None else _text(value) for name, value in given}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


class RecordedAdmin:
    """Kafka's admin client, which the mock cluster does not answer; records requests."""

    def __init__(self, topics: list[str], error: KafkaException | None = None) -> None:
        self.topics = dict.fromkeys(topics)
        self.error = error
        self.requests: list[Any] = []

    def list_topics(self, *, timeout: float) -> RecordedAdmin:
        return self

    def create_topics(self, wanted: list[Any], *, request_timeout: float) -> dict[str, Any]:
        self.requests += [
            (each.topic, each.num_partitions, each.replication_factor) for each in wanted
        ]
        return {each.topic: self for each in wanted}

    def result(self) -> None:
        if self.error is not None:
            raise self.error


#: A broker's error without enough replicas; the client would retry without end.
NOT_ENOUGH_REPLICAS = KafkaError.NOT_ENOUGH_REPLICAS
#: What the client does not try again.
TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
