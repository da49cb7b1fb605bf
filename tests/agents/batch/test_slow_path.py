"""Steps over a static micro-batch: all failed records are found, and no others."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch import record_columns
from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.record_columns import MARK
from arrester.agents.batch.slow_path import evaluate
from arrester.agents.failures import failure_set as failing
from arrester.agents.failures.native_diagnosis import Received
from arrester.agents.spark.ship_worker_code import ship, shipped
from arrester.agents.worker.columns import DECIDED, ENTRY, OUTCOME, POSITION, TASK
from tests.agents.batch.static_batches import (
    by_expression,
    discard,
    failures,
    judge,
    lines,
    pipeline_of,
)
from tests.agents.pipeline_bench import SCHEMA

pytestmark = pytest.mark.spark


def test_guards_that_share_a_subexpression_fail_record_by_record(spark: SparkSession) -> None:
    """With a bare TryEval, Spark hoists the shared cast out of the try, and the job fails."""
    source = lines(spark, "1", "x", "3")
    number = F.col("value").cast("int")
    pipeline = (
        pipeline_of(source)
        .deserialize("one", number)
        .deserialize("two", number + 1)
        .deserialize("three", F.struct(number.alias("p"), (number * number).alias("q")))
        .write(discard)
    )

    assert set(failures(source, pipeline)) == {1}
    evaluated = evaluate(source, pipeline)
    passed = evaluated.passed(pipeline).orderBy("position").collect()
    assert [(row.one, row.two, row.three.q) for row in passed] == [(1, 2, 1), (3, 4, 9)]


def test_a_later_step_may_use_an_earlier_one_and_its_failure_is_explained(
    spark: SparkSession,
) -> None:
    source = lines(spark, "8", "0", "x")
    pipeline = (
        pipeline_of(source)
        .deserialize("number", F.col("value").cast("int"))
        .deserialize("share", F.lit(10) / F.col("number"))
        .write(discard)
    )

    failed = failures(source, pipeline)

    assert {n: each.problem.condition for n, each in failed.items()} == {
        1: "DIVIDE_BY_ZERO",
        2: "CAST_INVALID_INPUT",
    }
    assert failed[2].problem.exception_class == "org.apache.spark.SparkNumberFormatException"
    assert "DivideByZero" in str(failed[1].problem.stack) or failed[1].problem.stack


def test_a_failed_record_has_the_columns_that_native_steps_made_of_it(spark: SparkSession) -> None:
    def check(row: dict[str, object]) -> None:
        raise ValueError

    source = lines(spark, "8", "0", "x")
    pipeline = (
        pipeline_of(source)
        .deserialize("number", F.col("value").cast("int"))
        .columns("shared", share=F.lit(10) / F.col("number"), value=F.concat("value", "value"))
        .process("check", check)
        .write(discard)
    )
    assert {at: each.received for at, each in failures(source, pipeline).items()} == {
        0: Received({"number": 8, "share": 1.25, "value": "88"}, frozenset({"value", "number"})),
        1: Received({"number": 0}, frozenset({"value"})),
        2: None,
    }


def test_a_received_column_has_the_names_of_schemas_and_the_value_of_the_executor(
    spark: SparkSession,
) -> None:
    source = lines(spark, "8")
    pipeline = (
        pipeline_of(source)
        .columns("times", at=F.current_timestamp(), dice=F.rand(), Text=F.col("VALUE"))
        .columns("again", text=F.upper("tExT"), later=F.col("at") + F.expr("INTERVAL 1 DAY"))
        .columns("fails", fails=F.raise_error("value"))
        .write(discard)
    )
    [failed] = failures(source, pipeline).values()
    assert failed.received is not None
    assert failed.received.columns == {"text": "8"}
    assert failed.received.read == {"value", "Text", "at"}


def test_columns_that_python_cannot_have_or_python_steps_made_are_not_evaluated_again(
    spark: SparkSession,
) -> None:
    source = lines(spark, "8")
    late = F.expr("date'9999-12-31' + CAST(value AS INT)")
    of_python = pipeline_of(source).process("same", lambda row: row)
    for builder in (pipeline_of(source).columns("late", late=late), of_python):
        pipeline = builder.columns("fails", fails=F.raise_error("value")).write(discard)
        [failed] = failures(source, pipeline).values()
        assert failed.number == 2 and failed.received is None


def test_from_csv_fails_on_values_that_it_would_turn_into_null(spark: SparkSession) -> None:
    failed = by_expression(
        spark, F.from_csv("value", "x INT, y INT"), "1,2", "NA,3", "1", "4,5", ""
    )

    assert set(failed) == {1, 2, 4}
    assert 'For input string: "NA"' in failed[1].problem.message


def test_from_json_fails_on_invalid_input_anywhere_in_an_expression(spark: SparkSession) -> None:
    expression = F.upper(F.from_json("value", "x STRING")["x"])
    texts = ['{"x": "a"}', '{"x":', "nope", "[]"]
    assert set(by_expression(spark, expression, *texts)) == {1, 2, 3}
    in_sql = F.expr("from_json(value, 'x STRING').x")
    assert set(by_expression(spark, in_sql, *texts)) == {1, 2, 3}


def test_records_of_blocked_tasks_are_held_without_evaluation(spark: SparkSession) -> None:
    source = lines(spark, "x", "1")
    pipeline = pipeline_of(source).deserialize("n", F.col("value").cast("int")).write(discard)

    evaluated = evaluate(source, pipeline, blocked=["a", None])

    assert (evaluated.failed, evaluated.held) == (0, 2)
    assert evaluated.frame.where(F.col(OUTCOME).isNull()).isEmpty()

    nobodys = source.withColumn("task", F.lit(None).cast("string"))
    assert evaluate(nobodys, pipeline, blocked=[None]).held == 2


@pytest.mark.parametrize("broadcast_up_to", [0, 200_000])
def test_any_number_of_decision_marks_give_outcomes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, broadcast_up_to: int
) -> None:
    monkeypatch.setattr(record_columns, "BROADCAST_RECORDS", broadcast_up_to)
    source = lines(spark, "x", "1", "2")
    pipeline = pipeline_of(source).deserialize("n", F.col("value").cast("int")).write(discard)
    schema = f"{TASK} STRING, {ENTRY} INT, {POSITION} LONG, {MARK} INT"
    marks = spark.createDataFrame([("a", 0, 0, DECIDED), ("b", 0, 1, DECIDED)], schema)

    evaluated = evaluate(source, pipeline, marks=marks)

    assert evaluated.failed == 0
    assert {row.n for row in evaluated.passed(pipeline).collect()} == {1, 2}


@pytest.mark.parametrize(("few", "fails"), [(0, False), (20_000, False), (20_000, True)])
def test_many_failures_have_the_same_decision_as_few(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: int, fails: bool
) -> None:
    """Few are collected on the driver, many are aggregated in Spark."""
    monkeypatch.setattr(failing, "DRIVER_LIMIT", few)
    rows: list[tuple[str | None, int, str]] = [
        ("a'\\`ü", n, "x" if n % 2 else "1") for n in range(-10, 10)
    ]
    rows += [("b", 7, "x"), ("b", 7, "2"), (None, 3, "x"), (None, 4, "4")]
    source = spark.createDataFrame(rows, SCHEMA).repartition(3)
    pipeline = pipeline_of(source).deserialize("n", F.col("value").cast("int")).write(discard)

    evaluated = fail_shared_positions(
        evaluate(source, pipeline, expects_failures=fails), pipeline, examples=3
    )
    decision = judge(pipeline, examples_limit=3).decide(evaluated.failures, [])

    assert evaluated.failed == 13
    passed = [row.value for row in evaluated.passed(pipeline).collect()]
    assert sorted(passed) == ["1"] * 10 + ["4"]
    native = [each for each in decision.examples if each.number == 1]
    shared = [each for each in decision.examples if each.number == 0]
    assert [(each.task, each.position) for each in native] == [
        (None, 3),
        ("a'\\`ü", -9),
        ("a'\\`ü", -7),
    ]
    assert all("cannot be cast" in each.problem.message for each in native)
    assert all(each.row["value"] == "x" and each.value == "x" for each in native)
    assert {each.row["value"] for each in shared} == {"x", "2"}
    assert {each.problem.exception_class for each in shared} == {"PositionNotUnique"}
    assert [(each.task, each.records, each.first, each.last) for each in decision.counted] == [
        ("a'\\`ü", 8, -5, 9)
    ]


def test_keys_are_bounded_as_the_domain_bounds_them(spark: SparkSession) -> None:
    from arrester.agents.batch.record_columns import task_key
    from arrester.domain.identity.names import bounded_key

    keys = ["", "JFK", "a/../b", "🛫" * 128, "🛫" * 129, "x" * 10_000]
    source = spark.createDataFrame([(key, 1, "") for key in keys], SCHEMA)
    pipeline = pipeline_of(source).write(discard)

    row_keys = [row[0] for row in source.select(task_key(pipeline.task)).collect()]

    assert row_keys == [bounded_key(key) for key in keys]
    assert source.selectExpr("NULL as task").select(task_key(pipeline.task)).first() == (None,)


def test_an_interval_of_months_is_shown_as_text(spark: SparkSession) -> None:
    source = lines(spark, "x").withColumn("gap", F.expr("interval '14' month"))
    failed = failures(
        source, pipeline_of(source).deserialize("n", F.col("value").cast("int")).write(discard)
    )
    # Spark 3.5 casts it to the number of months.
    assert failed[0].row.gap == (14 if spark.version.startswith("3.") else "INTERVAL '14' MONTH")


def test_executor_code_is_shipped_once_under_a_private_name(spark: SparkSession) -> None:
    ship(spark.sparkContext)
    before = list(spark.sparkContext._python_includes or ())
    ship(spark.sparkContext)
    assert spark.sparkContext._python_includes == before
    assert shipped("map_in_arrow").__name__ == "_arrester_worker.map_in_arrow"
