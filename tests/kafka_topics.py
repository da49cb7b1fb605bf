"""Read Kafka topics of any cluster in full."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_SECONDS = 30.0


def messages_of(servers: str, topic: str) -> list[Message]:
    """Return all messages of a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: list[Message] = []
        # Offsets may be missing: of deleted records, and of the ends of transactions.
        while partitions:
            message = consumer.poll(_SECONDS)
            assert message is not None
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                partitions.discard(message.partition())
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))
    finally:
        consumer.close()
