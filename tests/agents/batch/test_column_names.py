"""Columns of any name work as coordinates, in each kind of step and sink, held and skipped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.frames.column_names import quoted
from arrester.domain.error_policy.policy import Policy, Response
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed, ResumeHow
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
#: Task, position, value, a field of the value, the columns of the native steps.
ROLES = 6
NAMES = (
    "dgraph.type",
    "a b",
    "tick`s``",
    "100% (net)",
    "größe 名",
    "select",
    "x" * 200,
    "*",
    "a.*",
    ",;{}=\t\\",
    "\"quotes\" and 'more'",
    "$.path[0]",
)
names = st.text(
    st.sampled_from(" .`%()*[]{}$\"'\\,;=/:#@!?<>\n\t0_äßπ名aZ"), min_size=1, max_size=20
)
drawn = st.lists(
    st.sampled_from(NAMES) | names, min_size=ROLES, max_size=ROLES, unique_by=str.lower
)
#: Task, position and value of each record.
RECORDS = [("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "skip"), ("b", 1, "x")]


class Scene:
    """A static source with the drawn names, and what each sink is to get from it."""

    def __init__(self, bench: Bench, drawn: Sequence[str]) -> None:
        self.bench = bench
        self.drawn = tuple(drawn)
        self.repaired = bench.folder / "repaired"
        self.log = bench.folder / "rows"
        task, position, value, field, *_ = drawn
        schema = T.StructType(
            [
                T.StructField(task, T.StringType()),
                T.StructField(position, T.LongType()),
                T.StructField(value, T.StructType([T.StructField(field, T.StringType())])),
            ]
        )
        # From files, as no expression of a literal frame reaches a worker by name.
        folder = str(bench.folder / "in")
        rows = [(key, at, (text,)) for key, at, text in RECORDS]
        bench.spark.createDataFrame(rows, schema).coalesce(1).write.json(folder)
        self.source = bench.spark.read.schema(schema).json(folder)

    def expected(self, *places: tuple[str, int]) -> list[Row]:
        """Return the rows of some records as a sink gets them."""
        task, position, value, field, parsed, upper = self.drawn
        return [
            {
                task: key,
                position: at,
                value: {field: text},
                parsed: text,
                upper: text.upper(),
            }
            for key, at, text in RECORDS
            if (key, at) in places
        ]

    def steps(self) -> PipelineBuilder:
        """Return a builder with native steps and a Python step that pauses and skips."""
        task, position, value, field, parsed, upper = self.drawn
        repaired = str(self.repaired)

        def check(row: Row) -> Row:
            if row[parsed] == "skip":
                raise KeyError("skip")
            if row[parsed] == "bad" and not os.path.exists(repaired):
                raise ValueError("bad")
            return row

        uppercase: dict[str, Any] = {upper: F.upper(quoted(parsed))}
        return (
            define("named", self.source, task=task, position=position, key=task, value=value)
            .deserialize(parsed, quoted(value)[field])
            .columns("native", **uppercase)
            .process("check", check, on={KeyError: Response.CONTINUE}, on_error=LogAndPause())
        )

    def rows(self) -> list[Row]:
        """Return the rows that were appended, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def append(self, df: DataFrame, number: int) -> None:
        with self.log.open("a") as log:
            for row in df.collect():
                log.write(json.dumps(row.asDict(recursive=True)) + "\n")

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: (row[self.drawn[0]], row[self.drawn[1]]))

    def pause_and_resume(self, pipeline: Pipeline, written: Callable[[], list[Row]]) -> None:
        """Run it: `a` pauses at 1 and is resumed, `b` at 0 becomes a dead letter."""
        bench, (task, position, value, field, *_) = self.bench, self.drawn
        thread = bench.start(pipeline)
        wait_until(lambda: thread.is_idle or bool(bench.ends), what="rest")
        assert not bench.ends
        assert self.sorted(written()) == self.expected(("a", 0), ("b", 1))
        [paused] = thread.paused_tasks()
        assert (paused.id.key, paused.position, paused.held) == ("a", 1, 2)
        [dead_letter] = bench.dead_letters()
        skipped = {task: "b", position: 0, value: {field: "skip"}}
        assert json.loads(dead_letter["row"]) == skipped
        assert (dead_letter["task"], dead_letter["position"]) == ("b", 0)
        bodies = [event.body for event in bench.outbox.events if event.body is not None]
        assert skipped in [body.record for body in bodies]
        assert {each.key for each in bench.outbox.of(RecordFailed)} == {"a", "b"}

        self.repaired.touch()
        assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
        wait_until(lambda: bool(bench.ends), what="end")
        assert bench.ends[0].finished
        assert self.sorted(written()) == self.expected(("a", 0), ("a", 1), ("a", 2), ("b", 1))


