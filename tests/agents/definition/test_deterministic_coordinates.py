"""Task and position are the same when a micro-batch is repeated, or the definition is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed
from tests.agents.pipeline_bench import Bench, Row, sink_to
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = pytest.mark.spark

PAGE = REPOSITORY / "docs" / "how-to" / "positions-for-files.md"
Change = Callable[[DataFrame], DataFrame]


def numbered(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("'a' AS task", "id AS position", "'x' AS value")


REFUSED: dict[str, Callable[[], Column]] = {
    "rand": lambda: (F.rand() * 1000).cast("int"),
    "uuid": lambda: F.expr("length(uuid())"),
    "monotonically_increasing_id": F.monotonically_increasing_id,
    "SPARK_PARTITION_ID": F.spark_partition_id,
    "shuffle": lambda: F.expr("shuffle(array(1, 2))")[0],
}


@pytest.mark.parametrize(
    ("kind", "part"),
    [("position", each) for each in REFUSED]
    + [(each, "rand") for each in ("task", "key", "value")],
)
def test_a_non_deterministic_expression_is_refused(
    spark: SparkSession, kind: str, part: str
) -> None:
    columns: dict[str, Any] = {"task": "task", "position": "position"} | {kind: REFUSED[part]()}
    with pytest.raises(InvalidValue, match=rf"^{kind}: .*deterministic expression; {part}\("):
        define("lines", numbered(spark), **columns)


MADE_BY_THE_SOURCE: dict[str, Change] = {
    "a column": lambda frame: frame,
    "a renamed and filtered expression": lambda frame: (
        frame.where("position >= 0")
        .select("task", (F.col("position") + 1).alias("other"))
        .withColumnRenamed("other", "position")
        .alias("named")
    ),
    "one side of a union": lambda frame: numbered(frame.sparkSession).unionByName(frame),
    "one side of a join": lambda frame: (
        numbered(frame.sparkSession).select("task").distinct().join(frame, "task")
    ),
    "the order of a window": lambda frame: frame.withColumn(
        "position", F.row_number().over(Window.orderBy("position"))
    ),
}


@pytest.mark.parametrize("change", MADE_BY_THE_SOURCE)
def test_a_column_that_the_source_makes_non_deterministically_is_refused(
    spark: SparkSession, change: str
) -> None:
    frame = numbered(spark).withColumn("position", F.monotonically_increasing_id())
    with pytest.raises(InvalidValue) as caught:
        define("lines", MADE_BY_THE_SOURCE[change](frame), task="task", position="position")
    assert "; monotonically_increasing_id() has other values" in str(caught.value)
    assert "'Positions for files'" in str(caught.value)


def test_a_non_deterministic_udf_is_refused(spark: SparkSession) -> None:
    udf = F.udf(lambda number: number, "bigint")
    plain = numbered(spark).withColumn("position", udf("position"))
    define("lines", plain, position="position")
    marked = numbered(spark).withColumn("position", udf.asNondeterministic()("position"))
    with pytest.raises(InvalidValue, match="deterministic"):
        define("lines", marked, position="position")


def test_other_columns_of_the_source_may_be_non_deterministic(spark: SparkSession) -> None:
    source = numbered(spark).withColumn("id", F.expr("uuid()")).withColumn("at", F.current_date())
    define("lines", source, task="task", position="position", key="id", value="at")


def write_parquet(spark: SparkSession, folder: Path) -> None:
    rows = [("x",), ("bad",), ("y",), ("z",)]
    spark.createDataFrame(rows, "value STRING").coalesce(1).write.parquet(str(folder))


def write_lines(spark: SparkSession, folder: Path) -> None:
    folder.mkdir()
    (folder / "one.txt").write_text("x\r\nbad\n\ny\nz\n")


def write_binary(spark: SparkSession, folder: Path) -> None:
    folder.mkdir()
    (folder / "one").write_bytes(b"bad")
    (folder / "two").write_bytes(b"x")


#: By heading: what writes the files, and the positions of the rows that reach the sink.
RECIPES: dict[str, tuple[Callable[[SparkSession, Path], None], list[int], int, int]] = {
    "Parquet": (write_parquet, [0], 1, 3),
    "Lines of text, CSV and JSON": (write_lines, [0], 1, 3),
    "Binary files": (write_binary, [0], 0, 1),
}


@pytest.mark.parametrize("heading", RECIPES)
def test_a_recipe_gives_each_record_of_a_file_its_position_again(
    bench: Bench, heading: str
) -> None:
    write, written, paused_at, held = RECIPES[heading]
    write(bench.spark, bench.folder / "files")
    [code] = re.findall(rf"## {heading}\n.*?```python\n(.*?)```", PAGE.read_text(), re.S)
    given: dict[str, Any] = {"spark": bench.spark, "F": F, "data": str(bench.folder / "files")}
    exec(compile(code, str(PAGE), "exec"), given)

    def check(row: Row) -> Row:
        if row["value"] in ("bad", b"bad"):
            raise ValueError("bad")
        return {"task": row["file"], "position": row["position"]}

    sink, calls = sink_to(bench.folder / "out"), list[int]()

    def failing_once(df: DataFrame, number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise RuntimeError("not now")
        sink(df, number)

    pipeline = (
        define("lines", given["source"], task="file", position="position", value="value")
        .process("check", check, on_error=LogAndPause(), schema="task STRING, position BIGINT")
        .write(failing_once)
    )
    first = bench.start(pipeline)
    wait_until(lambda: not first.is_running)
    # The decision is durable, and the replay obeys it.
    instance = first._claimed.event_factory.instance
    again = bench.start(pipeline, instance=instance)
    bench._files = 1
    wait_until(lambda: bench.committed() >= 0)

    assert [position for _, position in bench.written()] == written
    [task] = again.paused_tasks()
    assert (task.position, task.held) == (paused_at, held)


def test_a_line_of_a_csv_file_with_another_header_fails(bench: Bench) -> None:
    folder = bench.folder / "files"
    folder.mkdir()
    (folder / "a.csv").write_text("id,amount\n1,7.5\n2,8.5\n")
    (folder / "b.csv").write_text("amount,id\n7.5,1\n")
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text().partition("## CSV with")[2], re.S)
    given: dict[str, Any] = {"spark": bench.spark, "F": F, "data": str(folder)}
    for code in codes[:2]:
        exec(compile(code, str(PAGE), "exec"), given)
    builder = define("lines", given["source"], task="file", position="position", value="value")
    pipeline = builder.deserialize("row", given["row"], on_error=LogAndContinue()).write(
        sink_to(bench.folder / "out")
    )
    bench.start(pipeline)
    wait_until(lambda: bench.committed() >= 0)
    rows = bench.spark.read.json(str(bench.folder / "out" / "*")).select("position", "row.*")
    assert sorted(map(tuple, rows.collect())) == [(1, 7.5, 1), (2, 8.5, 2)]
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, failed.failure.stage) == (1, "deserialize")
    assert "unknown header: amount,id" in failed.failure.message
