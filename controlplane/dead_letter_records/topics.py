"""Find the record of a dead letter in a Kafka topic, which an event names.

Anyone who can send events names such topics, so only those of the configuration are read, and a
message must have the application and the id.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from arrester.controlplane.dead_letter_records.files import RecordUnavailable
from arrester.domain.wire.dead_letter_messages import Message, dead_letter_of

FORMAT: Final = "kafka"
_PLACE: Final = "topic "
_SETTING: Final = "ARRESTER_DEAD_LETTERS_KAFKA"
#: The messages have the times of their records, so a topic is read from its first message.
_SECONDS: Final = 20.0
_REQUEST_SECONDS: Final = 10.0
_MESSAGES: Final = 500
_CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "log_level": 0,
}
NO_TOPICS: Final = (
    f"The complete record is in the topic under its id. Set {_SETTING} on the server to the topics"
    " of dead letters that it may read."
)


def read_row(
    place: str, *, application: str, id: str, topics: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the source row of a dead letter as JSON text; raise RecordUnavailable.

    Args:
        topics: The topics that may be read, with the properties of their consumers.
    """
    if not topics:
        raise RecordUnavailable(NO_TOPICS)
    topic = place.removeprefix(_PLACE)
    if topic not in topics:
        raise RecordUnavailable(
            f"Topic {topic} is not in {_SETTING}. Add it there, or read the message with the header"
            " __arrester.record.id."
        )
    found = _read(topic, topics[topic], application, id)
    if found is None:
        raise RecordUnavailable(
            f"Topic {topic} has no dead letter of {application} with this id. Its message may have"
            " expired."
        )
    if found.row is None:
        raise RecordUnavailable(f"The message in topic {topic} {found.problem}.")
    return found.row


def _read(topic: str, properties: Mapping[str, Any], application: str, id: str) -> Message | None:
    """Return the message of a dead letter; None if the topic has none."""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError:
        raise RecordUnavailable(
            "The server has no confluent-kafka: install arrester[kafka] where the worker runs."
        ) from None
    errors: list[Any] = []
    settings = {"group.id": "arrester", **properties, **_CONSUMER, "error_cb": errors.append}
    try:
        consumer = Consumer(settings)
    except KafkaException as exc:
        raise RecordUnavailable(
            f"{_SETTING} has an invalid property for topic {topic}: {exc.args[0].str()}"
        ) from exc
    try:
        return _found(_messages(consumer, topic), application, id)
    except KafkaException as exc:
        shown = [exc.args[0], *errors[-1:]]
        reason = "; ".join(f"{each.name()}: {each.str()}" for each in shown)
        raise RecordUnavailable(
            f"Topic {topic} cannot be read ({reason}). Check {_SETTING}, and whether its account"
            " may read the topic."
        ) from exc
    finally:
        consumer.close()


def _found(messages: Iterator[Any], application: str, id: str) -> Message | None:
    for message in messages:
        headers = message.headers() or ()
        # Most messages are others.
        if any(value == id.encode() for _, value in headers):
            dead_letter = dead_letter_of(message.key(), message.value(), headers)
            if (dead_letter.id, dead_letter.application) == (id, application):
                return dead_letter
    return None


def _messages(consumer: Any, topic: str) -> Iterator[Any]:
    """Yield the messages of a topic until its present end; raise RecordUnavailable."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    metadata = consumer.list_topics(topic, timeout=_REQUEST_SECONDS).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    ends = {}
    for partition in metadata.partitions:
        place = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=_REQUEST_SECONDS)
        if low < high:
            ends[partition] = (low, high)
    consumer.assign([TopicPartition(topic, each, low) for each, (low, _) in ends.items()])
    deadline = time.monotonic() + _SECONDS
    while ends:
        if time.monotonic() > deadline:
            raise RecordUnavailable(
                f"Topic {topic} was not read to its end in {_SECONDS:.0f} s. Reload the page later,"
                " or read the message with the header __arrester.record.id."
            )
        for message in consumer.consume(_MESSAGES, timeout=1.0):
            error, partition = message.error(), message.partition()
            if error is None:
                yield message
                if message.offset() >= ends.get(partition, (0, 0))[1] - 1:
                    ends.pop(partition, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.pop(partition, None)
            elif message.topic() is not None and not error.retriable():
                # Others are of the client: it connects again, and belongs to no group.
                raise KafkaException(error)
