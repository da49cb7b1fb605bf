"""The staged path has the result of the slow path, and shows nothing before its decision."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch import staged_path
from arrester.agents.batch.fast_path import FastPath
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.files import Files, StagedFiles
from arrester.agents.handlers import (
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndFail,
    LogAndPause,
    Record,
    RecordError,
)
from arrester.agents.journal.journal import Journal
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.run.micro_batch.slow_path_writer import SlowPathWriter
from arrester.agents.run.micro_batch.staged_writer import NotWritten, StagedWriter
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.jvm.stores import hadoop
from arrester.domain.error_policy.policy import Response
from arrester.domain.events import (
    RecordFailed,
    ResumeHow,
    RetriesCounted,
    TaskDied,
    TaskPaused,
)
from arrester.domain.state.states import TaskStatus
from tests.agents.batch.test_path_selection import reported, states_of
from tests.agents.journal.test_fencing import claimed_by_another
from tests.agents.pipeline_bench import Bench, blocks, levels_of
from tests.patience import wait_until

pytestmark = pytest.mark.spark

#: Not None: why the slow path wrote a micro-batch.
Outcomes = list[NotWritten | None]


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Outcomes:
    """Return what the staged path did with each micro-batch that it received."""
    found: Outcomes = []
    write = StagedWriter.write

    def observed(self: StagedWriter, source: DataFrame, **more: Any) -> Any:
        written = write(self, source, **more)
        found.append(written if isinstance(written, NotWritten) else None)
        return written

    monkeypatch.setattr(StagedWriter, "write", observed)
    return found


def parsing(bench: Bench, handler: Handler, **more: Any) -> Pipeline:
    """Return a pipeline whose native step fails at each value that is no number."""
    builder = bench.define(on_error=LogAndContinue())
    builder = builder.deserialize("n", F.col("value").cast("int"), on_error=handler)
    return builder.write_files(str(bench.folder / "out"), format="json", **more)


def written(bench: Bench) -> list[tuple[str, int, int]]:
    """Return the rows in the sink, as every reader of files sees them."""
    files = [*(bench.folder / "out").glob("part-*"), *(bench.folder / "out").glob("batch=*/part-*")]
    if not files:
        return []
    rows = bench.spark.read.json(str(bench.folder / "out")).collect()
    return sorted((row["task"], row["position"], row["n"]) for row in rows)


def left_in(folder: Path) -> list[str]:
    """Return what is staged in the folder of the sink."""
    return [each.name for each in folder.glob("_arrester_*")]


def scene(spark: SparkSession, folder: Path, **more: Any) -> Bench:
    """Run healthy micro-batches, skipped records, a pause, and records of the stopped task."""
    folder.mkdir()
    bench = Bench(spark, folder)
    bench.add(("a", 0, "0"), ("b", 0, "0"))
    bench.add(("a", 1, "x"), ("a", 2, "2"), ("b", 1, "1"), ("c", None, "5"))
    bench.add(("a", 3, "3"), ("b", 2, "2"), ("b", 3, "x"), ("b", 4, "4"))
    bench.add(("a", 4, "4"), ("b", 5, "5"), ("b", 6, "x"), ("a", 5, "x"), ("a", 6, "6"))
    bench.start(parsing(bench, Answering("b"), **more))
    bench.wait_for_input()
    bench.stop()
    return bench


class Answering:
    """A handler that stops one task, and skips the records of all others."""

    def __init__(self, stopped: str) -> None:
        self.stopped = stopped
        self.calls: list[int | None] = []

    def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
        self.calls.append(context.position)
        return Response.PAUSE if context.task == self.stopped else Response.CONTINUE


def on_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_path.StagedPath, "of", lambda *_: None)
    monkeypatch.setattr(FastPath, "of", lambda *_: None)


# The next test has the same rule with Python steps too.
@pytest.mark.long
@pytest.mark.parametrize("number_column", [None, "batch"])
def test_the_staged_path_has_the_result_of_the_slow_path(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: Outcomes,
    number_column: str | None,
) -> None:
    staged = scene(spark, tmp_path / "staged", number_column=number_column)
    assert outcomes == [None, None, NotWritten.STOPS_TASKS, None]
    on_slow_path(monkeypatch)
    slow = scene(spark, tmp_path / "slow", number_column=number_column)
    assert len(outcomes) == 4

    assert written(staged) == written(slow)
    assert [(task, at) for task, at, _ in written(staged)] == [
        *(("a", at) for at in (0, 2, 3, 4, 6)),
        *(("b", at) for at in (0, 1, 2)),
    ]
    assert reported(staged) == reported(slow)
    assert states_of(staged) == states_of(slow)
    assert states_of(staged)["b"] == (TaskStatus.PAUSED, 1, 4)
    dead_letters = [
        sorted((str(row["task"]), str(row["position"])) for row in bench.dead_letters())
        for bench in (staged, slow)
    ]
    assert dead_letters[0] == dead_letters[1] == [("a", "1"), ("a", "5"), ("c", "None")]
    assert not left_in(staged.folder / "out")


def checking(folder: Path) -> Callable[[dict[str, Any]], Any]:
    """Return a Python step that fails, retries, leaves out or repeats some records."""
    place = str(folder / "attempts")

    def check(row: dict[str, Any]) -> Any:
        import os

        named = {name: row[name] for name in ("task", "position")}
        value = row["value"]
        if value == "none":
            return None
        if value == "two":
            return [named | {"n": 1}, named | {"n": 2}]
        if value == "one of two":
            return [named | {"n": 1}, named | {"n": "not a number"}]
        if value == "once":
            if not os.path.exists(place):
                os.mkdir(place)
                raise TimeoutError("try again")
            return named | {"n": 0}
        return named | {"n": int(value)}

    return check


Batches = Sequence[Sequence[tuple[str, int | None, str]]]


def ran_with_python_steps(spark: SparkSession, folder: Path, batches: Batches) -> Bench:
    """Run micro-batches whose records may fail in a native step, and in each way in a Python step.

    The task d stops at its first failed record.
    """
    folder.mkdir(parents=True)
    bench = Bench(spark, folder)
    for batch in batches:
        bench.add(*batch)
    builder = bench.define(on_error=LogAndContinue())
    number = F.when(F.col("value") == "native", F.col("value")).otherwise("0").cast("int")
    builder = builder.deserialize("number", number, on_error=Answering("d"))
    # The source's own value is reported, not this one.
    builder = builder.columns("trimmed", value=F.trim("value"), on_error=LogAndContinue())
    schema = "task STRING, position BIGINT, n INT"
    builder = builder.process("check", checking(folder), schema=schema, on_error=Answering("d"))
    pipeline = builder.write_files(str(folder / "out"), format="json")
    bench.start(pipeline, errors_retries_limit=3, errors_retries_delay_max_ms=1)
    bench.wait_for_input()
    bench.stop()
    return bench


def results(bench: Bench) -> list[object]:
    """Return what must not depend on the path."""
    dead_letters = bench.dead_letters()
    return [
        written(bench),
        reported(bench),
        states_of(bench),
        sorted((str(row["task"]), str(row["position"]), row["row"]) for row in dead_letters),
        len(bench.ends),
        left_in(bench.folder / "out"),
    ]


@pytest.mark.smoke
def test_python_steps_on_the_staged_path_have_the_result_of_the_slow_path(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Outcomes
) -> None:
    batches: Batches = [
        [("a", 0, "0"), ("b", 0, "0")],
        [("a", 1, "two"), ("a", 2, "2"), ("b", 1, "none"), ("b", 2, " once "), ("c", None, "5")],
        [("a", 3, "x"), ("b", 3, "one of two"), ("b", 4, "4"), ("a", 4, "native")],
        [("d", 1, "x"), ("d", 2, "2"), ("a", 5, "5")],
        [("d", 3, "3"), ("d", 4, "x"), ("a", 6, "x"), ("a", 7, "none"), ("a", 8, "8")],
    ]
    staged = ran_with_python_steps(spark, tmp_path / "staged", batches)
    assert not staged.ends
    assert outcomes == [None, None, None, NotWritten.STOPS_TASKS, None]
    on_slow_path(monkeypatch)
    slow = ran_with_python_steps(spark, tmp_path / "slow", batches)
    assert len(outcomes) == 5

    assert results(staged) == results(slow)
    assert [each for each in written(staged) if each[0] == "a"] == [
        *(("a", 0, 0), ("a", 1, 1), ("a", 1, 2), ("a", 2, 2), ("a", 5, 5), ("a", 8, 8)),
    ]
    assert states_of(staged)["d"] == (TaskStatus.PAUSED, 1, 4)
    assert [each.retries for each in staged.outbox.of(RetriesCounted)] == [1]
    assert len(staged.dead_letters()) == 5


@st.composite
def some_batches(draw: st.DrawFn) -> Batches:
    """Return micro-batches with the records of each task in order; some have no position."""
    values = st.sampled_from(["1", "2", "x", "none", "two", "one of two", "native", " 3 "])
    kinds = st.tuples(st.sampled_from("abd"), values, st.integers(0, 9))
    numbers: Counter[str] = Counter()
    batches: list[list[tuple[str, int | None, str]]] = []
    for batch in draw(st.lists(st.lists(kinds, min_size=1, max_size=6), min_size=1, max_size=4)):
        batches.append([])
        for task, value, chance in batch:
            numbers[task] += 1
            batches[-1].append((task, numbers[task] if chance else None, value))
    return batches


@pytest.mark.long
@given(batches=some_batches())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_records_have_the_same_result_on_both_paths(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: Batches
) -> None:
    folder = tmp_path_factory.mktemp("batches")
    staged = ran_with_python_steps(spark, folder / "staged", batches)
    with pytest.MonkeyPatch.context() as monkeypatch:
        on_slow_path(monkeypatch)
        slow = ran_with_python_steps(spark, folder / "slow", batches)
    assert results(staged) == results(slow)


@pytest.mark.long
def test_held_records_of_the_staged_path_run_after_a_resume(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "1"))
    bench.add(("a", 2, "2"), ("b", 0, "0"))
    thread = bench.start(parsing(bench, LogAndPause()))
    bench.wait_for_input()
    assert written(bench) == [("b", 0, 0)]
    thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="known"))
    wait_until(lambda: len(written(bench)) == 3, what="held records")
    bench.stop()
    assert written(bench) == [("a", 1, 1), ("a", 2, 2), ("b", 0, 0)]


def test_nothing_is_visible_before_the_decision_is_durable(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run staged before it ended without an entry is deleted by the next one."""
    left: list[str] = []
    append = Journal.append

    def dying(self: Journal, entry: Any) -> None:
        if entry.batch is not None and not left:
            left.extend(left_in(bench.folder / "out"))
            assert written(bench) == []
            raise SystemExit("killed")
        append(self, entry)

    monkeypatch.setattr(Journal, "append", dying)
    monkeypatch.setattr(StagedFiles, "discard", lambda self: None)
    bench.add(("a", 0, "0"), ("a", 1, "x"))
    bench.start(parsing(bench, LogAndContinue()))
    wait_until(lambda: bool(bench.ends), what="an end")
    assert len(left) == 1
    assert left_in(bench.folder / "out") == left
    assert written(bench) == []

    monkeypatch.undo()
    bench.start(parsing(bench, LogAndContinue()))
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert written(bench) == [("a", 0, 0)]
    assert not left_in(bench.folder / "out")
    assert len(bench.outbox.of(RecordFailed)) == 1


