"""Fast path and slow path have the same result, and an aborted fast path leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.fast_path import FastPath
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndFail, LogAndPause
from arrester.agents.run.micro_batch import processor
from arrester.agents.spark.ship_worker_code import ship
from arrester.domain.error_policy.policy import Policy
from arrester.domain.events import (
    FailuresCounted,
    RecordFailed,
    RecordsDeadLettered,
    RetriesCounted,
    TaskPaused,
    ThreadDied,
)
from arrester.domain.state.states import TaskStatus
from tests.agents.pipeline_bench import Bench, read_sink, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def checking() -> Callable[[Row], Row | None]:
    """Return a step that travels by value: workers do not have this module."""

    def check(row: Row) -> Row | None:
        if row["value"] == "raise":
            raise ValueError("raise")
        if row["value"] == "misfit":
            return {**row, "position": 1.5}
        return None if row["value"] == "drop" else row

    return check


class Spy:
    """An atomic sink that records the path and result of each call."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[tuple[int, str, bool]] = []
        self._write = sink_to(folder)

    def __call__(self, df: DataFrame, number: int) -> None:
        plan = df._jdf.queryExecution().analyzed().toString()
        path = "fast path" if "raise_error" in plan else "slow path"
        try:
            self._write(df, number)
        except BaseException:
            self.calls.append((number, path, False))
            raise
        self.calls.append((number, path, True))

    @property
    def paths(self) -> list[str]:
        return [
            f"{number} {path}{'' if done else ': aborted'}" for number, path, done in self.calls
        ]


def of_both_kinds(bench: Bench, spy: Spy, *, atomic: bool) -> Pipeline:
    number = F.when(F.col("value") == "native", F.raise_error(F.lit("x"))).otherwise(1).cast("int")
    return (
        bench.define(on_error=LogAndContinue())
        .deserialize("number", number, on_error=LogAndPause())
        .process("check", checking(), on_error=LogAndContinue())
        .write(spy, atomic=atomic)
    )


def scene(spark: SparkSession, folder: Path, *, atomic: bool) -> tuple[Bench, Spy]:
    """Run healthy batches, skipped records, a pause, and later batches."""
    folder.mkdir()
    bench, spy = Bench(spark, folder), Spy(folder / "out")
    bench.add(("a", 0, "x"), ("b", 0, "drop"), ("b", 1, "x"))
    bench.add(("a", 1, "raise"), ("a", 2, "x"), ("b", 2, "misfit"), ("b", 3, "x"), ("c", None, "x"))
    bench.add(("a", 3, "x"), ("a", 4, "native"), ("a", 5, "x"), ("b", 4, "x"))
    bench.add(("a", 6, "x"), ("b", 5, "x"))
    pipeline = of_both_kinds(bench, spy, atomic=atomic)
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    return bench, spy


def reported(bench: Bench) -> list[object]:
    """Return the content of the events, without the identities of this run."""
    kinds = RecordFailed | FailuresCounted | TaskPaused | RetriesCounted | ThreadDied
    found: list[object] = []
    for event in bench.outbox.events:
        data = event.data
        if isinstance(data, kinds):
            found.append(data)
        elif isinstance(data, RecordsDeadLettered):
            found.append(data.count)
    return found


def states_of(bench: Bench) -> dict[str | None, tuple[TaskStatus, int, int]]:
    """Return status, failed records and held records of each task."""
    tasks = server_state(bench.outbox.events).tasks.values()
    return {each.id.key: (each.status, each.failed, each.held) for each in tasks}


def test_both_paths_have_the_same_result(spark: SparkSession, tmp_path: Path) -> None:
    fast, spy = scene(spark, tmp_path / "fast", atomic=True)
    slow, other = scene(spark, tmp_path / "slow", atomic=False)

    assert fast.positions("a") == [0, 2, 3]
    assert sorted(fast.written()) == sorted(slow.written())
    assert reported(fast) == reported(slow)
    dead_letters = [
        sorted((str(row["task"]), str(row["position"])) for row in bench.dead_letters())
        for bench in (fast, slow)
    ]
    assert dead_letters[0] == dead_letters[1]
    assert len(dead_letters[0]) == 3
    states = [states_of(bench) for bench in (fast, slow)]
    assert states[0] == states[1]
    assert states[0]["a"] == (TaskStatus.PAUSED, 2, 3)
    assert spy.paths == [
        "0 fast path",
        "1 fast path: aborted",
        "1 slow path",
        "2 slow path",
        "3 slow path",
    ]
    assert other.paths == [f"{number} slow path" for number in range(4)]


def test_an_aborted_fast_path_leaves_nothing_and_decides_nothing(bench: Bench) -> None:
    """A fatal answer ends the run and leaves only what was written before."""
    spy = Spy(bench.folder / "out")
    bench.add(("a", 0, "x"))
    bench.add(("a", 1, "x"), ("a", 2, "raise"))
    pipeline = bench.define().process("check", checking(), on_error=LogAndFail())
    bench.start(pipeline.write(spy, atomic=True))
    wait_until(lambda: bool(bench.ends), what="an end")

    assert spy.paths == ["0 fast path", "1 fast path: aborted"]
    assert [number for number, _ in read_sink(bench.folder / "out")] == [0]
    assert "ValueError: raise" in bench.ends[0].reason

    # The next run knows the record that killed the task, and takes the slow path.
    bench.start(bench.define().process("check", checking(), on_error=LogAndContinue()).write(spy))
    bench.wait_for_input()
    wait_until(lambda: bench.committed() == 1)
    bench.stop()
    assert bench.positions("a") == [0, 1]
    assert [each.count for each in bench.outbox.of(RecordFailed)] == [1, 0]


