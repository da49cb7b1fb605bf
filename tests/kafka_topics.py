"""Read Kafka topics of any cluster in full."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

_SECONDS = 30.0


def messages_of(servers: str, topic: str) -> list[Message]:
    """Return all messages of a topic, partition by partition."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        places = [TopicPartition(topic, each, 0) for each in sorted(partitions)]
        ends = [consumer.get_watermark_offsets(each, timeout=_SECONDS)[1] for each in places]
        consumer.assign(places)
        found = consumer.consume(sum(ends), timeout=_SECONDS) if any(ends) else []
        assert len(found) == sum(ends)
        assert [message.error() for message in found] == [None] * len(found)
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))
    finally:
        consumer.close()
