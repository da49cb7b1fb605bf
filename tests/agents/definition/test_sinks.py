"""Arguments of `.write` and `.write_files`, and which sinks are atomic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores.delta_table import DeltaTable
from arrester.agents.definition.stores.files import Files
from arrester.agents.definition.stores.iceberg_table import IcebergTable
from arrester.agents.definition.stores.jdbc_store import JdbcStore
from arrester.agents.definition.stores.kafka_topic import KafkaTopic
from arrester.agents.definition.stores.sink_store import BatchStore
from arrester.domain.errors import InvalidValue
from tests.agents.pipeline_bench import Bench

pytestmark = pytest.mark.spark

_ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
_PROTOCOL = "spark.sql.sources.commitProtocolClass"


def written(df: DataFrame, number: int) -> None:
    """Write nothing."""


def sent(row: dict[str, Any]) -> None:
    """Send nothing."""


def test_files_are_appended_or_replaced_by_number(spark: SparkSession, tmp_path: Path) -> None:
    some = spark.range(3)
    appended, numbered = str(tmp_path / "appended"), str(tmp_path / "numbered")
    for _ in range(2):
        Files(path=appended)(some, 7)
        Files(path=numbered, format="json", number_column="batch")(some, 7)

    assert spark.read.parquet(appended).count() == 6
    read = spark.read.json(numbered).groupBy("batch").count().collect()
    assert [(row["batch"], row["count"]) for row in read] == [(7, 3)]


def test_files_have_partitions_and_options(spark: SparkSession, tmp_path: Path) -> None:
    sink = Files(
        path=str(tmp_path / "out"), format="csv", partition_by=("half",), options={"sep": "|"}
    )
    rows = spark.range(4).selectExpr("id", "id * 2 as twice", "id % 2 as half")
    sink(rows, 0)

    # Its probe writes the same rows into another folder.
    sink.write_into(rows, str(tmp_path / "probe"))
    for folder in ("out", "probe"):
        lines = [part.read_text() for part in (tmp_path / folder / "half=1").glob("part-*")]
        assert sorted("".join(lines).split()) == ["1|2", "3|6"]


def test_which_sinks_are_atomic(bench: Bench) -> None:
    def atomic(pipeline: Pipeline) -> bool:
        return pipeline.sink.is_atomic(bench.spark)

    assert not atomic(bench.define().write(written))
    assert atomic(bench.define().write(written, atomic=True))
    assert not atomic(bench.define().produce(sent))
    assert atomic(bench.define().write_files("/data/out"))
    # Files of a Spark task are visible before the job commits.
    assert not atomic(bench.define().write_files("/data/out", options={_ALGORITHM: "2"}))
    hadoop = bench.spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(_ALGORITHM, "2")
    try:
        assert not atomic(bench.define().write_files("/data/out"))
    finally:
        hadoop.unset(_ALGORITHM)
    bench.spark.conf.set(_PROTOCOL, "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol")
    assert not atomic(bench.define().write_files("/data/out"))
    bench.spark.conf.unset(_PROTOCOL)


SCHEMA = T.StructType([T.StructField("id", T.LongType())])
TABLE: dict[str, Any] = {"table": "flights", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("store", "label", "is_numbered", "is_database", "has_known_constraints"),
    [
        (Files(path="/data", format="orc"), "orc files", False, False, False),
        (KafkaTopic(topic="flights", options={}), "topic flights", False, False, False),
        (JdbcStore(url="jdbc:postgresql:a", **TABLE), "table flights", True, True, False),
        (DeltaTable(**TABLE), "table flights", True, False, True),
        (IcebergTable(**TABLE), "table flights", True, False, True),
        (Sink(function=written).store, f"{__name__}.written", False, False, False),
    ],
)
def test_what_a_kind_of_store_promises(
    store: BatchStore, label: str, is_numbered: bool, is_database: bool, has_known_constraints: bool
) -> None:
    assert (store.label, store.finds_all_refused) == (label, is_numbered)
    # The name of a folder of staged files has the checkpoint.
    assert (store.at("cp-2") != store) == (is_numbered or isinstance(store, Files))
    assert store.is_database == is_database
    assert store.has_known_constraints == has_known_constraints


def test_a_record_is_not_sent_twice_at_the_same_time(bench: Bench) -> None:
    store = bench.define().produce(sent).sink.store
    store.check(bench.spark)
    conf: Any = bench.spark.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(InvalidValue, match=r"spark\.speculation: 'true' is not allowed"):
            store.check(bench.spark)
    finally:
        conf._jconf.remove("spark.speculation")


def test_an_invalid_file_sink_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidValue, match="write_files: format: 'kafka' is not allowed"):
        bench.define().write_files("/data/out", format="kafka")
    with pytest.raises(InvalidValue, match="write_files: path"):
        bench.define().write_files("")
