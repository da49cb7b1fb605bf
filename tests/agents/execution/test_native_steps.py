"""`.columns`, and steps in any order: an exception fails its record as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed
from tests.agents.batch.static_batches import discard, failures, lines, pipeline_of
from tests.agents.pipeline_bench import Bench, sink_to

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def passed(builder: PipelineBuilder) -> list[Any]:
    """Return the rows for the sink, by position."""
    pipeline = builder.write(discard)
    evaluated = evaluate(pipeline.source, pipeline)
    return evaluated.passed(pipeline).orderBy("position").collect()


def test_the_columns_of_a_step_pass_or_fail_together(spark: SparkSession) -> None:
    source = lines(spark, "6", "x", "0", "2147483647")
    number = F.col("value").cast("int")
    builder = pipeline_of(source).columns(
        "numbers", half=number / 2, next=number + 1, share=6 / number
    )

    failed = failures(source, builder.write(discard))

    conditions = {n: str(each.problem.condition).split(".")[0] for n, each in failed.items()}
    assert conditions == {
        1: "CAST_INVALID_INPUT",
        2: "DIVIDE_BY_ZERO",
        3: "ARITHMETIC_OVERFLOW",
    }
    assert {each.stage for each in failed.values()} == {"process:numbers"}
    assert [(row.half, row.next, row.share) for row in passed(builder)] == [(3.0, 7, 1.0)]
    assert list(builder.write(discard).columns) == [*source.columns, "half", "next", "share"]


@pytest.mark.parametrize("name", ["csv", "json", "xml"])
def test_a_text_that_a_parser_refuses_by_an_internal_error_fails_its_record(
    spark: SparkSession, name: str
) -> None:
    if not hasattr(F, f"from_{name}"):
        pytest.skip("this version of Spark has no such parser")
    text = {"csv": "{}", "json": '{{"n":"{}"}}', "xml": "<r><n>{}</n></r>"}[name]
    source = lines(spark, *map(text.format, ("2026-01-02T00:00:00", "2026-01-02T00:00:00Z")))
    parsed = F.expr(f"from_{name}(value, 'n TIMESTAMP_NTZ')")

    failed = failures(source, pipeline_of(source).deserialize("parsed", parsed).write(discard))

    assert list(failed) == [1]
    assert str(failed[1].problem.condition).startswith("MALFORMED_RECORD_IN_PARSING")


def test_expressions_read_the_columns_before_the_step_and_may_replace_them(
    spark: SparkSession,
) -> None:
    builder = (
        pipeline_of(lines(spark, "1", "x", "3"))
        .columns("first", value=F.col("value").cast("int"), kept=F.col("value"))
        .columns("second", value=F.col("value") + 1, before=F.col("value"))
    )

    rows = passed(builder)

    assert [(row.value, row.kept, row.before) for row in rows] == [(2, "1", 1), (4, "3", 3)]


def test_a_filter_above_a_guard_evaluates_nothing_outside_of_it(spark: SparkSession) -> None:
    """A filter on a bare TryEval is pushed through the project and evaluated a second time."""
    builder = pipeline_of(lines(spark, "1", "x", "3")).columns("n", n=F.col("value").cast("int"))
    pipeline = builder.write(discard)
    evaluated = evaluate(pipeline.source, pipeline)

    above = evaluated.passed(pipeline).where("n > 1")

    assert [row.n for row in above.collect()] == [3]
    assert evaluated.failed == 1


@pytest.mark.parametrize("kind", ["udf", "registered", "sum", "none", "internal", "lenient"])
def test_expressions_that_columns_cannot_hold_are_refused_at_definition(
    spark: SparkSession, kind: str
) -> None:
    upper = F.udf(lambda text: text, useArrow=False)
    spark.udf.register("registered_upper", upper)
    columns: dict[str, dict[str, Any]] = {
        "udf": {"fine": F.col("value"), "bad": F.length(upper("value"))},
        "registered": {"bad": F.expr("length(registered_upper(value))")},
        "sum": {"bad": F.sum("position")},
        "none": {},
        "internal": {"__arrester_task": F.col("value")},
        "lenient": {"bad": F.from_json("value", "x INT", {"mode": "PERMISSIVE"})},
    }
    with pytest.raises((InvalidValue, PipelineInvalid)) as caught:
        pipeline_of(lines(spark)).columns("step", **columns[kind])

    wanted = {
        "udf": "columns 'step': bad: ",
        "registered": "use .process(name, fn)",
        "none": "no column is given",
        "lenient": "mode of from_json",
    }
    assert wanted.get(kind, "") in str(caught.value)


@pytest.mark.smoke
def test_native_and_python_steps_in_any_order(spark: SparkSession) -> None:
    """A failure of a native step after a Python step is explained from the step's input."""

    def doubled(row: Row) -> Row:
        if row["n"] == 7:
            raise ValueError("seven")
        return {**row, "n": row["n"] * 2, "value": f"{row['value']}0"}

    source = lines(spark, "1", "x", "7", "5", "2")
    builder = (
        pipeline_of(source)
        .deserialize("n", F.col("value").cast("int"))
        .process("doubled", doubled)
        .columns("shares", share=F.lit(20) / (F.col("n") - 10))
        .deserialize("text", F.from_csv("value", "x INT"))
        .process("last", lambda row: {**row, "share": -row["share"]})
    )

    failed = failures(source, builder.write(discard))

    assert {n: (each.stage, each.problem.exception_class) for n, each in failed.items()} == {
        1: ("deserialize", "org.apache.spark.SparkNumberFormatException"),
        2: ("process:doubled", "ValueError"),
        3: ("process:shares", "org.apache.spark.SparkArithmeticException"),
    }
    assert failed[3].problem.condition == "DIVIDE_BY_ZERO"
    assert failed[3].row.value == "5"
    assert [(row.n, row.share, row.text.x) for row in passed(builder)] == [
        (2, 2.5, 10),
        (4, 20 / 6, 20),
    ]


