"""Create the Kafka topic of dead letters, and check that executors have the client.

`confluent-kafka` is imported only in the functions that need it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

_REQUEST_SECONDS = 30.0
#: The time of one attempt of a request; after it, errors of connections are read.
_ATTEMPT_SECONDS = 2.0
#: Errors of a connection that waiting does not repair.
_REFUSED = ("_AUTHENTICATION", "_SSL")
#: An error without a reason.
_ALL_DOWN = "_ALL_BROKERS_DOWN"


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

        errors: list[Any] = []
        # At the default level, the client logs twenty failed connections per second.
        configuration = {"log_level": 0, **self.configuration, "error_cb": errors.append}
        try:
            return self.create(AdminClient(configuration), errors), None
        except KafkaException as exc:
            return False, error_text(exc.args[0], errors)

    def create(self, admin: Any, errors: Sequence[Any] = ()) -> bool:
        """Return whether the topic was missing; raises the broker's error.

        The client adds errors of its connections to `errors`.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        if self.name in topics_of(admin, errors):
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


def topics_of(admin: Any, errors: Sequence[Any]) -> Mapping[str, Any]:
    """Return all topics by a client: a request for one of them creates it, if brokers create topics
    automatically.

    Raises the client's error when no broker answers in time, or a connection was refused.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _REQUEST_SECONDS
    while True:
        try:
            topics: Mapping[str, Any] = admin.list_topics(timeout=_ATTEMPT_SECONDS).topics
            return topics
        except KafkaException:
            admin.poll(0)
            is_refused = any(error.name() in _REFUSED for error in errors)
            if is_refused or time.monotonic() > deadline:
                raise


def error_text(error: Any, errors: Sequence[Any]) -> str:
    """Return the error of a request as text; the last error of a connection explains it."""
    reasons = [each for each in errors if each.name() != _ALL_DOWN]
    refused = [each for each in reasons if each.name() in _REFUSED]
    shown = [error, *(refused or reasons)[-1:]]
    return "; ".join(f"{each.name()}: {each.str()}" for each in shown)
