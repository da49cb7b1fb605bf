"""Create the Kafka topic of dead letters, and check that executors have the client.

`confluent-kafka` is imported only in the functions that need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from .errors import text

_REQUEST_SECONDS = 30.0


def has_client(_: int) -> bool:
    """Whether `confluent-kafka` is installed here; Spark calls it for each element of an RDD."""
    return find_spec("confluent_kafka") is not None


@dataclass(frozen=True, kw_only=True)
class TopicCreator:
    """Create a topic if it is missing."""

    configuration: Mapping[str, Any]
    name: str
    partitions: int
    replication_factor: int

    def __call__(self, _: int) -> tuple[bool, str | None]:
        """Return whether the topic was missing, and the error."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return self.create(AdminClient(dict(self.configuration))), None
        except KafkaException as exc:
            return False, text(exc)

    def create(self, admin: Any) -> bool:
        """Return whether the topic was missing; raises the broker's error."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        # All topics are listed. A request for one of them creates it, if a broker creates topics
        # automatically.
        if self.name in admin.list_topics(timeout=_REQUEST_SECONDS).topics:
            return False
        topic = NewTopic(self.name, self.partitions, self.replication_factor)
        futures = admin.create_topics([topic], request_timeout=_REQUEST_SECONDS)
        try:
            futures[self.name].result()
        except KafkaException as exc:
            # Another run may have created it meanwhile.
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return True
