"""Failed records of a micro-batch are collected by few jobs, and in limited numbers."""

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
from arrester.agents.failures import failure_set as failing
from arrester.agents.worker.columns import OUTCOME
from tests.agents.batch.static_batches import discard, judge, pipeline_of
from tests.agents.pipeline_bench import SCHEMA

pytestmark = pytest.mark.spark


def jobs_of(spark: SparkSession, act: Callable[[], object]) -> int:
    """Return the number of jobs that it runs."""
    context, group = spark.sparkContext, uuid4().hex
    context.setJobGroup(group, "counted")
    try:
        act()
    finally:
        context._jsc.clearJobGroup()
    return len(context.statusTracker().getJobIdsForGroup(group))


def numbers(spark: SparkSession, rows: list[tuple[str, int, str]]) -> tuple[DataFrame, Pipeline]:
    source = spark.createDataFrame(rows, SCHEMA).repartition(2)
    step = pipeline_of(source).deserialize("n", F.col("value").cast("int"))
    return source.localCheckpoint(), step.write(discard)


def test_a_micro_batch_whose_records_are_likely_to_fail_takes_two_jobs(
    spark: SparkSession,
) -> None:
    rows = [("ab"[n % 2], n, "x" if n % 5 == 0 else "1") for n in range(40)]
    source, pipeline = numbers(spark, rows)
    judging = judge(pipeline, examples_limit=3)
    decisions: list[Decision] = []
    passed: list[list[int]] = []

    def look(*, fails: bool) -> Evaluated:
        evaluated = fail_shared_positions(
            evaluate(source, pipeline, expects_failures=fails),
            pipeline,
            examples=judging.examples_limit,
        )
        decisions.append(judging.decide(evaluated.failures, []))
        rows = evaluated.passed(pipeline).select("position").collect()
        passed.append(sorted(row["position"] for row in rows))
        evaluated.release()
        return evaluated

    # In addition to the one that reads the result: evaluate and collect; check with the examples.
    assert jobs_of(spark, lambda: look(fails=True)) == 1 + 2
    # The same without expecting failures: count, and then collect.
    assert jobs_of(spark, lambda: look(fails=False)) == 1 + 3
    assert decisions[0] == decisions[1]
    assert passed[0] == passed[1]
    assert [(each.task, each.position) for each in decisions[0].examples] == [
        ("a", 0),
        ("a", 10),
        ("a", 20),
    ]
    assert sum(each.records for each in decisions[0].counted) == 5


def test_no_code_is_compiled_for_a_micro_batch_that_was_not_for_the_one_before(
    spark: SparkSession,
) -> None:
    """Generated code for 250,000 rows takes longer to compile than to run."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    compiled: list[int] = []
    for first in (0, 100, 200):
        rows = [("ab"[n % 2], first + n, "x" if n % 5 == 0 else "1") for n in range(40)]
        source, pipeline = numbers(spark, rows)
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        evaluated = fail_shared_positions(
            evaluate(source, pipeline, expects_failures=True), pipeline, examples=3
        )
        judge(pipeline, examples_limit=3).decide(evaluated.failures, [])
        evaluated.passed(pipeline).select("position").collect()
        evaluated.release()
        compiled.append(metrics.METRIC_COMPILATION_TIME().getCount() - before)
    assert compiled[-1] == 0


def test_too_many_failures_in_one_partition_are_not_collected(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition may send its share, since the total is not known before."""
    monkeypatch.setattr(failing, "DRIVER_LIMIT", 6)
    source, pipeline = numbers(spark, [("a", n, "x" if n < 4 else "1") for n in range(8)])
    one_partition = source.repartition(3, F.col("value")).localCheckpoint()

    def collect() -> None:
        found = evaluate(one_partition, pipeline, expects_failures=True)
        assert found.failed == len(found.failures.on_driver) == 4
        found.release()

    jobs = jobs_of(spark, collect)
    # Try to collect, count, collect.
    assert jobs == 3


def test_an_empty_micro_batch_when_failures_are_expected(spark: SparkSession) -> None:
    """Its local checkpoint has no partition."""
    empty = spark.createDataFrame([], SCHEMA).where("false")
    assert empty.rdd.getNumPartitions() == 0
    step = pipeline_of(empty).deserialize("n", F.col("value").cast("int"))

    evaluated = evaluate(empty, step.write(discard), expects_failures=True)
    assert evaluated.clean
    evaluated.release()


def test_all_records_that_share_the_position_of_a_failed_one_are_found(
    spark: SparkSession,
) -> None:
    rows = [("a", 0, "x"), *[("a", 0, "1")] * 40, ("a", 1, "x"), ("b", 0, "1")]
    source, pipeline = numbers(spark, rows)

    evaluated = evaluate(source, pipeline, expects_failures=True)
    assert evaluated.failed == 2
    evaluated = fail_shared_positions(evaluated, pipeline, examples=1)

    assert evaluated.failed == 42
    outcomes = evaluated.frame.groupBy(OUTCOME).count().collect()
    assert {row[OUTCOME]: row["count"] for row in outcomes} == {0: 41, 1: 1, None: 1}
    evaluated.release()