def test_some_batches_after_a_failure_take_the_slow_path(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "SLOW_PATH_BATCHES", 1)
    spy = Spy(bench.folder / "out")
    for position, value in enumerate(["raise", "x", "x"]):
        bench.add(("a", position, value))
    builder = bench.define().process("check", checking(), on_error=LogAndContinue())
    bench.start(builder.write(spy, atomic=True))
    bench.wait_for_input()
    bench.stop()

    assert spy.paths == ["0 fast path: aborted", "0 slow path", "1 slow path", "2 fast path"]


def test_an_exception_of_the_sink_is_reported_as_the_sinks(bench: Bench) -> None:
    def full(df: DataFrame, number: int) -> None:
        raise OSError("no space left")

    bench.add(("a", 0, "x"))
    builder = bench.define().process("check", checking(), on_error=LogAndContinue())
    bench.start(builder.write(full, atomic=True))
    wait_until(lambda: bool(bench.ends), what="an end")

    assert "no space left" in bench.ends[0].reason
    assert bench.outbox.of(RecordFailed) == []


def test_a_sink_that_wraps_exceptions_hides_no_failed_record(bench: Bench) -> None:
    write = sink_to(bench.folder / "out")

    def wrapping(df: DataFrame, number: int) -> None:
        try:
            write(df, number)
        except Exception:
            raise RuntimeError("the write failed") from None

    bench.add(("a", 0, "x"), ("a", 1, "raise"))
    builder = bench.define().process("check", checking(), on_error=LogAndContinue())
    bench.start(builder.write(wrapping, atomic=True))
    bench.wait_for_input()
    bench.stop()

    assert bench.positions("a") == [0]
    assert len(bench.outbox.of(RecordFailed)) == 1


def test_successful_retries_are_counted_for_an_atomic_sink(bench: Bench) -> None:
    """The first failed attempt aborts the fast path; the slow path makes and counts its own."""
    place = str(bench.folder / "attempts")

    def busy(row: Row) -> Row:
        with open(place, "a+") as file:
            file.seek(0)
            earlier = len(file.read())
            file.write(".")
        if earlier < 2:
            raise TimeoutError("busy")
        return row

    bench.add(("a", 0, "x"))
    spy = Spy(bench.folder / "out")
    builder = bench.define().process("busy", busy)
    pipeline = builder.write(spy, atomic=True)
    bench.start(pipeline, errors_retries_limit=3, errors_retries_delay_max_ms=1)
    bench.wait_for_input()
    bench.stop()

    assert spy.paths == ["0 fast path: aborted", "0 slow path"]
    assert [each.retries for each in bench.outbox.of(RetriesCounted)] == [1]
    assert bench.positions("a") == [0]


def test_with_decisions_always_a_replay_never_skips_a_record_that_passed(bench: Bench) -> None:
    flag = bench.folder / "worse"
    place = str(flag)

    def moody(row: Row) -> Row:
        import os

        if os.path.exists(place):
            raise ValueError("worse")
        return row

    write, calls = sink_to(bench.folder / "out"), []

    def sink(df: DataFrame, number: int) -> None:
        write(df, number)
        calls.append(number)
        if len(calls) == 1:
            flag.touch()
            raise SystemExit("after the write, before Spark's commit")

    bench.add(("a", 0, "x"))
    pipeline = bench.define().process("moody", moody, on_error=LogAndContinue()).write(sink)
    bench.start(pipeline, errors_decisions="always")
    wait_until(lambda: len(bench.ends) == 1, what="an end")
    bench.start(pipeline, errors_decisions="always")
    wait_until(lambda: len(bench.ends) == 2, what="another")

    assert "a step is not deterministic" in bench.ends[1].reason
    assert bench.positions("a") == [0]
    assert bench.dead_letters() == []
    assert bench.outbox.of(RecordFailed) == []
    flag.unlink()
    bench.start(pipeline, errors_decisions="always")
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert bench.positions("a") == [0]


def test_a_shared_position_is_a_failure_only_if_it_is_needed(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 0, "x"))
    bench.add(("b", 1, "x"), ("b", 1, "raise"), ("b", 2, "x"), ("b", 2, "x"))
    builder = bench.define(on_error=LogAndContinue())
    pipeline = builder.process("check", checking(), on_error=LogAndContinue())
    bench.start(pipeline.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()
    bench.stop()

    assert bench.written() == [("a", 0), ("a", 0), ("b", 2), ("b", 2)]
    failed = bench.outbox.of(RecordFailed)
    assert [each.failure.exception_class for each in failed] == ["PositionNotUnique"] * 2


def test_the_fast_path_distinguishes_columns_as_the_session_does(spark: SparkSession) -> None:
    def passed(column: str) -> list[dict[str, Any]]:
        source = spark.sql("SELECT 0L AS position, 'old' AS Value")
        builder = define("lines", source, position="position")
        made: dict[str, Any] = {column: F.lit("new")}
        pipeline = builder.columns("more", **made).write_files("nowhere")
        fast_path = FastPath.of(pipeline, Policy())
        assert fast_path is not None
        return [row.asDict() for row in fast_path.frame(source).collect()]

    ship(spark.sparkContext)
    assert passed("value") == [{"position": 0, "value": "new"}]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert passed("value") == [{"position": 0, "Value": "old", "value": "new"}]
        assert passed("Value") == [{"position": 0, "Value": "new"}]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
