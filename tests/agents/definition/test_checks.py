"""A definition is checked step by step; an invalid one is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.jvm.versions import SparkRefused, require_supported
from arrester.domain.errors import InvalidValue
from tests.agents.batch.static_batches import discard, lines, pipeline_of

pytestmark = pytest.mark.spark

Row = dict[str, Any]


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
    # Spark resolves names without case.
    for name in ("__arrester_row", "__Arrester_Row"):
        with pytest.raises(InvalidValue, match="columns that do not begin with __arrester_"):
            define("lines", source.withColumn(name, F.lit(1)), position="position")
    with pytest.raises(InvalidValue, match=r"'airport' is not a column of .*: .*UNRESOLVED"):
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


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("make_interval(1)", "interval"),
        ("array(named_struct('a', make_interval(1)))", "interval"),
        ("map('a', make_interval(1))", "interval"),
        ("array(struct())", "struct<>"),
        ("named_struct('a', 1, 'A', 2)", "struct<a:int,A:int>"),
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
