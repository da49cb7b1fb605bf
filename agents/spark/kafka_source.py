"""Kafka facts in a source's plan: which topics it reads, from which cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.spark.catalyst import analysed, node_name, to_list
from arrester.agents.spark.jvm import jvm_class
from arrester.controlplane.domain.errors import InvalidValue

#: Spark's Kafka source requires this option, so it identifies such a source.
BOOTSTRAP = "kafka.bootstrap.servers"
#: The coordinates of a Kafka record. They identify a source of such records.
COORDINATES = frozenset({"topic", "partition", "offset"})
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

    The key is the partition if all records are certainly of one topic, else `topic-partition`:
    offsets are unique only within it. This also holds for a table of Kafka records.
    """
    found: set[str] = set()
    for leaf in leaves_of(source):
        options = options_of(source, leaf)
        if BOOTSTRAP in options:
            read = _source(options)
            found |= read.topics
            if read.pattern is not None or not read.topics:
                return topic_partition()
        elif set(_names(leaf)) >= COORDINATES:
            return topic_partition()
    return F.col("partition") if len(found) == 1 else topic_partition()


def topic_partition() -> Column:
    """Return `topic-partition`, NULL if one of them is NULL."""
    topic, partition = (F.col(name).cast("string") for name in ("topic", "partition"))
    return F.concat(topic, F.lit(DASH), partition)


def kafka_sources(source: DataFrame) -> list[KafkaSource]:
    """Return the streaming and static Kafka sources that the plan of `source` reads."""
    found = [options_of(source, leaf) for leaf in leaves_of(source)]
    return [_source(options) for options in found if BOOTSTRAP in options]


def servers_of(text: object) -> frozenset[str]:
    """Return the servers of a comma-separated list."""
    return frozenset(each.strip() for each in str(text or "").split(",") if each.strip())


def leaves_of(source: DataFrame) -> list[Any]:
    """Return the leaves of the source's plan."""
    return to_list(analysed(source).collectLeaves())


def _names(leaf: Any) -> list[str]:
    return list(leaf.schema().fieldNames())


def options_of(source: DataFrame, leaf: Any) -> Mapping[str, str]:
    """Return the options of a plan's leaf by lower-case name; empty if it keeps none."""
    match node_name(leaf):
        case "StreamingRelationV2":
            found = dict(leaf.extraOptions())
        case "StreamingRelation":
            found = dict(_java_map(source, leaf.dataSource().options()))
        case "DataSourceV2Relation":
            found = dict(leaf.options())
        case _:
            found = {}
    return {name.lower(): value for name, value in found.items()}


def _java_map(source: DataFrame, options: Any) -> Any:
    jvm: Any = source.sparkSession._jvm
    return jvm_class(jvm, "scala.collection.JavaConverters").mapAsJavaMap(options)


def _source(options: Mapping[str, str]) -> KafkaSource:
    topics = set(servers_of(options.get("subscribe")))
    if "assign" in options:
        topics |= _assigned(options["assign"])
    return KafkaSource(
        servers=servers_of(options.get(BOOTSTRAP)),
        topics=frozenset(topics),
        pattern=options.get("subscribepattern"),
    )


def _assigned(text: str) -> set[str]:
    """Return the topics of `assign`; empty for a value that Spark will refuse."""
    try:
        given = json.loads(text)
    except ValueError:
        return set()
    return set(given) if isinstance(given, dict) else set()


def _matches(spark: SparkSession, pattern: str, topic: str) -> bool:
    """Whether a Java regular expression matches a complete topic name."""
    jvm: Any = spark._jvm
    try:
        return bool(jvm_class(jvm, "java.util.regex.Pattern").matches(pattern, topic))
    except IllegalArgumentException as exc:
        reason = str(exc).partition("\n")[0]
        allowed = f"a regular expression of Java ({reason})"
        raise InvalidValue("subscribePattern", pattern, allowed) from None
