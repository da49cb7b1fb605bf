"""Read Kafka topics of any cluster in full."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

_SECONDS = 10.0


def messages_of(servers: str, topic: str) -> list[Message]:
    """Return all messages of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "tests"})
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        found: list[Message] = []
        for each in partitions:
            where = TopicPartition(topic, each, 0)
            _, end = consumer.get_watermark_offsets(where, timeout=_SECONDS)
            consumer.assign([where])
            for _ in range(end):
                message = consumer.poll(_SECONDS)
                assert message is not None and message.error() is None
                found.append(message)
        return found
    finally:
        consumer.close()
