"""Read dead letters from a Kafka topic on executors.

`confluent-kafka` is imported only in the functions that need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .kafka_topic import error_text, topics_of

#: The columns of the result. `place` is the message. A row without an id has the problem of all.
RESULT = (
    "id string, checkpoint string, task string, position bigint, stage string, row string,"
    " at timestamp, problem string, place string"
)
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "checkpoint", "task")),
        ("position", pa.int64()),
        *((name, pa.string()) for name in ("stage", "row")),
        ("at", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("problem", "place")),
    ]
)
_REQUEST_SECONDS = 30.0
#: A Spark task reads its partitions in this time.
_TOPIC_SECONDS = 600.0
#: Messages of one request, and of one Arrow batch.
_MESSAGES = 500
_CONSUMER: Mapping[str, Any] = {
    # Not used: the partitions are assigned, and no offset is committed.
    "group.id": "arrester-dead-letters",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # Retention may delete the first messages meanwhile.
    "auto.offset.reset": "earliest",
    # Settings of producers are ignored, with a line each in the log.
    "log_level": 0,
}

Row = dict[str, Any]


class TopicUnreadable(Exception):
    """The topic cannot be read to its end."""


@dataclass(frozen=True, kw_only=True)
class DeadLetterReader:
    """The function for `mapInArrow`: reads the partitions of each Spark task in full.

    The messages have the times of their records, so a time does not give an offset.
    """

    topic: str
    configuration: Mapping[str, Any]
    ids: frozenset[str]
    #: The number of Spark tasks.
    tasks: int
    #: The domain's function of key, value and headers.
    dead_letter_of: Callable[..., Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the dead letters; of a topic that cannot be read, one row with the reason."""
        from confluent_kafka import Consumer, KafkaException

        for batch in batches:
            for [number] in zip(*batch.to_pydict().values(), strict=True):
                errors: list[Any] = []
                settings = {**self.configuration, **_CONSUMER, "error_cb": errors.append}
                consumer = Consumer(settings)
                try:
                    for rows in self._read(consumer, number, errors):
                        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
                except KafkaException as exc:
                    yield _failed(error_text(exc.args[0], errors))
                except TopicUnreadable as exc:
                    last = "".join(f"; {each.name()}: {each.str()}" for each in errors[-1:])
                    yield _failed(f"{exc}{last}")
                finally:
                    consumer.close()

    def _read(self, consumer: Any, number: int, errors: Sequence[Any]) -> Iterator[list[Row]]:
        """Yield the requested dead letters of every `tasks`-th partition, until its present end."""
        from confluent_kafka import TopicPartition

        found = topics_of(consumer, errors).get(self.topic)
        if found is None:
            raise TopicUnreadable("the topic does not exist, or may not be read")
        ends, begins = {}, []
        for partition in sorted(found.partitions):
            if partition % self.tasks == number:
                place = TopicPartition(self.topic, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=_REQUEST_SECONDS)
                if low < high:
                    ends[partition] = high
                    begins.append(TopicPartition(self.topic, partition, low))
        consumer.assign(begins)
        started = answered = time.monotonic()
        while ends:
            messages = consumer.consume(_MESSAGES, timeout=1.0)
            now = time.monotonic()
            answered = now if messages else answered
            if now - answered > _REQUEST_SECONDS:
                raise TopicUnreadable(f"no message in {_REQUEST_SECONDS:.0f} s")
            if now - started > _TOPIC_SECONDS:
                raise TopicUnreadable(f"its end was not reached in {_TOPIC_SECONDS:.0f} s")
            rows = list(self._rows(messages, ends))
            if rows:
                yield rows

    def _rows(self, messages: Sequence[Any], ends: dict[int, int]) -> Iterator[Row]:
        from confluent_kafka import KafkaError, KafkaException

        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ends.pop(message.partition(), None)
                elif message.topic() is not None and not error.retriable():
                    # Others are of the client: it connects again, and belongs to no group.
                    raise KafkaException(error)
                continue
            partition, offset = message.partition(), message.offset()
            if offset >= ends.get(partition, offset) - 1:
                ends.pop(partition, None)
            dead_letter = self.dead_letter_of(
                message.key(), message.value(), message.headers() or ()
            )
            if dead_letter.id in self.ids:
                place = f"topic {self.topic}, partition {partition}, offset {offset}"
                yield row_of(dead_letter, place)


@dataclass(frozen=True, kw_only=True)
class MessageConverter:
    """The function for `mapInArrow`: converts messages that Spark has read."""

    dead_letter_of: Callable[..., Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a dead letter for each message."""
        for batch in batches:
            rows = [
                row_of(self.dead_letter_of(each["key"], each["value"], _pairs(each["headers"])))
                for each in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def row_of(dead_letter: Any, place: str | None = None) -> Row:
    """Return a dead letter as a row of the result."""
    return {name: getattr(dead_letter, name, place) for name in _SCHEMA.names}


def _pairs(headers: Sequence[Row] | None) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in headers or ()]


def _failed(reason: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"problem": reason}], schema=_SCHEMA)
