"""What is brought of a micro-batch some of whose records fail: by few jobs, and not too much."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.slow_path import Evaluated, evaluate
from arrester.agents.decisions.judge import Decision
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.executor.columns import FATE
from arrester.agents.failures import failure_set as failing
from tests.agents.batch.test_slow_path import begun, judge, nothing
from tests.agents.pipeline_bench import SCHEMA

pytestmark = pytest.mark.spark


def jobs_of(spark: SparkSession, act: Callable[[], object]) -> int:
    """Return how many jobs it takes."""
    context, group = spark.sparkContext, uuid4().hex
    context.setJobGroup(group, "counted")
    try:
        act()
    finally:
        context._jsc.clearJobGroup()
    return len(context.statusTracker().getJobIdsForGroup(group))


def numbers(spark: SparkSession, rows: list[tuple[str, int, str]]) -> tuple[DataFrame, Pipeline]:
    source = spark.createDataFrame(rows, SCHEMA).repartition(2)
    step = begun(source).deserialize("n", F.col("value").cast("int"))
    return source.localCheckpoint(), step.write(nothing)


def test_a_micro_batch_whose_records_are_likely_to_fail_takes_two_jobs(
    spark: SparkSession,
) -> None:
    rows = [("ab"[n % 2], n, "x" if n % 5 == 0 else "1") for n in range(40)]
    source, pipeline = numbers(spark, rows)
    judging = judge(pipeline, examples_limit=3)
    said: list[Decision] = []
    left: list[list[int]] = []

    def look(*, fails: bool) -> Evaluated:
        evaluated = fail_shared_positions(
            evaluate(source, pipeline, fails=fails), pipeline, examples=judging.examples_limit
        )
        said.append(judging.decide(evaluated.failures, []))
        passed = evaluated.passed(pipeline).select("position").collect()
        left.append(sorted(row["position"] for row in passed))
        evaluated.release()
        return evaluated

    # Beside the one that reads what passed: evaluated and brought; looked at with the examples.
    assert jobs_of(spark, lambda: look(fails=True)) == 1 + 2
    # The same where nobody expected it: counted, and then brought.
    assert jobs_of(spark, lambda: look(fails=False)) == 1 + 3
    assert said[0] == said[1]
    assert left[0] == left[1]
    assert [(each.task, each.position) for each in said[0].examples] == [
        ("a", 0),
        ("a", 10),
        ("a", 20),
    ]
    assert sum(each.count for each in said[0].rest) == 5


def test_no_code_is_compiled_for_a_micro_batch_that_was_not_for_the_one_before(
    spark: SparkSession,
) -> None:
    """What Spark generates for 250,000 rows takes longer to compile than to run."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled: list[int] = []
    for first in (0, 100, 200):
        rows = [("ab"[n % 2], first + n, "x" if n % 5 == 0 else "1") for n in range(40)]
        source, pipeline = numbers(spark, rows)
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        evaluated = fail_shared_positions(
            evaluate(source, pipeline, fails=True), pipeline, examples=3
        )
        judge(pipeline, examples_limit=3).decide(evaluated.failures, [])
        evaluated.passed(pipeline).select("position").collect()
        evaluated.release()
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    assert compiled[-1] == 0


def test_what_fails_in_one_partition_is_not_brought_where_it_is_too_much(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition may send its share: how many fail in all is not known before."""
    monkeypatch.setattr(failing, "FEW", 6)
    source, pipeline = numbers(spark, [("a", n, "x" if n < 4 else "1") for n in range(8)])
    found: list[Evaluated] = []
    in_one = source.repartition(3, F.col("value")).localCheckpoint()

    jobs = jobs_of(spark, lambda: found.append(evaluate(in_one, pipeline, fails=True)))
    assert [each.failed for each in found] == [4]
    # Tried, counted, brought.
    assert jobs == 3
    found[0].release()


def test_where_records_are_likely_to_fail_a_micro_batch_may_be_empty(spark: SparkSession) -> None:
    """Its local checkpoint has no partition."""
    empty = spark.createDataFrame([], SCHEMA).where("false")
    assert empty.rdd.getNumPartitions() == 0
    step = begun(empty).deserialize("n", F.col("value").cast("int"))

    evaluated = evaluate(empty, step.write(nothing), fails=True)
    assert evaluated.clean
    evaluated.release()


def test_records_that_share_the_position_of_a_failed_one_are_found_however_many(
    spark: SparkSession,
) -> None:
    rows = [("a", 0, "x"), *[("a", 0, "1")] * 40, ("a", 1, "x"), ("b", 0, "1")]
    source, pipeline = numbers(spark, rows)

    evaluated = evaluate(source, pipeline, fails=True)
    assert evaluated.failed == 2
    evaluated = fail_shared_positions(evaluated, pipeline, examples=1)

    assert evaluated.failed == 42
    responder = evaluated.frame.groupBy(FATE).count().collect()
    assert {row[FATE]: row["count"] for row in responder} == {0: 41, 1: 1, None: 1}
    evaluated.release()
