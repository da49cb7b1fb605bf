"""Columnar local checkpoints: same rows, evaluated once, released only by their owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.spark.frames.local_checkpoint import lazy_checkpoint, release
from arrester.agents.spark.jvm.exceptions.problems import problem_of
from tests.agents.batch.test_path_selection import Spy, reported, states_of
from tests.agents.pipeline_bench import Bench

pytestmark = pytest.mark.spark

COMPRESSED = "spark.sql.inMemoryColumnarStorage.compressed"


def plan_class(frame: DataFrame) -> str:
    """Return the class of a frame's plan."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return str(plan.getClass().getSimpleName())


def test_rows_are_evaluated_once_and_read_unchanged(spark: SparkSession) -> None:
    before = spark.conf.get(COMPRESSED)
    stored = lazy_checkpoint(
        spark.range(50, numPartitions=2).selectExpr(
            "id",
            "IF(id % 7 = 0, NULL, id) AS some",
            "rand() AS chance",
            "named_struct('n', id, 's', CAST(id AS STRING)) AS pair",
            "array(id, NULL) AS list",
            "map('k', id) AS map",
            "CAST(id AS DECIMAL(30, 2)) AS exact",
            "timestamp_micros(id) AS at",
            "CAST('x' AS BINARY) AS bytes",
        ),
        columnar=True,
    )
    assert plan_class(stored) == "InMemoryRelation"
    assert spark.conf.get(COMPRESSED) == before
    first = stored.collect()
    # This would empty a cache of the author's.
    spark.catalog.clearCache()
    assert stored.collect() == first
    assert [row["id"] for row in stored.where("some IS NULL").collect()] == list(range(0, 50, 7))
    assert first[9]["pair"].asDict() == {"n": 9, "s": "9"}

    release([stored])
    # Released blocks are not evaluated again; the failure is a self-healing one.
    with pytest.raises(Exception) as caught:
        stored.collect()
    assert problem_of(spark, caught.value).cause.condition == "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


def test_settings_of_the_author_are_unchanged(spark: SparkSession) -> None:
    spark.conf.set(COMPRESSED, "true")
    try:
        release([lazy_checkpoint(spark.range(1), columnar=True)])
        assert spark.conf.get(COMPRESSED) == "true"
    finally:
        spark.conf.unset(COMPRESSED)


def test_rows_with_other_types_are_stored_as_objects(spark: SparkSession) -> None:
    months = F.expr("make_ym_interval(1, id)").alias("months")
    stored = lazy_checkpoint(spark.range(2).select(months), columnar=True)
    assert plan_class(stored) == "LogicalRDD"
    assert stored.count() == 2
    release([stored])


def numbers(bench: Bench, spy: Spy, *, atomic: bool) -> Pipeline:
    """Native steps only: one skips failed records, the other pauses."""
    return (
        bench.define()
        .deserialize("number", F.col("value").cast("int"), on_error=LogAndContinue())
        .columns("tenth", tenth=F.lit(10) / F.col("number"), on_error=LogAndPause())
        .write(spy, atomic=atomic)
    )


@pytest.mark.long
def test_a_batch_repeated_on_the_slow_path_in_columns_has_the_same_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths, results = [], []
    for atomic in (True, False):
        folder = tmp_path / str(atomic)
        folder.mkdir()
        bench, spy = Bench(spark, folder), Spy(folder / "out")
        bench.add(("a", 0, "1"), ("a", 1, "x"), ("b", 0, "2"), ("b", 1, "0"), ("b", 2, "3"))
        bench.add(("a", 2, "4"), ("b", 3, "5"))
        bench.start(numbers(bench, spy, atomic=atomic))
        bench.wait_for_input()
        bench.stop()
        paths.append(spy.paths)
        dead_letters = sorted(
            (str(row["task"]), str(row["position"])) for row in bench.dead_letters()
        )
        results.append((sorted(bench.written()), reported(bench), dead_letters, states_of(bench)))

    assert paths[0] == ["0 fast path: aborted", "0 slow path", "1 slow path"]
    assert results[0] == results[1]
    assert results[0][0] == [("a", 0), ("a", 2), ("b", 0)]
