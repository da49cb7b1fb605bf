"""Arguments of `.write` and `.write_files`, and which sinks are atomic."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from arrester.agents.definition.files import Files
from arrester.agents.definition.pipeline import Pipeline
from arrester.controlplane.domain.errors import InvalidValue
from tests.agents.pipeline_bench import Bench

pytestmark = pytest.mark.spark

_ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"


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
    def sink(*args: object) -> None:
        """Write nothing."""

    def atomic(pipeline: Pipeline) -> bool:
        return pipeline.sink.is_atomic(bench.spark)

    assert not atomic(bench.define().write(sink))
    assert atomic(bench.define().write(sink, atomic=True))
    assert atomic(bench.define().write_files("/data/out"))
    # Files of a Spark task are visible before the job commits.
    assert not atomic(bench.define().write_files("/data/out", options={_ALGORITHM: "2"}))
    hadoop = bench.spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(_ALGORITHM, "2")
    try:
        assert not atomic(bench.define().write_files("/data/out"))
    finally:
        hadoop.unset(_ALGORITHM)


def test_an_invalid_file_sink_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidValue, match="write_files: format: 'kafka' is not allowed"):
        bench.define().write_files("/data/out", format="kafka")
    with pytest.raises(InvalidValue, match="write_files: path"):
        bench.define().write_files("")