def test_the_steps_after_a_failure_are_not_run(spark: SparkSession) -> None:
    seen = spark.sparkContext.accumulator(0)

    def count(row: Row) -> Row:
        seen.add(1)
        return row

    source = lines(spark, "1", "x", "0", "4")
    builder = (
        pipeline_of(source)
        .columns("first", n=F.col("value").cast("int"))
        .columns("second", share=1 / F.col("n"))
        .process("count", count)
    )
    passed(builder)

    assert seen.value == 2


def test_a_record_that_a_python_step_split_fails_as_a_whole(bench: Bench) -> None:
    def split(row: Row) -> Any:
        return ({**row, "value": each} for each in row["value"].split())

    def check(row: Row) -> Any:
        if row["n"] == 13:
            raise ValueError("thirteen")
        return [row, row] if row["n"] == 2 else row

    bench.add(("a", 0, "1 2"), ("a", 1, "3 x 5 13"), ("a", 2, "6 13"), ("b", 3, "7"))
    bench.add(("a", 4, "8 8"), ("b", 5, "9 y"), ("b", 6, "10"))
    pipeline = (
        bench.define()
        .process("split", split)
        .columns("numbers", n=F.col("value").cast("int"), on_error=LogAndPause())
        .process("check", check, on_error=LogAndContinue())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()

    # No row of the second and third record of `a` is written; the second one pauses the task.
    assert sorted(bench.written()) == [("a", 0)] * 3 + [("b", 3)]
    held = {each.id.key: (each.position, each.held) for each in thread.paused_tasks()}
    assert held == {"a": (1, 3), "b": (5, 2)}
    failed = {each.position: each.failure for each in bench.outbox.of(RecordFailed)}
    assert {position: each.stage for position, each in failed.items()} == {
        1: "process:numbers",
        5: "process:numbers",
    }
    assert failed[1].condition == "CAST_INVALID_INPUT"
    assert bench.dead_letters() == []


def test_a_deserializer_that_spark_has_not_loaded_is_refused_with_its_reason(bench: Bench) -> None:
    protobuf = F.expr("from_protobuf(unbase64(value), 'M', '/no/such.desc')")
    # Spark 3.5 does not know this function.
    refusal = r"deserialize 'made': \[(PROTOBUF_|UNRESOLVED_ROUTINE)"
    with pytest.raises(PipelineInvalid, match=refusal):
        bench.define().deserialize("made", protobuf)
