"""What the plan of a source says about Kafka: which topics it reads, of which cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

#: Spark's Kafka source cannot do without it, so it is what such a source is known by.
BOOTSTRAP = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """The options of one Kafka source in a plan."""

    #: host:port, as the author wrote them.
    servers: frozenset[str]
    topics: frozenset[str]
    pattern: str | None

    def reads(self, topic: str, servers: frozenset[str]) -> str | None:
        """Return by which option it reads `topic` of the cluster at `servers`; None: it does not.

        Unknown servers are all the same; two lists without a server in common are two clusters.
        """
        if servers and self.servers and not servers & self.servers:
            return None
        if self.pattern is not None and re.fullmatch(self.pattern, topic) is not None:
            return f"subscribePattern {self.pattern}"
        return "subscribe or assign" if topic in self.topics else None


def kafka_sources(source: DataFrame) -> list[KafkaSource]:
    """Return the Kafka sources, streaming or static, that the plan of `source` reads."""
    plan = source._jdf.queryExecution().analyzed()
    return [_source(options) for options in _options(source, plan) if BOOTSTRAP in options]


def servers_of(text: object) -> frozenset[str]:
    """Return the servers in a list separated by commas."""
    return frozenset(each.strip() for each in str(text or "").split(",") if each.strip())


def _options(source: DataFrame, plan: Any) -> Iterator[Mapping[str, str]]:
    """Yield the options of each leaf of a plan that has some."""
    jvm: Any = source.sparkSession._jvm
    as_java = jvm.scala.jdk.javaapi.CollectionConverters
    for leaf in as_java.asJava(plan.collectLeaves()):
        match str(leaf.getClass().getSimpleName()):
            case "StreamingRelationV2":
                yield _lower(dict(leaf.extraOptions()))
            case "StreamingRelation":
                yield _lower(dict(as_java.asJava(leaf.dataSource().options())))
            case "DataSourceV2Relation":
                yield _lower(dict(leaf.options()))


def _lower(options: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _source(options: Mapping[str, str]) -> KafkaSource:
    topics = set(servers_of(options.get("subscribe")))
    if "assign" in options:
        topics |= set(json.loads(options["assign"]))
    return KafkaSource(
        servers=servers_of(options.get(BOOTSTRAP)),
        topics=frozenset(topics),
        pattern=options.get("subscribepattern"),
    )