def test_staged_rows_that_cannot_be_published_leave_their_decision_to_the_slow_path(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, outcomes: Outcomes
) -> None:
    def full(self: StagedFiles, number: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(StagedFiles, "publish", full)
    bench.add(("a", 0, "0"), ("a", 1, "x"), ("b", 0, "0"))
    bench.start(parsing(bench, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    assert outcomes == [NotWritten.RAISED]
    assert written(bench) == [("a", 0, 0), ("b", 0, 0)]
    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]
    assert len(bench.dead_letters()) == 1
    assert not left_in(bench.folder / "out")


def test_a_run_that_ends_between_its_entry_and_the_publication_writes_each_row_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(self: StagedFiles, number: int) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(StagedFiles, "publish", dying)
    monkeypatch.setattr(StagedFiles, "discard", lambda self: None)
    monkeypatch.setattr(SlowPathWriter, "write", lambda *_: dying(*_))
    bench.add(("a", 0, "0"), ("a", 1, "x"), ("b", 0, "0"))
    bench.start(parsing(bench, LogAndContinue()))
    wait_until(lambda: bool(bench.ends), what="an end")
    assert written(bench) == []

    monkeypatch.undo()
    bench.start(parsing(bench, LogAndContinue()))
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert written(bench) == [("a", 0, 0), ("b", 0, 0)]
    assert not left_in(bench.folder / "out")
    assert len(bench.outbox.of(RecordFailed)) == 1
    assert len(bench.dead_letters()) == 1


def test_errors_that_a_step_raises_itself_are_staged(bench: Bench, outcomes: Outcomes) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "1"), ("a", 2, "x"), ("a", 3, "3"))
    checked = F.expr("if(value = 'x', raise_error('x is not permitted'), int(value))")
    builder = bench.define().columns("check", n=checked, on_error=LogAndContinue())
    bench.start(builder.write_files(str(bench.folder / "out"), format="json"))
    bench.wait_for_input()
    bench.stop()

    assert outcomes == [None]
    assert written(bench) == [("a", 1, 1), ("a", 3, 3)]
    assert [failed.position for failed in bench.outbox.of(RecordFailed)] == [0, 2]


