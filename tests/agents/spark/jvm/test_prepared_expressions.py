"""Common subexpressions of one step: computed once, and guarded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.definition.steps import Columns
from arrester.agents.spark.jvm.plans.prepared_expressions import SHARED, PreparedExpressions
from tests.agents.batch.static_batches import discard, failures, lines, pipeline_of

pytestmark = pytest.mark.spark

Conditional = Callable[[Column, Column], Column]
#: Expressions that need no number for rows where the condition does not hold.
CONDITIONAL: dict[str, Conditional] = {
    "when": lambda condition, number: F.when(condition, number),
    "and": lambda condition, number: condition & (number > 0),
    "coalesce": lambda condition, number: F.coalesce("position", number),
}


def test_a_common_subexpression_that_raises_fails_its_record_only(spark: SparkSession) -> None:
    number = F.col("value").cast("int")
    source = lines(spark, "1", "x", "3", "y")
    builder = pipeline_of(source).columns("numbers", one=number + 1, other=number * 2, value=number)

    step = builder.steps[0]
    assert (
        isinstance(step, Columns) and step.prepared is not None and len(step.prepared.shared) == 1
    )
    failed = failures(source, builder.write(discard))
    assert sorted(failed) == [1, 3]
    assert {record.stage for record in failed.values()} == {"process:numbers"}
    assert "cannot be cast" in failed[1].problem.message


def evaluated_by(prepared: PreparedExpressions, frame: DataFrame) -> DataFrame:
    for columns in prepared.selections("values"):
        frame = frame.select(*columns)
    return frame


def test_fields_of_one_line_are_split_once(spark: SparkSession) -> None:
    fields = F.split("value", ",")
    source = lines(spark, "1,2", "3,x", "5,6")

    prepared = PreparedExpressions.of(
        source, {"a": fields[0].cast("int"), "b": fields[1].cast("int") + 1}
    )

    assert prepared is not None and len(prepared.shared) == 1
    rows = evaluated_by(prepared, source).orderBy("position").collect()
    assert [row["values"] and tuple(row["values"]) for row in rows] == [(1, 3), None, (5, 7)]


def test_two_steps_have_common_subexpressions_and_none_stays_in_the_result(
    spark: SparkSession,
) -> None:
    source = lines(spark, "1,2", "3,x", "5,6")
    fields, reversed_fields = F.split("value", ","), F.split(F.reverse("value"), ",")
    pipeline = (
        pipeline_of(source)
        .columns("forwards", a=fields[0].cast("int"), b=fields[1])
        .columns("backwards", c=reversed_fields[0].cast("int"), d=reversed_fields[1])
        .write(discard)
    )
    for step in pipeline.steps:
        assert isinstance(step, Columns) and step.prepared is not None and step.prepared.shared

    evaluated = evaluate(source, pipeline)

    assert (evaluated.failed, SHARED in evaluated.rows.columns) == (1, False)
    passed = evaluated.passed(pipeline).orderBy("position").collect()
    assert [(row.a, row.b, row.c, row.d) for row in passed] == [(1, "2", 2, "1"), (5, "6", 6, "5")]


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_an_unneeded_subexpression_raises_nothing(spark: SparkSession, kind: str) -> None:
    """The second row's number is invalid and not needed."""
    source = lines(spark, "1,2", "x,3")
    conditional = CONDITIONAL[kind]
    condition, number = F.col("position") == 0, F.split("value", ",")[0].cast("int")

    prepared = PreparedExpressions.of(
        source, {"a": conditional(condition, number), "b": conditional(condition, number + 1)}
    )

    assert prepared is not None
    rows = evaluated_by(prepared, source).collect()
    assert [row["values"] is not None for row in rows] == [True, True]
