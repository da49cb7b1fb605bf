"""The Kafka sources in a source's plan: their topics and clusters, and the default task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.jvm.java_text import matches_regex
from arrester.agents.spark.jvm.plans.source_plan import (
    columns_of,
    leaves_of,
    options_of,
    streams_kafka,
)
from arrester.domain.errors import InvalidValue

#: The name of the data source.
FORMAT = "kafka"
#: The option that identifies a Kafka source: Spark requires it.
BOOTSTRAP = "kafka.bootstrap.servers"
#: The coordinates of a Kafka record. They identify a source of such records.
COORDINATES = frozenset({"topic", "partition", "offset"})
#: The options by which a client reaches a cluster.
_CONNECTION = (BOOTSTRAP, "kafka.security.", "kafka.sasl.", "kafka.ssl.")
#: Spark's setting to fetch offsets by a consumer, which creates topics or waits for them.
_CONSUMER_FETCHES = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
#: Joins topic and partition in a task's key, as Kafka does: `flights-0`.
DASH = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """The options of one Kafka source in a plan."""

    #: host:port, as written by the author.
    servers: frozenset[str]
    topics: frozenset[str]
    pattern: str | None

    def reads(self, topic: str, servers: frozenset[str], spark: SparkSession) -> str | None:
        """Return the option by which the source reads `topic` of the cluster at `servers`, else
        None.

        Unknown servers match any cluster. Two lists without a common server are two clusters.
        Raises InvalidValue for a pattern that is not valid in Java.
        """
        if servers and self.servers and not servers & self.servers:
            return None
        if self.pattern is not None and _matches(spark, self.pattern, topic):
            return f"subscribePattern {self.pattern}"
        return "subscribe or assign" if topic in self.topics else None


def default_task(source: DataFrame) -> Column:
    """Return the default task of a source with Kafka's columns: a partition of one of its topics.

    If all records are certainly of one topic, the key is the partition. Otherwise it is
    `topic-partition`, since offsets are unique only within it. The same applies to a table of
    Kafka records.
    """
    topics: set[str] = set()
    for leaf in leaves_of(source):
        options = options_of(source, leaf)
        if BOOTSTRAP in options:
            kafka = _kafka_source(options)
            topics |= kafka.topics
            if kafka.pattern is not None or not kafka.topics:
                return topic_partition()
        elif set(columns_of(leaf)) >= COORDINATES:
            return topic_partition()
    return F.col("partition") if len(topics) == 1 else topic_partition()


def topic_partition() -> Column:
    """Return `topic-partition`, NULL if one of them is NULL."""
    topic, partition = (F.col(name).cast("string") for name in ("topic", "partition"))
    return F.concat(topic, F.lit(DASH), partition)


def kafka_sources(source: DataFrame) -> list[KafkaSource]:
    """Return the streaming and static Kafka sources that the plan of `source` reads."""
    return [_kafka_source(options) for options in _kafka_options(source)]


def may_lose_records(source: DataFrame) -> bool:
    """Whether a Kafka source goes on without records that its topic no longer has."""
    return any(
        options.get("failondataloss", "true").lower() == "false"
        for options in _kafka_options(source)
    )


def connections(source: DataFrame) -> list[Mapping[str, str]]:
    """Return servers and security of each Kafka source, as options; they may have secrets."""
    return [
        {name: value for name, value in options.items() if name.startswith(_CONNECTION)}
        for options in _kafka_options(source)
    ]


def checkable_sources(source: DataFrame) -> list[tuple[Mapping[str, str], frozenset[str]]]:
    """Return options and topics of each stream of Spark's connector that needs its topics at once.

    With a consumer in place of the admin client, Spark waits for missing topics.
    """
    if source.sparkSession.conf.get(_CONSUMER_FETCHES, "false") == "true":
        return []
    found = (options_of(source, leaf) for leaf in leaves_of(source) if streams_kafka(leaf))
    return [(options, _kafka_source(options).topics) for options in found]


def _kafka_options(source: DataFrame) -> list[Mapping[str, str]]:
    leaves = [options_of(source, leaf) for leaf in leaves_of(source)]
    return [options for options in leaves if BOOTSTRAP in options]


def servers_of(text: object) -> frozenset[str]:
    """Return the servers of a comma-separated list."""
    return frozenset(item.strip() for item in str(text or "").split(",") if item.strip())


def _kafka_source(options: Mapping[str, str]) -> KafkaSource:
    topics = set(servers_of(options.get("subscribe")))
    if "assign" in options:
        topics |= _assigned_topics(options["assign"])
    return KafkaSource(
        servers=servers_of(options.get(BOOTSTRAP)),
        topics=frozenset(topics),
        pattern=options.get("subscribepattern"),
    )


def _assigned_topics(text: str) -> set[str]:
    """Return the topics of `assign`; empty for a value that Spark will refuse."""
    try:
        partitions_by_topic = json.loads(text)
    except ValueError:
        return set()
    return set(partitions_by_topic) if isinstance(partitions_by_topic, dict) else set()


def _matches(spark: SparkSession, pattern: str, topic: str) -> bool:
    """Whether a Java regular expression matches a complete topic name."""
    try:
        return matches_regex(spark, pattern, topic)
    except IllegalArgumentException as exc:
        allowed = "a regular expression of Java"
        reason = f"{pattern!r} is not {allowed}: {str(exc).partition(chr(10))[0]}"
        raise InvalidValue("subscribePattern", pattern, allowed, reason=reason) from None
