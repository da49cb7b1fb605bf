"""Steps over a static micro-batch: all failed records are found, and no others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from arrester.agents.batch import record_columns
from arrester.agents.batch.duplicate_positions import fail_shared_positions
from arrester.agents.batch.record_columns import MARK
from arrester.agents.batch.slow_path import evaluate
from arrester.agents.config import AgentConfig
from arrester.agents.decisions.handler_retries import HandlerRetries
from arrester.agents.decisions.judge import Decision, Judge
from arrester.agents.decisions.policies import stage_policies
from arrester.agents.decisions.rules import FailureRules
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline, PipelineInvalid
from arrester.agents.failures import failure_set as failing
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.failures.payload import Redaction
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.jvm.versions import SparkRefused, require_supported
from arrester.agents.spark.ship_worker_code import ship, shipped
from arrester.agents.worker.columns import DECIDED, ENTRY, OUTCOME, POSITION, TASK
from arrester.controlplane.domain.error_policy.policy import Policy
from arrester.controlplane.domain.errors import InvalidValue
from tests.agents.pipeline_bench import SCHEMA

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def discard(df: DataFrame, number: int) -> None:
    """Write nothing."""


def lines(spark: SparkSession, *values: str) -> DataFrame:
    rows = [("a", position, value) for position, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA).repartition(2)


def pipeline_of(source: DataFrame) -> PipelineBuilder:
    ship(source.sparkSession.sparkContext)
    return define("lines", source, task="task", position="position", value="value")


def failures(source: DataFrame, pipeline: Pipeline) -> dict[int, FailedRecord]:
    """Return the failed records by position."""
    evaluated = evaluate(source, pipeline)
    decision: Decision = judge(pipeline).decide(evaluated.failures, [])
    assert len(decision.examples) == evaluated.failed
    evaluated.release()
    return {each.position: each for each in decision.examples if each.position is not None}


def judge(pipeline: Pipeline, *, examples_limit: int = 100) -> Judge:
    config = AgentConfig.read(
        "tests",
        {
            "deserialization.exception.handler": LogAndContinue,
            "processing.exception.handler": LogAndContinue,
        },
    )
    stages = stage_policies(pipeline, config)
    rules = FailureRules(
        application="tests", pipeline=pipeline, stages=stages, clock=lambda: datetime.now(UTC)
    )
    return Judge(
        rules=rules,
        retries=HandlerRetries(rules=rules, policy=Policy(), wait=lambda wait_ms: None),
        examples_limit=examples_limit,
    )


def by_expression(spark: SparkSession, expression: Column, *values: str) -> dict[int, FailedRecord]:
    source = lines(spark, *values)
    return failures(source, pipeline_of(source).deserialize("parsed", expression).write(discard))


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


def test_an_explicit_lenient_mode_is_refused(spark: SparkSession) -> None:
    expression = F.from_csv("value", "x INT", {"Mode": "permissive"})
    with pytest.raises(InvalidValue, match="mode of from_csv: 'PERMISSIVE' is not allowed"):
        pipeline_of(lines(spark)).deserialize("parsed", expression)


@pytest.mark.parametrize("kind", ["udf", "count", "explode", "unknown", "bound"])
def test_an_expression_that_a_guard_cannot_hold_is_refused_at_definition(
    spark: SparkSession, kind: str
) -> None:
    source = lines(spark)
    expressions: dict[str, Any] = {
        "udf": lambda: F.udf(lambda text: text, useArrow=False)("value"),
        "count": lambda: F.count("value"),
        "explode": lambda: F.explode(F.split("value", ",")),
        "unknown": lambda: F.col("no_such_column"),
        "bound": lambda: source["value"],
    }
    with pytest.raises((InvalidValue, PipelineInvalid)) as caught:
        pipeline_of(source).deserialize("parsed", expressions[kind]())
    wanted = {"udf": "use .process(name, fn)", "unknown": "no_such_column"}
    assert wanted.get(kind, "") in str(caught.value)


def by_function(spark: SparkSession, fn: Any, *values: str, schema: str | None = None) -> Any:
    source = lines(spark, *values)
    return failures(source, pipeline_of(source).process("step", fn, schema=schema).write(discard))


def test_a_float_for_a_long_is_a_failure_that_names_field_and_type(spark: SparkSession) -> None:
    def half(row: Row) -> Row:
        return {"n": 1.5 if row["value"] == "half" else 1}

    [failed] = by_function(spark, half, "half", "whole", schema="n BIGINT").values()

    assert failed.problem.exception_class == "WrongType"
    assert failed.problem.message == "field n is bigint; got float 1.5"
    assert str(failed.problem.frame).endswith("in half")


def test_a_float_that_would_become_infinite_is_a_failure(spark: SparkSession) -> None:
    """Arrow silently turns it into infinity in a FLOAT column."""

    def wide(row: Row) -> Row:
        return {"n": float(row["value"])}

    failed = by_function(spark, wide, "1e300", "1e3", "-inf", schema="n FLOAT")

    assert [failed[0].problem.message, len(failed)] == ["field n: 1e+300 does not fit float", 1]


def test_a_spark_row_instead_of_a_dict_is_refused_with_advice(spark: SparkSession) -> None:
    def typed(row: Row) -> Any:
        return SparkRow(**row)

    [failed] = by_function(spark, typed, "x").values()

    assert str(failed.problem.message).endswith(": row.asDict(recursive=True) is one")


@pytest.mark.parametrize(
    ("added", "schema", "message"),
    [
        ("interval '14' month", None, "column added has the type interval month, which no Python"),
        ("1", "n INTERVAL YEAR TO MONTH", "column n has the type interval year to month"),
        ("1", "n STRUCT<m: VARCHAR(3)>", r"varchar\(3\) is a table's: use STRING"),
    ],
)
def test_columns_that_no_python_step_can_have_are_refused_at_definition(
    spark: SparkSession, added: str, schema: str | None, message: str
) -> None:
    source = lines(spark).withColumn("added", F.expr(added))
    with pytest.raises((InvalidValue, PipelineInvalid), match=message):
        pipeline_of(source).process("step", lambda row: row, schema=schema)


def test_any_exception_of_a_step_fails_its_record_only(spark: SparkSession) -> None:
    def raising(row: Row) -> Any:
        class Unpicklable(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

            def __reduce__(self) -> Any:
                raise TypeError("never")

        def deeper(n: int) -> int:
            return deeper(n + 1) + 1

        match row["value"]:
            case "exit":
                raise SystemExit(1)
            case "interrupt":
                raise KeyboardInterrupt
            case "close":
                raise GeneratorExit
            case "unpicklable":
                raise Unpicklable
            case "deep":
                deeper(0)
            case "text":
                return "text"
            case "list":
                return [1]
            case "extra":
                return {**row, "extra": 1}
            case "less":
                del row["task"]
            case "generator":
                return ({**row, "position": 1 // n} for n in (1, 0))
        return row

    kinds = ["exit", "ok", "interrupt", "close", "unpicklable", "deep", "text", "list", "extra"]
    failed = by_function(spark, raising, *kinds, "less", "generator", "ok")

    assert {position: each.problem.exception_class for position, each in failed.items()} == {
        0: "SystemExit",
        2: "KeyboardInterrupt",
        3: "GeneratorExit",
        4: failed[4].problem.exception_class,
        5: "RecursionError",
        6: "WrongType",
        7: "WrongType",
        8: "WrongType",
        9: "WrongType",
        10: "ZeroDivisionError",
    }
    assert failed[4].problem.message == "(no text: its __str__ raised RuntimeError)"
    assert failed[8].problem.message == "field extra is not in the schema; add it by schema="
    assert failed[0].row.value == "exit"


def test_a_value_that_python_cannot_represent_fails_its_record(spark: SparkSession) -> None:
    """Latin-1 bytes as text, and times that Python does not have."""
    source = lines(spark, "fine", "latin", "date", "time", "array", "held").selectExpr(
        "*",
        "if(value IN ('latin', 'held'), cast(x'C4' as string), 'text') as text",
        "if(value = 'date', date'9999-12-31' + 1, date'2026-01-02') as d",
        "if(value = 'time', timestamp_micros(300000000000000000), now()) as t",
        "if(value = 'array', array(date'9999-12-31' + 2), array()) as ds",
    )
    pipeline = pipeline_of(source).process("step", lambda row: row).write(discard)

    failed = failures(source, pipeline)

    assert set(failed) == {1, 2, 3, 4, 5}
    assert {each.problem.exception_class for each in failed.values()} == {"Unreadable"}
    assert {each.stage for each in failed.values()} == {"process:step"}
    columns = {position: each.problem.message.split(" (")[0] for position, each in failed.items()}
    assert columns == {
        1: "column text",
        2: "column d",
        3: "column t",
        4: "column ds",
        5: "column text",
    }
    assert failed[1].row.text == "\ufffd"
    assert failed[2].row.d == "+10000-01-01"
    assert failed[4].row.ds == ["+10000-01-02"]
    Redaction().body(failed[3].row.asDict(), stack=None)
    evaluated = evaluate(source, pipeline)
    assert [row.value for row in evaluated.passed(pipeline).collect()] == ["fine"]


def test_records_that_are_not_evaluated_are_not_read(spark: SparkSession) -> None:
    source = lines(spark, "fine", "held").selectExpr(
        "value as task", "position", "if(value = 'held', cast(x'C4' as string), value) as value"
    )
    pipeline = pipeline_of(source).process("step", lambda row: row).write(discard)

    evaluated = evaluate(source, pipeline, blocked=["held"])

    assert (evaluated.failed, evaluated.held) == (0, 1)


def test_reported_texts_of_a_failure_are_valid_unicode(spark: SparkSession) -> None:
    def raising(row: Row) -> Any:
        class Shy:
            def __repr__(self) -> str:
                raise RuntimeError("no text")

        match row["value"]:
            case "raised":
                raise ValueError("half \udc80")
            case "pairs":
                return {"n": [1], "text": ""}
            case "shy":
                return {"n": Shy(), "text": ""}
            case "listed":
                return [Shy()]
            case "returned":
                return {"n": {}, "text": "\udc80"}
            case "field":
                return {"n": {}, "text": "", "\udc80": 1}
        return {"n": [("a", 1)], "text": "x"}

    kinds = ["raised", "pairs", "shy", "listed", "returned", "field", "fine"]
    failed = by_function(spark, raising, *kinds, schema="n MAP<STRING, INT>, text STRING")

    assert set(failed) == {0, 1, 2, 3, 4, 5}
    assert failed[0].problem.message == "half ?"
    assert "ValueError: half ?" in str(failed[0].problem.stack)
    assert failed[1].problem.message == "field n is map<string,int>, of pairs; got int 1"
    assert "its __repr__ raised RuntimeError" in failed[2].problem.message
    assert "its __repr__ raised RuntimeError" in failed[3].problem.message
    assert failed[4].problem.message.startswith("field text is string: ")
    assert {each.problem.exception_class for each in list(failed.values())[1:]} == {"WrongType"}


def test_values_of_all_types_pass_a_step_unchanged(spark: SparkSession) -> None:
    source = lines(spark, "1", "2").selectExpr(
        "*",
        "timestamp'2026-01-02 03:04:05.678901' as t",
        "timestamp_ntz'2026-01-02 03:04:05' as n",
        "date'2026-01-02' as d",
        "cast(value as decimal(10, 3)) as m",
        "array(1, null) as xs",
        "map('a', named_struct('b', 1.5d)) as ms",
        "cast(value as binary) as b",
        "cast(1.25 as float) as f",
    )
    pipeline = pipeline_of(source).process("same", lambda row: row).write(discard)

    evaluated = evaluate(source, pipeline)

    assert evaluated.failed == 0
    key = "position"
    assert evaluated.passed(pipeline).orderBy(key).collect() == source.orderBy(key).collect()


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
    from arrester.controlplane.domain.identity.names import bounded_key

    keys = ["", "JFK", "a/../b", "🛫" * 128, "🛫" * 129, "x" * 10_000]
    source = spark.createDataFrame([(key, 1, "") for key in keys], SCHEMA)
    pipeline = pipeline_of(source).write(discard)

    row_keys = [row[0] for row in source.select(task_key(pipeline.task)).collect()]

    assert row_keys == [bounded_key(key) for key in keys]
    assert source.selectExpr("NULL as task").select(task_key(pipeline.task)).first() == (None,)


def test_the_definition_is_checked_as_a_whole(spark: SparkSession) -> None:
    source = lines(spark)

    def step(row: Row) -> Row:
        return row

    with pytest.raises(InvalidValue, match="pipeline: 'No Name'"):
        define("No Name", source, position="position")
    with pytest.raises(InvalidValue, match="position: None is not allowed"):
        define("lines", source)
    with pytest.raises(InvalidValue, match="an integer column; this is string"):
        define("lines", source, position="value")
    with pytest.raises(InvalidValue, match="task: 'airport' is not allowed"):
        define("lines", source, task="airport", position="position")
    with pytest.raises(InvalidValue, match="an object with handle"):
        pipeline_of(source).process("step", step, on_error=LogAndContinue)  # type: ignore[arg-type]
    with pytest.raises(PipelineInvalid, match="'step' is there twice"):
        pipeline_of(source).process("step", step).process("step", step)
    with pytest.raises(PipelineInvalid, match="process 'step': schema"):
        pipeline_of(source).process("step", step, schema="no such type!")
    with pytest.raises(InvalidValue, match="names differ"):
        pipeline_of(source).process("step", step, schema="a INT, A INT")
    with pytest.raises(InvalidValue, match="names differ"):
        define("lines", source.selectExpr("*", "1 as TASK"), position="position")
    with pytest.raises(InvalidValue, match="a function of a DataFrame and a number"):
        pipeline_of(source).write("parquet")  # type: ignore[arg-type]
    with pytest.raises(PipelineInvalid, match=r"not made by agent\.pipeline"):
        pipeline_of(source).write(discard).run("/nowhere")


def test_an_interval_of_months_is_shown_as_text(spark: SparkSession) -> None:
    source = lines(spark, "x").withColumn("gap", F.expr("interval '14' month"))
    failed = failures(
        source, pipeline_of(source).deserialize("n", F.col("value").cast("int")).write(discard)
    )
    assert failed[0].row.gap == "INTERVAL '14' MONTH"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("make_interval(1)", "interval"),
        ("array(named_struct('a', make_interval(1)))", "interval"),
        ("map('a', make_interval(1))", "interval"),
        ("array(struct())", "struct<>"),
        ("time'12:00:00'", r"time\(6\)"),
    ],
)
def test_a_column_that_held_records_cannot_have_is_refused(
    spark: SparkSession, column: str, kind: str
) -> None:
    source = lines(spark, "x").withColumn("gap", F.expr(column))
    with pytest.raises(InvalidValue, match=f"source: 'gap'.*type {kind}: drop it, or cast it"):
        pipeline_of(source)


def test_kafka_sources_provide_task_and_position(spark: SparkSession) -> None:
    source = lines(spark).selectExpr("value", "'t' as topic", "1 as partition", "2L as offset")
    begun = define("lines", source)
    assert "partition" in str(begun.task)
    assert "offset" in str(begun.position)


def test_spark_connect_is_refused_in_one_line() -> None:
    class Connect:
        """A session without access to the JVM."""

    with pytest.raises(SparkRefused, match="classic Spark session") as caught:
        require_supported(Connect())  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_executor_code_is_shipped_once_under_a_private_name(spark: SparkSession) -> None:
    ship(spark.sparkContext)
    before = list(spark.sparkContext._python_includes or ())
    ship(spark.sparkContext)
    assert spark.sparkContext._python_includes == before
    assert shipped("map_in_arrow").__name__ == "_arrester_worker.map_in_arrow"
