"""`.transform`: any row-wise function of a DataFrame; only failing records are isolated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.errors import StepFailed
from arrester.agents.worker.columns import ERROR, OUTCOME, POSITION
from arrester.domain.events import RecordFailed, ResumeHow, TaskDied, ThreadDied
from tests.agents.batch.static_batches import discard, failures, lines, pipeline_of
from tests.agents.pipeline_bench import Bench, blocks, read_sink, sink_to
from tests.parameters import long_for
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
Function = Callable[[DataFrame], DataFrame]


def selecting(df: DataFrame) -> DataFrame:
    return df.select(F.col("value").cast("int").alias("n"), "position").filter("n <> 5")


def exploding(df: DataFrame) -> DataFrame:
    copies = F.array_repeat(F.col("value").cast("int"), F.when(F.col("value") == "5", 0))
    numbers = F.coalesce(copies, F.array(F.col("value").cast("int")))
    return df.select("position", F.explode(numbers).alias("n"))


def by_udf() -> Function:
    number = F.udf(lambda text: int(text), "int")
    return lambda df: df.withColumn("n", number("value")).where("n <> 5").drop("value")


def by_pandas() -> Function:
    def numbers(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            numbered = frame.assign(n=frame["value"].astype(int))
            yield numbered[numbered["n"] != 5][["n", "position"]]

    return lambda df: df.mapInPandas(numbers, "n INT, position LONG")


def by_arrow() -> Function:
    def numbers(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            numbered = batch.append_column("n", pa.array([int(x) for x in batch["value"].tolist()]))
            yield numbered.filter(pc.not_equal(numbered["n"], 5))

    return lambda df: df.mapInArrow(numbers, "task STRING, position LONG, value STRING, n LONG")


def joining(df: DataFrame) -> DataFrame:
    names = df.sparkSession.range(5).selectExpr("cast(id as int) as n", "concat('#', id) as name")
    return df.withColumn("n", F.col("value").cast("int")).join(F.broadcast(names), "n")


KINDS: dict[str, Callable[[], Function]] = {
    "selecting": lambda: selecting,
    "exploding": lambda: exploding,
    "udf": by_udf,
    "pandas": by_pandas,
    "arrow": by_arrow,
    "joining": lambda: joining,
}
LONG = ["arrow", "exploding", "pandas"]


@pytest.mark.parametrize("kind", long_for(KINDS, LONG))
def test_only_failing_records_are_isolated(spark: SparkSession, kind: str) -> None:
    source = lines(spark, "1", "x", "5", "3", "4", "y")
    pipeline = pipeline_of(source).transform("numbers", KINDS[kind]()).write(discard)

    evaluated = evaluate(source, pipeline)

    rows = evaluated.passed(pipeline)
    assert sorted(row["n"] for row in rows.collect()) == [1, 3, 4]
    failed = evaluated.frame.where(F.col(OUTCOME) == 1).orderBy(POSITION).collect()
    assert [row[POSITION] for row in failed] == [1, 5]
    python = kind in ("udf", "pandas", "arrow")
    message = "invalid literal" if python else "cannot be cast"
    assert all(message in row[ERROR]["message"] for row in failed)
    wanted = "ValueError" if python else "SparkNumberFormatException"
    assert {row[ERROR]["exception_class"].rpartition(".")[2] for row in failed} == {wanted}


def test_steps_may_follow_a_transform_whose_rows_keep_their_record(spark: SparkSession) -> None:
    def check(row: Row) -> Row:
        if row["half"] == 5:
            raise ValueError("five")
        return row

    source = lines(spark, "1 2", "4 x", "10 12", "0 6", "8", "")
    builder = (
        pipeline_of(source)
        .transform(
            "words",
            lambda df: df.select(F.explode(F.split("value", " ")).alias("word"), "position").where(
                "word <> ''"
            ),
        )
        .columns("numbers", half=F.col("word").cast("int") / 2, share=1 / F.col("word").cast("int"))
        .process("check", check)
    )

    failed = failures(source, builder.write(discard))

    assert {position: each.stage for position, each in failed.items()} == {
        1: "process:numbers",
        2: "process:check",
        3: "process:numbers",
    }
    assert failed[3].problem.condition == "DIVIDE_BY_ZERO"
    pipeline = builder.write(discard)
    evaluated = evaluate(source, pipeline)
    rows = evaluated.passed(pipeline).orderBy("half").collect()
    assert [(row.word, row.position) for row in rows] == [("1", 0), ("2", 0), ("8", 4)]
    assert evaluated.failed == 3


def test_all_blocks_are_released_if_the_last_of_several_transforms_fails(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its input are rows of an earlier transform: rows with its failures are stored anew."""
    source = lines(spark, "1 2", "4 x", "8").localCheckpoint()
    words = F.explode(F.split("value", " ")).alias("word")
    builder = pipeline_of(source).transform("words", lambda df: df.select(words, "position"))
    pipeline = builder.transform(
        "numbers", lambda df: df.select(F.col("word").cast("int").alias("n"), "position")
    ).write(discard)
    before = blocks(spark)

    evaluated = evaluate(source, pipeline)
    assert evaluated.failed == 1
    assert sorted(row.n for row in evaluated.passed(pipeline).collect()) == [1, 2, 8]
    evaluated.release()
    assert blocks(spark) <= before

    def ends(frame: DataFrame) -> DataFrame:
        raise RuntimeError("the driver has no room")

    monkeypatch.setattr("arrester.agents.batch.slow_path.make_atomic", ends)
    with pytest.raises(RuntimeError, match="no room"):
        evaluate(source, pipeline)
    assert blocks(spark) <= before


