"""Code of the author's that takes the Python worker down: the record is found, or nobody blamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from agents.handlers import LogAndContinue, LogAndPause
from agents.microbatch import evaluate
from agents.worker.columns import ERROR, FATE, POSITION
from controlplane.domain.events import RecordFailed, TaskDied
from controlplane.domain.states import ThreadStatus
from tests.agents.engine.bench import Bench, sink_to, wait_until
from tests.agents.engine.test_microbatch import begun, lines, nothing

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def crashing() -> Any:
    """Return a step that travels by value: workers do not have this module."""

    def crash(row: Row) -> Row:
        import ctypes
        import os

        match row["value"]:
            case "abort":
                os.abort()
            case "segfault":
                ctypes.string_at(0)
            case "killed":
                os.kill(os.getpid(), 9)
        return row

    return crash


def test_a_record_that_crashes_the_worker_is_a_failed_record(bench: Bench) -> None:
    """The kernel's out-of-memory killer ends a worker in the same way: by SIGKILL."""
    bench.add(("a", 0, "x"), ("a", 1, "segfault"), ("b", 0, "killed"), ("a", 2, "x"), ("b", 1, "x"))
    pipeline = (
        bench.define()
        .process("before", lambda row: row)
        .process("crash", crashing(), on_error=LogAndContinue())
        .columns("after", n=F.length("value"))
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()

    assert sorted(bench.written()) == [("a", 0), ("a", 2), ("b", 1)]
    failed = {each.task: each for each in bench.outbox.of(RecordFailed)}
    assert {task: each.position for task, each in failed.items()} == {"a": 1, "b": 0}
    assert {each.failure.exception_class for each in failed.values()} == {"WorkerCrashed"}
    assert {each.failure.stage for each in failed.values()} == {"process:crash"}
    assert "Segmentation fault" in failed["a"].failure.message
    assert str(failed["a"].failure.frame).endswith("in crash")
    assert "killed" in failed["b"].failure.message
    assert len(bench.dead_letters()) == 2
    assert thread.state is ThreadStatus.DEAD


def test_a_crash_pauses_its_task_and_not_the_others(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "abort"), ("a", 2, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(crashing(), LogAndPause()))
    bench.wait_for_input()
    bench.stop()

    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("a", 1, 2)
    assert sorted(bench.written()) == [("a", 0), ("b", 0)]


def test_a_crash_that_no_record_makes_alone_ends_the_run(bench: Bench) -> None:
    seen: list[str] = []

    def crowded(row: Row) -> Row:
        import os

        seen.append(row["value"])
        if len(seen) > 2:
            os.kill(os.getpid(), 9)
        return row

    bench.add(*[("a", n, "x") for n in range(24)])
    bench.start(bench.checking(crowded, LogAndContinue()))
    wait_until(lambda: bool(bench.deaths))

    [death] = bench.deaths
    assert death.failure is not None
    assert death.failure.exception_class == "WorkerCrashed"
    assert "no single record makes it fail alone" in death.reason
    assert bench.outbox.of(TaskDied) == []
    assert bench.written() == []


def test_a_transform_that_crashes_is_searched_like_one_that_raises(spark: SparkSession) -> None:
    def crash(frames: Iterator[Any]) -> Iterator[Any]:
        import os

        for frame in frames:
            if (frame["value"] == "killed").any():
                os.kill(os.getpid(), 9)
            yield frame

    source = lines(spark, "1", "killed", "3")
    builder = begun(source).transform("crash", lambda df: df.mapInPandas(crash, df.schema))
    pipeline = builder.write(nothing)

    evaluated = evaluate(source, pipeline)

    [failed] = evaluated.frame.where(F.col(FATE) == 1).collect()
    assert (failed[POSITION], failed[ERROR]["exception_class"]) == (1, "WorkerCrashed")
    assert sorted(row.value for row in evaluated.passed(pipeline).collect()) == ["1", "3"]
