"""Read dead letters from a Kafka topic, by executors or from messages that Spark has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from arrester.agents.dead_letters.message_source import HEADERS
from arrester.agents.dead_letters.read_back import (
    TYPES,
    DeadLetterRequest,
    DeadLettersUnreadable,
    StoredDeadLetters,
    UnreadableFile,
)
from arrester.agents.spark.frames.local_checkpoint import Checkpoints
from arrester.agents.spark.ship_worker_code import ship, shipped
from arrester.domain.errors import InvalidValue

#: The columns of Spark's Kafka source that are used, with their types.
_MESSAGE: Final = {"key": "binary", "value": "binary", "headers": HEADERS}
#: At most this many unreadable messages are named.
_NAMED: Final = 10


def dead_letters_from_kafka(messages: DataFrame) -> DataFrame:
    """Return the dead letters in messages that Spark's Kafka source has read with headers.

    `agent.redrive` takes the result. Messages that cannot be redriven have a `problem`.

    Args:
        messages: A DataFrame of Spark's Kafka source with the option `includeHeaders`.

    Raises:
        InvalidValue: Key, value or headers are missing, or have other types.
    """
    kinds = {field.name: field.dataType.simpleString() for field in messages.schema.fields}
    wrong = [name for name, kind in _MESSAGE.items() if kinds.get(name) != kind]
    if wrong:
        found = ", ".join(f"{name} {kinds.get(name, 'missing')}" for name in wrong)
        allowed = "a DataFrame of Spark's Kafka source with the option includeHeaders=true"
        raise InvalidValue("messages", found, allowed)
    ship(messages.sparkSession.sparkContext)
    worker = shipped("kafka_reader")
    converter = worker.MessageConverter(dead_letter_of=_parser())
    converted = messages.select(*_MESSAGE).mapInArrow(converter, worker.RESULT)
    return converted.select(*TYPES, "problem")


def read_topic(
    request: DeadLetterRequest,
    topic: str,
    *,
    spark: SparkSession,
    configuration: Mapping[str, Any],
    tasks: int,
    checkpoints: Checkpoints,
) -> StoredDeadLetters:
    """Return the requested dead letters in a topic, which is read from its first message.

    Some of the messages that cannot be redriven are named. Raises DeadLettersUnreadable.
    """
    ship(spark.sparkContext)
    worker = shipped("kafka_reader")
    reader = worker.DeadLetterReader(
        topic=topic,
        configuration=dict(configuration),
        ids=frozenset(request.ids),
        tasks=tasks,
        dead_letter_of=_parser(),
    )
    numbers = spark.range(0, tasks, 1, tasks)
    found = checkpoints.add(numbers.mapInArrow(reader, worker.RESULT))
    failed = found.where("id IS NULL").select("problem").first()
    if failed is not None:
        raise DeadLettersUnreadable(
            f"errors.dlq.topic.name={topic!r}: its dead letters cannot be read: {failed['problem']}"
        )
    wrong = found.where("problem IS NOT NULL").select("place", "problem").limit(_NAMED).collect()
    return StoredDeadLetters(
        rows=found.where("problem IS NULL").select(*TYPES),
        unreadable=tuple(
            UnreadableFile(file=row["place"], problem=f"the message {row['problem']}")
            for row in wrong
        ),
    )


def _parser() -> Any:
    return shipped("dead_letter_messages").dead_letter_of
