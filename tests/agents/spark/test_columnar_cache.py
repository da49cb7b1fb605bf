"""A local checkpoint in columns: the same rows, evaluated once, nobody else's to give back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.spark.columnar_cache import in_columns
from arrester.agents.spark.local_checkpoint import give_back
from tests.agents.pipeline_bench import Bench
from tests.agents.run.test_path_selection import Spy, standing, told

pytestmark = pytest.mark.spark

COMPRESSED = "spark.sql.inMemoryColumnarStorage.compressed"


def kind(frame: DataFrame) -> str:
    """Return what a frame is read from."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return str(plan.getClass().getSimpleName())


def test_rows_come_back_as_they_were_evaluated_once(spark: SparkSession) -> None:
    before = spark.conf.get(COMPRESSED)
    kept = in_columns(
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
        )
    )
    assert kind(kept) == "InMemoryRelation"
    assert spark.conf.get(COMPRESSED) == before
    first = kept.collect()
    # A cache of the author's would be empty now.
    spark.catalog.clearCache()
    assert kept.collect() == first
    assert [row["id"] for row in kept.where("some IS NULL").collect()] == list(range(0, 50, 7))
    assert first[9]["pair"].asDict() == {"n": 9, "s": "9"}

    give_back(kept)
    # Given back it is gone, not evaluated again; what is lost heals itself (failure_table).
    with pytest.raises(Exception, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        kept.collect()


def test_what_the_author_has_set_stays(spark: SparkSession) -> None:
    spark.conf.set(COMPRESSED, "true")
    try:
        give_back(in_columns(spark.range(1)))
        assert spark.conf.get(COMPRESSED) == "true"
    finally:
        spark.conf.unset(COMPRESSED)


def test_types_that_columns_may_not_take_are_kept_as_rows(spark: SparkSession) -> None:
    kept = in_columns(spark.range(2).select(F.expr("make_ym_interval(1, id)").alias("months")))
    assert kind(kept) == "LogicalRDD"
    assert kept.count() == 2
    give_back(kept)


def numbers(bench: Bench, spy: Spy, *, atomic: bool) -> Pipeline:
    """Native steps alone, one of which leaves out, and the other pauses."""
    return (
        bench.define()
        .deserialize("number", F.col("value").cast("int"), on_error=LogAndContinue())
        .columns("tenth", tenth=F.lit(10) / F.col("number"), on_error=LogAndPause())
        .write(spy, atomic=atomic)
    )


@pytest.mark.long
def test_a_batch_done_again_in_columns_comes_to_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    said, seen = [], []
    for atomic in (True, False):
        folder = tmp_path / str(atomic)
        folder.mkdir()
        bench, spy = Bench(spark, folder), Spy(folder / "out")
        bench.add(("a", 0, "1"), ("a", 1, "x"), ("b", 0, "2"), ("b", 1, "0"), ("b", 2, "3"))
        bench.add(("a", 2, "4"), ("b", 3, "5"))
        bench.start(numbers(bench, spy, atomic=atomic))
        bench.wait_for_input()
        bench.stop()
        said.append(spy.said)
        letters = sorted((str(row["task"]), str(row["position"])) for row in bench.dead_letters())
        seen.append((sorted(bench.written()), told(bench), letters, standing(bench)))

    assert said[0] == ["0 one pass: aborted", "0 with care", "1 with care"]
    assert seen[0] == seen[1]
    assert seen[0][0] == [("a", 0), ("a", 2), ("b", 0)]