def test_more_failures_than_the_driver_takes_are_left_to_the_slow_path(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, outcomes: Outcomes
) -> None:
    monkeypatch.setattr(staged_path, "DRIVER_LIMIT", 2)
    bench.add(*[("a", position, "x") for position in range(4)], ("b", 0, "0"))
    bench.add(("b", 1, "1"))
    bench.start(parsing(bench, LogAndContinue()), errors_outage_share=1.0)
    bench.wait_for_input()
    bench.stop()

    # More failures are likely, so the next ones do not take the staged path, either.
    assert outcomes == [NotWritten.TOO_MANY]
    assert written(bench) == [("b", 0, 0), ("b", 1, 1)]
    assert len(bench.dead_letters()) == 4


def test_a_handler_is_called_once_for_a_record_that_stops_its_task(
    bench: Bench, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Answering("a")
    bench.add(("a", 0, "x"), ("a", 1, "1"))
    with caplog.at_level(logging.INFO):
        bench.start(parsing(bench, handler))
        bench.wait_for_input()
        bench.stop()
    assert outcomes == [NotWritten.STOPS_TASKS]
    assert handler.calls == [0]
    assert len(bench.outbox.of(TaskPaused)) == 1
    assert len(levels_of("failed at", caplog)) == 1


def test_a_handler_is_called_for_each_of_the_records_that_share_a_position(
    bench: Bench, outcomes: Outcomes
) -> None:
    """Also of those that have none. Their local checkpoint is released."""
    before = blocks(bench.spark)
    handler = Answering("b")
    bench.add(("a", 1, "x"), ("a", 1, "y"), ("a", None, "1"), ("a", None, "2"), ("a", 2, "2"))
    builder = bench.define(on_error=handler)
    builder = builder.deserialize("n", F.col("value").cast("int"), on_error=handler)
    bench.start(builder.write_files(str(bench.folder / "out"), format="json"))
    bench.wait_for_input()
    bench.stop()
    assert outcomes == [None]
    assert sorted(handler.calls, key=str) == [1, 1, None, None]
    assert written(bench) == [("a", 2, 2)]
    assert blocks(bench.spark) <= before


def test_the_fault_of_a_handler_is_reported_if_its_answer_is_used_again(
    bench: Bench, outcomes: Outcomes
) -> None:
    class Wrong:
        def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
            raise KeyError("no such answer")

    bench.add(("a", 0, "x"), ("b", 0, "0"))
    bench.start(parsing(bench, Wrong()), errors_failure_scope="task")
    bench.wait_for_input()
    bench.stop()
    assert outcomes == [NotWritten.STOPS_TASKS]
    [died] = bench.outbox.of(TaskDied)
    assert "no such answer" in str(died.failure.message)
    assert written(bench) == [("b", 0, 0)]


def test_an_outage_counts_the_staged_records(bench: Bench, outcomes: Outcomes) -> None:
    bench.add(*[("a", position, "x") for position in range(3)], ("b", 0, "0"), ("b", 1, "1"))
    guard: dict[str, Any] = {"errors_outage_share": 0.5, "errors_outage_minimum": 2}
    bench.start(parsing(bench, LogAndContinue()), errors_outage_response="fail", **guard)
    wait_until(lambda: bool(bench.ends), what="an end")
    assert bench.ends[0].reason.startswith("outage: 3 of 5 records failed alike at deserialize")
    assert written(bench) == []


def test_a_fatal_answer_leaves_nothing(bench: Bench) -> None:
    bench.add(("a", 0, "0"), ("a", 1, "x"))
    bench.start(parsing(bench, LogAndFail()))
    wait_until(lambda: bool(bench.ends), what="an end")
    assert written(bench) == []
    assert not left_in(bench.folder / "out")


@pytest.mark.parametrize("number_column", [None, "batch"])
def test_a_newer_run_keeps_the_rows_that_it_wrote_instead_of_an_older_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number_column: str | None
) -> None:
    """It begins while the older one publishes."""
    publish = StagedFiles.publish

    def late(self: StagedFiles, number: int) -> None:
        claimed_by_another(LocalStorage(bench.checkpoint), thread)
        self.files.delete_staged(bench.spark)
        self.files(bench.spark.sql("SELECT 'a' AS task, 0L AS position, 0 AS n"), number)
        publish(self, number)

    monkeypatch.setattr(StagedFiles, "publish", late)
    thread = bench.thread(parsing(bench, LogAndContinue(), number_column=number_column))
    bench.add(("a", 0, "0"))
    thread.start(bench.checkpoint)
    wait_until(lambda: bool(bench.ends), what="an end")
    assert bench.ends[0].superseded
    assert written(bench) == [("a", 0, 0)]