REFUSED: dict[str, tuple[Function, str]] = {
    "aggregate": (lambda df: df.groupBy("task").count(), "Aggregate"),
    "window": (
        lambda df: df.withColumn("r", F.row_number().over(Window.orderBy("position"))),
        "Window",
    ),
    "sort": (lambda df: df.orderBy("position"), "Sort"),
    "limit": (lambda df: df.limit(3), "GlobalLimit"),
    "distinct": (lambda df: df.dropDuplicates(["task"]), "Deduplicate"),
    "itself": (lambda df: df.join(df.selectExpr("task as t"), F.col("task") == F.col("t")), "Join"),
    "outer": (
        lambda df: df.join(df.sparkSession.range(2), F.expr("position < id"), "right"),
        "Join",
    ),
    "union": (lambda df: df.union(df.sparkSession.sql("SELECT 'a', 1L, 'b'")), "Union"),
    "other": (lambda df: df.sparkSession.range(3).toDF("n"), "not made of the DataFrame"),
    "grouped": (
        lambda df: df.groupBy("task").applyInPandas(lambda frame: frame, df.schema),
        "FlatMapGroupsInPandas",
    ),
}


def test_a_transform_that_is_not_row_by_row_is_refused_with_its_plan_node(
    spark: SparkSession,
) -> None:
    for fn, node in REFUSED.values():
        with pytest.raises(PipelineInvalid, match=node) as caught:
            pipeline_of(lines(spark)).transform("step", fn)
        assert "stateful=True" in str(caught.value)
    with pytest.raises(PipelineInvalid, match="it raised ZeroDivisionError"):
        pipeline_of(lines(spark)).transform("step", lambda df: df.limit(1 // df.count()))
    with pytest.raises(PipelineInvalid, match="it returned a int"):
        pipeline_of(lines(spark)).transform("step", lambda df: df.count())  # type: ignore[return-value,arg-type]
    stream = spark.readStream.format("rate").load().toDF("at", "n")
    with pytest.raises(PipelineInvalid, match="has a streaming DataFrame in it"):
        pipeline_of(lines(spark)).transform(
            "step", lambda df: df.join(stream, F.expr("position = n"))
        )
    opaque = pipeline_of(lines(spark)).transform("opaque", by_pandas())
    with pytest.raises(PipelineInvalid, match="'late' cannot follow transform 'opaque', which hid"):
        opaque.columns("late", n=F.col("n") + 1)


def test_a_failed_column_of_a_transform_is_its_own_failure_not_that_of_a_later_step(
    spark: SparkSession,
) -> None:
    source = lines(spark, "1", "x", "0", "4")
    pipeline = (
        pipeline_of(source)
        .transform("number", lambda df: df.select(F.col("value").cast("int").alias("n")))
        .columns("share", share=1 / F.col("n"))
        .write(discard)
    )

    failed = failures(source, pipeline)

    stages = {position: each.stage for position, each in failed.items()}
    assert stages == {1: "process:number", 2: "process:share"}


def test_a_stateful_transform_comes_last_in_a_pipeline_of_one_task(spark: SparkSession) -> None:
    source = lines(spark, "1", "x", "3")
    function = lambda df: df.groupBy("task").agg(F.sum(F.col("value").cast("int")))  # noqa: E731
    with pytest.raises(PipelineInvalid, match="a pipeline without task="):
        pipeline_of(source).transform("count", function, stateful=True)
    single = define("lines", source, position="position", value="value")
    counting = single.transform("count", function, stateful=True)
    with pytest.raises(PipelineInvalid, match="is stateful"):
        counting.process("late", lambda row: row)

    with pytest.raises(StepFailed, match="it is stateful: no single record is the cause"):
        evaluate(source, counting.write(discard))
    good = source.where("value <> 'x'")
    evaluated = evaluate(good, counting.write(discard))
    assert [row[1] for row in evaluated.passed(counting.write(discard)).collect()] == [4]


def test_a_failure_without_records_isolates_none(spark: SparkSession) -> None:
    def unready(frames: Iterator[Any]) -> Iterator[Any]:
        raise RuntimeError("no model")

    source = lines(spark, "1")
    pipeline = pipeline_of(source).transform("model", lambda df: df.mapInPandas(unready, df.schema))

    with pytest.raises(StepFailed, match=r"no model \(it fails without any record") as caught:
        evaluate(source, pipeline.write(discard))
    assert caught.value.reported.exception_class == "RuntimeError"


def test_a_missing_module_ends_the_run_with_its_name_and_the_way_out(spark: SparkSession) -> None:
    def importing(frames: Iterator[Any]) -> Iterator[Any]:
        import tidy_names  # type: ignore[import-not-found]  # noqa: F401

        yield from frames

    source = lines(spark, "1", "2")
    pipeline = pipeline_of(source).transform(
        "tidy", lambda df: df.mapInPandas(importing, df.schema)
    )

    with pytest.raises(StepFailed) as caught:
        evaluate(source, pipeline.write(discard))
    assert caught.value.reason == (
        "process:tidy: ModuleNotFoundError: No module named 'tidy_names' (install it in the Python"
        " of the executors, or add it with spark.sparkContext.addPyFile or spark.submit.pyFiles if"
        " it is Python only)"
    )
    reported = caught.value.reported
    assert reported.message == "No module named 'tidy_names'"
    assert reported.frame is not None and reported.frame.endswith(" in importing")
    assert "import tidy_names" in (reported.stack or "")


def test_records_fail_even_if_a_transform_drops_their_rows(bench: Bench) -> None:
    """An atomic sink has a fast path, but not after a transform that may read only a part."""
    bench.add((None, 0, "x"), (None, 1, "bad"), (None, 2, "x"))
    source = bench.source()
    pipeline = (
        define("lines", source, position="position", value="value")
        .columns("number", n=F.assert_true(F.col("value") != "bad"), on_error=LogAndContinue())
        .transform("none", lambda df: df.limit(0), stateful=True)
        .write(sink_to(bench.folder / "out"), atomic=True)
    )
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()

    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]
    assert bench.written() == []


def test_a_failure_of_several_records_together_isolates_none(spark: SparkSession) -> None:
    def crowded(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            if len(frame) > 1:
                raise RuntimeError("too many of us")
            yield frame

    source = lines(spark, *"1234").coalesce(1)
    pipeline = pipeline_of(source).transform("crowd", lambda df: df.mapInPandas(crowded, df.schema))

    with pytest.raises(StepFailed, match="process:crowd: RuntimeError: too many of us") as caught:
        evaluate(source, pipeline.write(discard))
    assert "no single record makes it fail alone" in str(caught.value)


def test_a_batch_after_a_transform_that_the_sink_rejects_is_skipped(bench: Bench) -> None:
    """The rows for the sink differ from those that represent their records."""

    def refuse(df: DataFrame, number: int) -> None:
        raise ValueError(f"refused {df.count()} rows")

    words = F.explode(F.split("value", " ")).alias("word")
    builder = bench.define().transform(
        "words", lambda df: df.select("task", "position", words).where("word <> ''")
    )
    with pytest.raises(PipelineInvalid, match="produce: it cannot follow transform 'words'"):
        builder.produce(lambda row: None)
    bench.add(("a", 0, "1 2"), ("b", 0, ""), ("a", 1, "3"))
    bench.start(
        builder.columns("more", n=F.length("word")).write(refuse, on_error=LogAndContinue())
    )
    bench.wait_for_input()
    bench.stop()

    failed = bench.outbox.of(RecordFailed)
    assert {(each.task, each.position, each.failure.stage) for each in failed} == {
        ("a", 0, "produce"),
        ("a", 1, "produce"),
    }
    assert {each.failure.message for each in failed} == {"refused 3 rows"}
    assert sorted(each["position"] for each in bench.dead_letters()) == [0, 1]


def test_records_of_a_paused_task_are_held_before_their_transformed_rows_are_written(
    bench: Bench,
) -> None:
    """Its other records are held; after the repair, all are written once, in order."""
    flag = str(bench.folder / "repaired")

    def numbers(frames: Iterator[Any]) -> Iterator[Any]:
        import os

        for frame in frames:
            bad = frame["value"] == "bad"
            if bad.any() and not os.path.exists(flag):
                raise ValueError("bad")
            yield frame.assign(value=frame["value"] + "!")

    bench.add(*[("a", n, "bad" if n == 2 else "x") for n in range(5)], ("b", 0, "x"), ("b", 1, "x"))
    bench.add(("a", 5, "x"), ("b", 2, "bad"), ("b", 3, "x"), ("c", 0, "x"))
    pipeline = (
        bench.define()
        .transform("t", lambda df: df.mapInPandas(numbers, df.schema), on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline)
    bench.wait_for_input()

    assert sorted(bench.written()) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]
    held = {each.id.key: (each.position, each.held) for each in thread.paused_tasks()}
    assert held == {"a": (2, 4), "b": (2, 2)}
    # Events are published between micro-batches.
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 2)
    failed = bench.outbox.of(RecordFailed)
    assert {(each.task, each.position, each.failure.exception_class) for each in failed} == {
        ("a", 2, "ValueError"),
        ("b", 2, "ValueError"),
    }
    assert str(failed[0].failure.frame).endswith("in numbers")

    (bench.folder / "repaired").touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    assert thread.apply(TaskCommand("b", how=ResumeHow.RETRY)).applied
    wait_until(lambda: len(bench.written()) == 11)
    bench.stop()
    assert [bench.positions(task) for task in "abc"] == [[*range(6)], [*range(4)], [0]]


def test_a_transform_that_fails_as_a_whole_ends_the_run_and_no_task_dies(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "y"))
    calls: list[int] = []

    def broken(df: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) > 1:
            raise PermissionError("no table of models")
        return df

    pipeline = bench.define().transform("models", broken, on_error=LogAndContinue())
    bench.start(pipeline.write(sink_to(bench.folder / "out")))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert isinstance(end.exception, PermissionError)
    assert end.failure is not None
    assert (end.failure.stage, end.failure.exception_class) == (
        "process:models",
        "PermissionError",
    )
    assert bench.outbox.of(TaskDied) == []
    assert bench.outbox.of(RecordFailed) == []
    assert len(bench.outbox.of(ThreadDied)) == 1
    assert bench.written() == []


@pytest.mark.long
def test_more_failing_records_than_the_bisection_can_find_end_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(*[("a", n, "bad" if n % 2 else "1") for n in range(8)])
    builder = bench.define().transform("numbers", selecting, on_error=LogAndContinue())
    pipeline = builder.write(sink_to(bench.folder / "out"))
    with monkeypatch.context() as few:
        few.setattr("arrester.agents.execution.bisection.JOBS", 3)
        bench.start(pipeline)
        wait_until(lambda: bool(bench.ends))
    [end] = bench.ends
    assert "more of its records fail than 3 jobs could find" in end.reason
    assert (bench.outbox.of(RecordFailed), bench.outbox.of(TaskDied)) == ([], [])
    assert (read_sink(bench.folder / "out"), bench.dead_letters()) == ([], [])

    # Nothing was decided: the next run repeats the micro-batch, and may find them all.
    bench.start(pipeline)
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    written = sorted(row["position"] for _, row in read_sink(bench.folder / "out"))
    assert written == [0, 2, 4, 6]
    assert sorted(each["position"] for each in bench.dead_letters()) == [1, 3, 5, 7]
