"""A failed record changes no other record, also if Spark's expressions keep a state."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.ship_worker_code import ship
from arrester.agents.worker.columns import OUTCOME, POSITION, TASK
from tests.agents.batch.static_batches import discard, failures
from tests.agents.pipeline_bench import SCHEMA

pytestmark = pytest.mark.spark

MAP = "str_to_map(value, ',', '=')"


def in_order(spark: SparkSession, *values: str | None) -> DataFrame:
    """Return one partition with a record for each value; its position is its index."""
    rows = [("a", position, value) for position, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


def pipeline_of(source: DataFrame, **coordinates: Any) -> PipelineBuilder:
    ship(source.sparkSession.sparkContext)
    names = {"task": "task", "position": "position", "value": "value"} | coordinates
    return define("isolated", source, **names)


def results(
    source: DataFrame, builder: PipelineBuilder, column: str = "made"
) -> tuple[dict[str, Any], dict[int, FailedRecord]]:
    """Return a column of the passed records, by their value, and the failed records."""
    pipeline = builder.write(discard)
    evaluated = evaluate(source, pipeline)
    passed = {row.value: row[column] for row in evaluated.passed(pipeline).collect()}
    evaluated.release()
    return passed, failures(source, pipeline)


@pytest.mark.parametrize(
    ("expression", "values", "right"),
    [
        pytest.param(
            MAP,
            ("a=1,a=2", "b=5", "c=1,c=2", "c=9", "d=7"),
            {"b=5": {"b": "5"}, "c=9": {"c": "9"}, "d=7": {"d": "7"}},
            id="str_to_map",
            marks=pytest.mark.smoke,
        ),
        pytest.param(
            "map('id', 'x', value, 'y')",
            ("b", "id", "c", None, "d"),
            {name: {"id": "x", name: "y"} for name in ("b", "c", "d")},
            id="create_map",
        ),
        pytest.param(
            "map(nullif(value, 'n'), map(nullif(value, 'inner'), 'x'))",
            ("a", "inner", "b", "n", "b"),
            {name: {name: {name: "x"}} for name in ("a", "b")},
            id="maps of one pair",
        ),
        pytest.param(
            "map_from_arrays(split(value, ','), split(value, ','))",
            ("a", "b,b", "c", "b", "b,c,b"),
            {"a": {"a": "a"}, "c": {"c": "c"}, "b": {"b": "b"}},
            id="map_from_arrays",
        ),
        pytest.param(
            "transform_keys(map('1', 'x', '2', 'y'), (k, v) -> if(value = 'bad', '1', k))",
            ("a", "bad", "c"),
            {name: {"1": "x", "2": "y"} for name in ("a", "c")},
            id="transform_keys",
        ),
        pytest.param(
            "map('1', nullif(value, 'x'), if(value between 'b' and 'c', '1', '2'), 'y')",
            ("a", "b", "x", "c", "d"),
            {
                "a": {"1": "a", "2": "y"},
                "x": {"1": None, "2": "y"},
                "d": {"1": "d", "2": "y"},
            },
            id="parts that are computed once",
        ),
    ],
)
def test_a_record_after_a_failed_one_has_its_own_values(
    spark: SparkSession, expression: str, values: tuple[str | None, ...], right: dict[str, Any]
) -> None:
    source = in_order(spark, *values)
    for builder in (
        pipeline_of(source).columns("maps", made=F.expr(expression)),
        pipeline_of(source).deserialize("made", F.expr(expression)),
    ):
        passed, failed = results(source, builder)

        assert passed == right
        assert [values[position] for position in sorted(failed)] == [
            value for value in values if value not in right
        ]
        assert {each.problem.exception_class for each in failed.values()} == {
            "org.apache.spark.SparkRuntimeException"
        }


def test_each_failure_has_its_own_cause(spark: SparkSession) -> None:
    source = in_order(spark, "a=1,a=2", "a=x", "b=1,b=2", "b=1", "b=x")
    number = F.expr(f"cast({MAP}[left(value, 1)] as int)")

    passed, failed = results(source, pipeline_of(source).columns("numbers", made=number))

    assert passed == {"b=1": 1}
    conditions = [failed[position].problem.condition for position in (0, 1, 2, 4)]
    assert conditions == ["DUPLICATED_MAP_KEY", "CAST_INVALID_INPUT"] * 2


def test_a_task_and_a_position_are_those_of_their_own_record(spark: SparkSession) -> None:
    source = in_order(spark, "k=1,k=1", "k=2", "j=1,j=2", "k=3")
    key = F.expr(f"{MAP}['k']")
    pipeline = pipeline_of(source, task=key, position=key.cast("bigint")).write(discard)

    evaluated = evaluate(source, pipeline)

    passed = evaluated.frame.where(F.col(OUTCOME).isNull())
    assert {tuple(row) for row in passed.select(TASK, POSITION, "value").collect()} == {
        ("2", 2, "k=2"),
        ("3", 3, "k=3"),
    }
    failed = evaluated.failures.load(pipeline, evaluated.failures.records)
    assert {each.row["value"]: each.problem.condition for each in failed} == {
        "k=1,k=1": "DUPLICATED_MAP_KEY",
        "j=1,j=2": "DUPLICATED_MAP_KEY",
    }
    evaluated.release()


def test_what_counts_rows_or_reads_the_time_continues_after_a_failure(spark: SparkSession) -> None:
    source = in_order(spark, "a", "id", "b", "id", "c")
    made = F.struct(
        F.create_map(F.lit("id"), F.lit("x"), F.col("value"), F.lit("y")).alias("map"),
        F.monotonically_increasing_id().alias("number"),
        F.rand(7).alias("random"),
        F.current_timestamp().alias("time"),
    )

    passed, _ = results(source, pipeline_of(source).columns("made", made=made))

    assert [passed[name].number for name in ("a", "b", "c")] == [0, 2, 4]
    assert len({row.random for row in passed.values()}) == 3
    assert len({row.time for row in passed.values()}) == 1


def test_a_constant_that_raises_fails_each_record(spark: SparkSession) -> None:
    source = in_order(spark, "a", "b")
    made = F.create_map(F.lit(1), F.lit(2), F.lit(1), F.lit(2))

    passed, failed = results(source, pipeline_of(source).columns("made", made=made))

    assert not passed
    assert set(failed) == {0, 1}


@pytest.mark.smoke
def test_a_function_in_java_keeps_nothing_and_its_error_is_one_of_its_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(Path(__file__).with_name("Accumulating.java").read_text())
    jar = tmp_path / "functions.jar"
    with ZipFile(jar, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(name.replace(".", "/") + ".class", bytes(code))
    spark.sql(f"ADD JAR '{jar}'")
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    function = jvm.java.lang.Class.forName("arrestertest.Accumulating", True, loader)
    session: Any = spark._jsparkSession
    string = session.parseDataType('"string"')
    session.udf().register("accumulating", function.newInstance(), string)
    source = in_order(spark, "a", "bad", "b", "bad", "c")
    builder = pipeline_of(source).columns(
        "called", on_error=LogAndContinue(), made=F.expr("accumulating(value)")
    )

    passed, failed = results(source, builder)

    assert passed == {name: name for name in ("a", "b", "c")}
    messages = {position: each.problem.message for position, each in failed.items()}
    assert set(messages) == {1, 3}
    assert all("bad text" in message for message in messages.values())