@pytest.mark.parametrize("number_column", [None, "batch"])
@pytest.mark.parametrize("pattern", ["", "/*", "/*/*", "/*/*/*"])
def test_no_pattern_of_folders_finds_staged_files(
    spark: SparkSession, tmp_path: Path, number_column: str | None, pattern: str
) -> None:
    files = Files(path=str(tmp_path / "out"), checkpoint="c1", number_column=number_column)
    folders = replace(files, partition_by=["a", "b"])
    frame = spark.sql("SELECT 1 AS a, 2 AS b, 3 AS id")
    folders(frame, 0)
    with folders.open_staged_write(spark) as write:
        write.stage(frame, 1)
        reader = spark.read.schema("id INT").option("recursiveFileLookup", True)
        assert reader.parquet(f"{files.path}{pattern}").count() == 1
        write.publish(1)
        assert reader.parquet(f"{files.path}{pattern}").count() == 2


def test_files_keep_their_folders_and_names(spark: SparkSession, tmp_path: Path) -> None:
    """A published write has what a plain one has, beside what was there."""
    frame = spark.range(6).selectExpr("id", "id % 2 AS half", "'a=b' AS text")
    for folder in ("plain", "staged"):
        files = Files(path=str(tmp_path / folder), partition_by=["half", "text"], checkpoint="c1")
        files(frame.where("half = 0"), 0)
        if folder == "plain":
            files(frame, 1)
            continue
        with files.open_staged_write(spark) as write:
            write.stage(frame, 1)
            assert spark.read.parquet(files.path).count() == 3
            write.publish(1)
        assert not left_in(tmp_path / folder)
    found = [
        sorted(spark.read.parquet(str(tmp_path / each)).collect()) for each in ("plain", "staged")
    ]
    assert found[0] == found[1]
    names = [
        sorted(
            str(path.parent.relative_to(tmp_path / each)) for path in (tmp_path / each).rglob("*")
        )
        for each in ("plain", "staged")
    ]
    assert names[0] == names[1]


