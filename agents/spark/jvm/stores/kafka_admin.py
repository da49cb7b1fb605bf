"""Check clusters and topics with Kafka's admin client, which Spark's Kafka connector brings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from arrester.agents.spark.jvm.classes import has_jvm_class, jvm_class
from arrester.agents.spark.jvm.exceptions.causes import cause_of
from arrester.agents.spark.jvm.exceptions.problems import java_class_and_message

_ADMIN: Final = "org.apache.kafka.clients.admin."
_ERRORS: Final = "org.apache.kafka.common.errors."
_PREFIX: Final = "kafka."
#: Without this setting the check waits half a minute. The client's default, a minute, would delay
#: a start for too long.
_TIMEOUT: Final = "default.api.timeout.ms"
_TIMEOUT_MS: Final = 30_000
#: Settings of clusters for which Spark gets delegation tokens; this client does not have them.
_TOKENS: Final = "spark.kafka.clusters."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFault:
    """Why a topic, or a cluster, cannot be used."""

    #: The topic that cannot be used; None: the cluster.
    topic: str | None
    #: Class and message of the client's exception.
    reason: str
    #: Whether the topic does not exist.
    is_missing: bool
    #: Whether no broker has answered in time.
    is_timeout: bool


def topic_fault(
    spark: SparkSession, options: Mapping[str, str], topics: Collection[str]
) -> TopicFault | None:
    """Return the first fault of the topics in the cluster of these options (`kafka.…`).

    Without topics, the cluster alone is checked. None: it can be used, or the client is not
    available.
    """
    jvm: Any = spark._jvm
    if not has_jvm_class(jvm, f"{_ADMIN}Admin") or _has_tokens(spark):
        return None
    configuration = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    try:
        client = jvm_class(jvm, f"{_ADMIN}AdminClient").create(configuration)
    except Py4JJavaError as exc:
        return _fault(exc, None)
    try:
        timeout = int(configuration.get(_TIMEOUT, _TIMEOUT_MS))
        return _first_fault(jvm, client, sorted(topics), timeout)
    finally:
        client.close(jvm_class(jvm, "java.time.Duration").ZERO)


def _first_fault(jvm: Any, client: Any, topics: list[str], timeout: int) -> TopicFault | None:
    futures: dict[str | None, Any]
    if not topics:
        listing = jvm_class(jvm, f"{_ADMIN}ListTopicsOptions")().timeoutMs(timeout)
        futures = {None: client.listTopics(listing).names()}
    else:
        describing = jvm_class(jvm, f"{_ADMIN}DescribeTopicsOptions")().timeoutMs(timeout)
        described = client.describeTopics(topics, describing).topicNameValues()
        futures = {topic: described.get(topic) for topic in topics}
    for topic, future in futures.items():
        try:
            future.get()
        except Py4JJavaError as exc:
            return _fault(exc, topic)
    return None


def _fault(exc: Py4JJavaError, topic: str | None) -> TopicFault:
    names = cause_of(exc).names
    name, message = java_class_and_message(exc) or ("", str(exc))
    return TopicFault(
        topic=topic,
        reason=f"{name.rpartition('.')[2]}: {message}",
        is_missing=f"{_ERRORS}UnknownTopicOrPartitionException" in names,
        is_timeout=f"{_ERRORS}TimeoutException" in names,
    )


def _has_tokens(spark: SparkSession) -> bool:
    return any(name.startswith(_TOKENS) for name, _ in spark.sparkContext.getConf().getAll())
