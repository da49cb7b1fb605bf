"""Records as Spark's Kafka source gives them, of its exact schema, from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from tests.agents.pipeline_bench import Bench

#: As documented, with `includeHeaders`.
KAFKA_SCHEMA = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField(
            "headers",
            T.ArrayType(
                T.StructType(
                    [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
                )
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRecord:
    """One record of a topic."""

    value: bytes | None
    key: bytes | None = None
    topic: str = "flights"
    partition: int = 0
    offset: int = 0
    timestamp_ms: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()

    def row(self) -> tuple[object, ...]:
        at = datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)
        coordinates = (self.topic, self.partition, self.offset)
        return (self.key, self.value, *coordinates, at, 0, list(self.headers))


def add_records(bench: Bench, *records: KafkaRecord) -> None:
    """Add one micro-batch of records."""
    bench._files += 1
    # Whole at once, with its time: a stream that runs lists it as soon as it is there.
    place, draft = bench.folder / "in" / f"{bench._files:06d}", bench.folder / "draft"
    made = bench.spark.createDataFrame([each.row() for each in records], KAFKA_SCHEMA)
    made.coalesce(1).write.parquet(str(draft))
    # Spark reads files by time, and two of one millisecond in any order.
    for part in draft.glob("part-*"):
        os.utime(part, (1_700_000_000 + bench._files, 1_700_000_000 + bench._files))
    place.parent.mkdir(exist_ok=True)
    draft.rename(place)


def kafka_source(bench: Bench) -> DataFrame:
    """Return a stream with Kafka's schema, one micro-batch for each file."""
    (bench.folder / "in").mkdir(exist_ok=True)
    reader = bench.spark.readStream.schema(KAFKA_SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(bench.folder / "in" / "*"))


class KafkaOptions(DataSource):
    """Has a Kafka source's options and columns: Spark's own connector is not on PyPI."""

    @classmethod
    def name(cls) -> str:
        return "kafka_options"

    def schema(self) -> str:
        return "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"

    def simpleStreamReader(self, schema: Any) -> Nothing:
        return Nothing()


class Nothing(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}


def source_with_options(spark: SparkSession, **options: str) -> DataFrame:
    """Return a stream that was given these options of Kafka's, and has no records."""
    spark.dataSource.register(KafkaOptions)
    reader = spark.readStream.format("kafka_options").option("kafka.bootstrap.servers", "a:1")
    return reader.options(**options).load()
