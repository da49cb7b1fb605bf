"""A Kafka topic as the destination of dead letters, through confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.config import load_object
from arrester.agents.dead_letters.destinations import (
    DeadLettersUnusable,
    Destination,
    RejectedDeadLetters,
)
from arrester.agents.dead_letters.read_back import DeadLetterRequest, StoredDeadLetters
from arrester.agents.dead_letters.read_topic import read_topic
from arrester.agents.dead_letters.rows import redacting
from arrester.agents.error_policy.settings import DeadLetterSettings
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.payload import Redaction
from arrester.agents.journal.entries import DeadLetters
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.frames.local_checkpoint import Checkpoints
from arrester.agents.spark.ship_worker_code import shipped, shipped_rules
from arrester.agents.spark.sources.kafka_source import kafka_sources, servers_of
from arrester.domain.error_policy.exception_identity import Cause
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import Policy

BOOTSTRAP = "bootstrap.servers"
#: Defaults of `errors.dlq.producer.*`. Kafka's own timeout of a message, five minutes, is too long
#: for a micro-batch.
_DEFAULTS: Mapping[str, object] = {"client.id": "arrester", "message.timeout.ms": 30_000}


@dataclass(frozen=True, kw_only=True)
class TopicDestination(Destination):
    """A Kafka topic: at least once; a header has the ID of each dead letter."""

    settings: DeadLetterSettings
    configuration: Mapping[str, Any]
    policy: Policy
    #: The fields that a failure must not show.
    redaction: Redaction = field(default_factory=Redaction)
    format: str = "kafka"
    raw: bool = True
    #: The number of Spark tasks, and so of producers, at a time.
    producers: int = 4

    @property
    def topic(self) -> str:
        """The setting errors.dlq.topic.name."""
        return str(self.settings.topic)

    def prepare(self) -> None:
        """Check that the executors have the client, and create a missing topic."""
        if BOOTSTRAP not in self.configuration:
            raise DeadLettersUnusable(
                f"errors.dlq.topic.name={self.topic!r}: errors.dlq.producer.{BOOTSTRAP} is not "
                "given, and the source names no Kafka servers"
            )
        worker, context = shipped("kafka_topic"), self.spark.sparkContext
        tasks = context.defaultParallelism
        if not all(context.parallelize(range(tasks), tasks).map(worker.has_client).collect()):
            raise DeadLettersUnusable(
                f"errors.dlq.topic.name={self.topic!r}: an executor has no confluent-kafka; "
                "install arrester[kafka] where the executors' Python is"
            )
        [(was_missing, error)] = context.parallelize([0], 1).map(self.topic_creator()).collect()
        if error is not None:
            raise DeadLettersUnusable(
                f"errors.dlq.topic.name={self.topic!r} cannot be looked for, or made: {error}"
            )
        if was_missing:
            log_failure(LogMessage.DEAD_LETTER_TOPIC_MISSING, f"topic {self.topic}")

    def topic_creator(self) -> Callable[[int], tuple[bool, str | None]]:
        """Return the worker's function that creates the topic if it is missing.

        It returns whether the topic was missing, and an error.
        """
        creator: Callable[[int], tuple[bool, str | None]] = shipped("kafka_topic").TopicCreator(
            configuration=dict(self.configuration),
            name=self.topic,
            partitions=self.settings.partitions,
            replication_factor=self.settings.replication_factor,
        )
        return creator

    def location(self, dead_letters: DeadLetters) -> str:
        """Return the topic."""
        return f"topic {self.topic}"

    def write(self, rows: DataFrame, dead_letters: DeadLetters) -> list[RejectedDeadLetters]:
        """Send the dead letters. The executors retry within the policy's limits."""
        worker = shipped("kafka_dead_letters")
        converter = self.settings.converter
        sender = worker.DeadLetterSender(
            topic=self.topic,
            configuration=dict(self.configuration),
            rules=shipped_rules(self.policy),
            context_headers=self.settings.context_headers,
            include_messages=self.settings.include_messages,
            converter=None if converter is None else load_object(converter),
            redacting=redacting(self.redaction),
        )
        # The source's original bytes: as text they may not be UTF-8.
        rows = rows.withColumn("row", F.col("row").cast("binary"))
        results = rows.coalesce(self.producers).mapInArrow(sender, worker.RESULT).collect()
        return [
            RejectedDeadLetters(
                task=row["task"],
                failures=row["failures"],
                waiting=row["waiting"],
                problem=Problem(
                    exception_class=row["exception_class"],
                    message=row["message"],
                    cause=Cause(names=tuple(row["names"])),
                    attempts=row["attempts"],
                ),
                ids=None if row["ids"] is None else tuple(row["ids"]),
            )
            for row in results
        ]

    def read(self, request: DeadLetterRequest, checkpoints: Checkpoints) -> StoredDeadLetters:
        """Return dead letters of the topic, by the settings of its producer."""
        return read_topic(
            request,
            self.topic,
            spark=self.spark,
            configuration=self.configuration,
            tasks=self.producers,
            checkpoints=checkpoints,
        )


def topic_destination(
    source: DataFrame, settings: DeadLetterSettings, policy: Policy
) -> TopicDestination:
    """Return the configured topic. The bootstrap servers default to the source's.

    Raises DeadLettersUnusable for a topic that the source reads: each dead letter would become a
    record again.
    """
    configuration = {**_DEFAULTS, **settings.producer}
    if "delivery.timeout.ms" in settings.producer:
        del configuration["message.timeout.ms"]
    sources = kafka_sources(source)
    if BOOTSTRAP not in configuration:
        servers = next((each.servers for each in sources if each.servers), frozenset())
        configuration |= {BOOTSTRAP: ",".join(sorted(servers))} if servers else {}
    spark = source.sparkSession
    destination = TopicDestination(
        spark=spark, settings=settings, configuration=configuration, policy=policy
    )
    topic, servers = destination.topic, servers_of(configuration.get(BOOTSTRAP))
    for option in filter(None, (each.reads(topic, servers, spark) for each in sources)):
        raise DeadLettersUnusable(
            f"errors.dlq.topic.name={topic!r} is a topic that the pipeline reads "
            f"({option}): its dead letters would come back as records"
        )
    return destination