def test_staged_files_that_cannot_all_be_moved_leave_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(path=str(tmp_path / "out"), checkpoint="c1")
    files(spark.range(2), 0)
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    moved: list[object] = []
    rename = hadoop._rename

    def failing(*paths: Any) -> None:
        if moved:
            raise OSError("no space left")
        moved.append(paths)
        rename(*paths)

    monkeypatch.setattr(hadoop, "_rename", failing)
    write = files.open_staged_write(spark)
    with write, pytest.raises(OSError, match="no space"):
        write.stage(spark.range(10, numPartitions=3), 1)
        write.publish(1)
    assert len(moved) == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before


def test_a_path_with_characters_of_patterns_is_cleaned(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(path=str(tmp_path / "a[1]{b}*?,\\"), checkpoint="c1")
    for checkpoint in ("c1", "c1", "c2"):
        write = replace(files, checkpoint=checkpoint).open_staged_write(spark)
        write.stage(spark.range(2), 1)
    assert len(left_in(Path(files.path))) == 3
    files.delete_staged(spark)
    assert [name[:13] for name in left_in(Path(files.path))] == ["_arrester_c2_"]


def test_a_store_that_copies_files_does_not_stage(spark: SparkSession) -> None:
    assert not Files(path="s3a://bucket/out").can_stage(spark)
