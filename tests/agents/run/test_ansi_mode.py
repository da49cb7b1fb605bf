"""Native failures follow the session's ANSI mode, in each kind of run, as in plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import ResumeHow
from tests.agents.pipeline_bench import SCHEMA, Bench, read_sink, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

ANSI = "spark.sql.ansi.enabled"
#: Expressions over a text, each with a text that it takes and one that fails in ANSI mode.
KINDS = {
    "invalid cast": ("cast(text AS INT)", "1", "x"),
    "comparison with a number": ("text = 5", "5", "x"),
    "division by zero": ("1 / cast(text AS INT)", "2", "0"),
    "remainder by zero": ("1 % cast(text AS INT)", "2", "0"),
    "decimal overflow": ("cast(text AS DECIMAL(3, 0))", "123", "12345"),
    "integer overflow": ("cast(text AS INT) + 1", "1", "2147483647"),
    "absolute value": ("abs(cast(text AS INT))", "-1", "-2147483648"),
    "number too large": ("cast(cast(text AS DOUBLE) AS INT)", "1.5", "1e10"),
    "array index": ("array(1, 2)[cast(text AS INT)]", "1", "5"),
    "element index": ("elt(cast(text AS INT), 'a', 'b')", "1", "5"),
    "date": ("to_date(text, 'yyyy-MM-dd')", "2020-01-31", "x"),
    "time stamp": ("to_timestamp(text, 'yyyy-MM-dd')", "2020-01-31", "x"),
    "date of numbers": ("make_date(2020, cast(text AS INT), 1)", "12", "13"),
    "day of the week": ("next_day(DATE'2020-01-31', text)", "MON", "x"),
}
#: The kinds of each step: a Column is made when the pipeline is defined, or, in `transform`, by the
#: run's own threads, which is slow to isolate.
STEPS = {"columns": tuple(KINDS), "transform": ("invalid cast", "integer overflow", "date")}
#: Those of the records of a stream.
FEW = {**STEPS, "transform": ("integer overflow",)}
FAILED = "failed"


@pytest.fixture(
    params=[
        pytest.param(True, marks=pytest.mark.smoke),
        pytest.param(False, marks=pytest.mark.long),
    ],
    ids=["ansi", "lenient"],
)
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    before = str(spark.conf.get(ANSI))
    spark.conf.set(ANSI, request.param)
    yield request.param
    spark.conf.set(ANSI, before)


def results_of_spark(spark: SparkSession) -> dict[tuple[str, str], str | None]:
    """Return what plain Spark gives for each kind and text."""
    results = {}
    for kind, (expression, *texts) in KINDS.items():
        for text in texts:
            row = spark.createDataFrame([(text,)], "text STRING")
            try:
                [[result]] = row.select(F.expr(f"cast({expression} AS STRING)")).collect()
            except Exception:  # of Spark, or of py4j on Spark 3.5
                result = FAILED
            results[kind, text] = result
    return results


def result(step: str) -> Column:
    """Return the result of a record, if its value has this step, as text."""
    cases = [
        f"WHEN value LIKE '{step}/{kind}/%' THEN cast({expression} AS STRING)"
        for kind, (expression, _, _) in KINDS.items()
        if kind in STEPS[step]
    ]
    text = "substring_index(value, '/', -1)"
    return F.expr(f"CASE {' '.join(cases)} END".replace("text", text))


def pipeline_over(source: DataFrame, bench: Bench) -> Pipeline:
    """Return a pipeline that pauses task `held` at its first record, until `repaired` exists."""
    repaired = bench.folder / "repaired"

    def gate(row: dict[str, Any]) -> dict[str, Any]:
        if row["task"] == "held" and not repaired.exists():
            raise ValueError("not repaired")
        return row

    return (
        define("lines", source, task="task", position="position", value="value")
        .process("gate", gate, on_error=LogAndPause())
        .columns("columns", columns=result("columns"), on_error=LogAndContinue())
        .transform(
            "transform",
            lambda df: df.withColumn("transform", result("transform")),
            on_error=LogAndContinue(),
        )
        .write(sink_to(bench.folder / "out"))
    )


def results_of_run(bench: Bench, values: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of the sink by task and value; of a failed record, its step."""
    results = {
        (row["task"], values[row["position"]]): {row["stage"].removeprefix("process:"): FAILED}
        for row in bench.dead_letters()
    }
    for _, row in read_sink(bench.folder / "out"):
        assert results.setdefault((row["task"], row["value"]), row) is row, row
    return results


@pytest.mark.parametrize("source", [pytest.param("static", marks=pytest.mark.long), "stream"])
def test_a_record_fails_exactly_where_plain_spark_fails(
    bench: Bench, ansi: bool, source: str
) -> None:
    expected = results_of_spark(bench.spark)
    assert {kind for (kind, _), value in expected.items() if value == FAILED} == (
        set(KINDS) if ansi else set()
    )
    steps = FEW if source == "stream" else STEPS
    values = [
        f"{step}/{kind}/{text}" for step in steps for kind, text in expected if kind in steps[step]
    ]
    bench.add(*[(task, n, each) for task in ("free", "held") for n, each in enumerate(values)])
    frame = bench.spark.read.schema(SCHEMA).json(str(bench.folder / "in"))
    thread = bench.start(pipeline_over(bench.source() if source == "stream" else frame, bench))
    wait_until(lambda: bool(thread.paused_tasks()), what="the task is PAUSED")
    (bench.folder / "repaired").touch()
    assert thread.apply(TaskCommand("held", how=ResumeHow.RETRY)).applied
    wait_until(lambda: not any(state.held for state in thread.tasks()), what="nothing is held")
    bench.stop()

    results = results_of_run(bench, values)
    assert len(results) == 2 * len(values)
    for task in ("free", "held"):
        for value in values:
            step, kind, text = value.split("/")
            assert results[task, value].get(step) == expected[kind, text], (task, value)
