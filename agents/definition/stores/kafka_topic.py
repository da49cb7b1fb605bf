"""The sink of `.write_kafka`: a topic, written by Spark's own Kafka writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.arguments import check_mapping, check_text
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.definition.stores.sink_store import BatchStore
from arrester.agents.spark.jvm.session import has_data_source
from arrester.agents.spark.sources.kafka_checks import check_topic
from arrester.agents.spark.sources.kafka_source import (
    BOOTSTRAP,
    FORMAT,
    connections,
    kafka_sources,
    servers_of,
)
from arrester.domain.errors import InvalidValue

#: The columns that Spark's writer uses, with their types.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic(BatchStore):
    """Appends rows to a topic: at least once, since nothing is withdrawn."""

    topic: str
    #: Options of Spark's writer; they may have secrets.
    options: Mapping[str, str] = field(repr=False)

    @property
    def label(self) -> str:
        """`topic flights`."""
        return f"topic {self.topic}"

    def check_start(self, spark: SparkSession, *, first: bool) -> None:
        """Raise KafkaUnusable if the topic cannot be written.

        Later, time-outs are accepted: they are retried by `errors.retries.limit`.
        """
        check_topic(spark, self.topic, self.options, may_time_out=not first)

    def __call__(self, df: DataFrame, number: int) -> None:
        """Write one micro-batch, or one chunk of held records."""
        columns = [name for name in df.columns if name in _COLUMNS]
        writer = df.select(*columns).write.format(FORMAT).options(**self.options)
        writer.option("topic", self.topic).save()


def checked_topic(
    source: DataFrame, schema: T.StructType, *, topic: object, options: Mapping[str, Any] | None
) -> KafkaTopic:
    """Return the sink of `.write_kafka` for rows of this schema.

    Raises InvalidValue and PipelineInvalid.
    """
    check_text("write_kafka: topic", topic, "the name of a topic")
    check_mapping("write_kafka: options", options, "a mapping of options of Spark's Kafka writer")
    given = {name: str(value) for name, value in (options or {}).items()}
    if "topic" in {name.lower() for name in given}:
        raise InvalidValue("write_kafka: options", "topic", "the argument topic=")
    _check_connector(source.sparkSession)
    _check_columns(schema)
    function = KafkaTopic(topic=str(topic), options=_with_servers(source, given))
    servers = servers_of(function.options[BOOTSTRAP])
    for each in kafka_sources(source):
        if option := each.reads(function.topic, servers, source.sparkSession):
            allowed = (
                f"a topic that the pipeline does not read ({option}): its rows would come back"
            )
            raise InvalidValue("write_kafka: topic", topic, allowed)
    return function


def _check_connector(spark: SparkSession) -> None:
    if not has_data_source(spark, FORMAT):
        version = spark.version
        raise PipelineInvalid(
            "write_kafka: Spark has no Kafka connector; add the package spark-sql-kafka-0-10 of "
            f"its version: --packages org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        )


def _check_columns(schema: T.StructType) -> None:
    """Raise PipelineInvalid for rows that Spark's writer would refuse."""
    if "value" not in schema.names:
        raise PipelineInvalid(
            "write_kafka: the rows have no column value; add it before, such as .columns('output', "
            f"value=F.to_json(F.struct(...))). Their columns are {', '.join(schema.names)}"
        )
    for name, allowed in _COLUMNS.items():
        kind = schema[name].dataType.simpleString() if name in schema.names else allowed[0]
        if kind not in allowed:
            raise PipelineInvalid(
                f"write_kafka: column {name} has the type {kind}; use {' or '.join(allowed)}"
            )


def _with_servers(source: DataFrame, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options; without servers, those of the source and its security are added."""
    if BOOTSTRAP in {name.lower() for name in options}:
        return {BOOTSTRAP if name.lower() == BOOTSTRAP else name: options[name] for name in options}
    by_servers = {each[BOOTSTRAP]: each for each in connections(source)}
    if len(by_servers) != 1:
        found = " and ".join(sorted(by_servers)) or "no Kafka servers"
        allowed = f"the servers of the topic, host:port; the source has {found}"
        raise InvalidValue(f"write_kafka: options: {BOOTSTRAP}", None, allowed)
    [connection] = by_servers.values()
    return {**connection, **options}