def write(scene: Scene) -> None:
    def reordered(df: DataFrame) -> DataFrame:
        return df.select(*[quoted(name) for name in df.columns]).where(F.lit(True))

    pipeline = scene.steps().transform("same", reordered).write(scene.append)
    scene.pause_and_resume(pipeline, scene.rows)


def step_after_transform(scene: Scene) -> None:
    def same(df: DataFrame) -> DataFrame:
        return df.select(*[quoted(name) for name in df.columns])

    builder = scene.steps().transform("same", same).process("last", lambda row: row)
    pipeline = builder.write(scene.append, atomic=True, probe=lambda df: df.collect())
    scene.pause_and_resume(pipeline, scene.rows)


def write_files(scene: Scene) -> None:
    bench, out = scene.bench, str(scene.bench.folder / "out")
    task = scene.drawn[0]
    pipeline = scene.steps().write_files(out, partition_by=[task], number_column="number of batch")

    def written() -> list[Row]:
        rows = bench.spark.read.parquet(out).drop("number of batch").collect()
        return [{name: row.asDict(recursive=True)[name] for name in row.asDict()} for row in rows]

    scene.pause_and_resume(pipeline, written)


def produce(scene: Scene) -> None:
    log = str(scene.log)

    def send(row: Row) -> None:
        with open(log, "a") as lines:
            lines.write(json.dumps(row) + "\n")

    scene.pause_and_resume(scene.steps().produce(send), scene.rows)


SCENARIOS = [write, step_after_transform, write_files, produce]


#: Each name in the suite; all names with each sink in `make test-long`.
CASES = [(step_after_transform, ROLES), (produce, 0)]


@pytest.mark.parametrize(
    ("scenario", "first"),
    [
        pytest.param(*case, marks=[] if case in CASES else [pytest.mark.long])
        for case in product(SCENARIOS, (0, ROLES))
    ],
)
def test_columns_with_special_names_pass_each_step_and_sink(
    spark: SparkSession, tmp_path: Path, scenario: Callable[[Scene], None], first: int
) -> None:
    bench = Bench(spark, tmp_path)
    scenario(Scene(bench, NAMES[first : first + ROLES]))
    bench.close()


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
@given(drawn=drawn)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_columns_of_any_name_pass_each_step_and_sink(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    scenario: Callable[[Scene], None],
    drawn: list[str],
) -> None:
    bench = Bench(spark, tmp_path_factory.mktemp("names"))
    try:
        scenario(Scene(bench, drawn))
    finally:
        bench.close()


def test_healthy_rows_with_special_names_take_the_fast_path(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(Bench(spark, tmp_path), NAMES[:ROLES])
    pipeline = scene.steps().write(scene.append, atomic=True)
    fast = FastPath.of(pipeline, Policy())
    assert fast is not None
    healthy = scene.source.where(quoted(scene.drawn[2])[scene.drawn[3]] == "x")
    scene.append(fast.frame(healthy), 1)
    assert scene.sorted(scene.rows()) == scene.expected(("a", 0), ("a", 2), ("b", 1))


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("a.b", "exact"),
        ("`a.b`", "exact"),
        ("a.c", "field"),
        ("`a`.`b`", "other field"),
    ],
)
def test_a_text_is_the_column_of_that_name_or_else_what_spark_resolves(
    spark: SparkSession, text: str, task: str
) -> None:
    row = T.StructType(
        [
            T.StructField("a", T.StructType().add("b", "string").add("c", "string")),
            T.StructField("a.b", T.StringType()),
            T.StructField("n", T.LongType()),
        ]
    )
    frame = spark.createDataFrame([(("other field", "field"), "exact", 1)], row)
    pipeline = define("texts", frame, task=text, position="n", key=text)
    assert pipeline.task is not None
    assert [found[0] for found in frame.select(pipeline.task).collect()] == [task]
    assert pipeline.key_name == (text if "field" in task else "a.b")


def test_a_text_that_is_no_column_is_refused_with_its_text(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "n BIGINT")
    with pytest.raises(InvalidValue, match=r"task.*dgraph\.type"):
        define("texts", frame, task="dgraph.type", position="n")
