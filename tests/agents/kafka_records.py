"""Records with the exact schema of Spark's Kafka source, read from files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

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
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
#: The same for a file that is written without Spark.
_ARROW = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())),
        *(("partition", pa.int32()), ("offset", pa.int64())),
        *(("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32())),
        ("headers", pa.list_(_HEADER)),
    ]
)
_OPTIONS_SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"


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

    def fields(self) -> dict[str, object]:
        """Return the row for Arrow."""
        headers = [{"key": key, "value": value} for key, value in self.headers]
        return dict(zip(KAFKA_SCHEMA.names, self.row(), strict=True)) | {"headers": headers}


def add_records(bench: Bench, *records: KafkaRecord) -> None:
    """Add one micro-batch of records."""
    bench._files += 1
    # Created atomically with its time: a running stream lists it at once.
    place, draft = bench.folder / "in" / f"{bench._files:06d}", bench.folder / "draft"
    draft.mkdir()
    table = pa.Table.from_pylist([each.fields() for each in records], schema=_ARROW)
    pq.write_table(table, draft / "part-0.parquet")
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


def source_with_options(spark: SparkSession, **options: str) -> DataFrame:
    """Return a stream with these Kafka options and without records: Spark's own connector is not
    on PyPI."""
    reader = spark.readStream.format(_registered(spark)).schema(_OPTIONS_SCHEMA)
    folder = tempfile.mkdtemp()
    return reader.option("kafka.bootstrap.servers", "a:1").options(**options).load(folder)


def _registered(spark: SparkSession) -> str:
    try:
        from tests.agents.kafka_options import KafkaOptions
    except ImportError:  # before 4.0, Spark has no Python data sources
        return "json"
    spark.dataSource.register(KafkaOptions)
    return KafkaOptions.name()
