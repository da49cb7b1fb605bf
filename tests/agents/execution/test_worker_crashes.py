"""Crashes of the Python worker in the author's code: the record is isolated, or none is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.worker.columns import ERROR, OUTCOME, POSITION
from arrester.domain.events import RecordFailed, TaskDied
from arrester.domain.state.states import ThreadStatus
from tests.agents.batch.static_batches import discard, lines, pipeline_of
from tests.agents.pipeline_bench import Bench, blocks, sink_to
from tests.patience import wait_until

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
    """The kernel's out-of-memory killer also ends a worker by SIGKILL."""
    kept = blocks(bench.spark)
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
    assert blocks(bench.spark) <= kept


@pytest.mark.long
def test_a_crash_pauses_its_task_only(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "abort"), ("a", 2, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(crashing(), LogAndPause()))
    bench.wait_for_input()
    bench.stop()

    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("a", 1, 2)
    assert sorted(bench.written()) == [("a", 0), ("b", 0)]


@pytest.mark.long
def test_a_crash_without_a_single_failing_record_ends_the_run(bench: Bench) -> None:
    seen: list[str] = []

    def crowded(row: Row) -> Row:
        import os

        seen.append(row["value"])
        if len(seen) > 2:
            os.kill(os.getpid(), 9)
        return row

    bench.add(*[("a", n, "x") for n in range(24)])
    bench.start(bench.checking(crowded, LogAndContinue()))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert end.failure is not None
    assert end.failure.exception_class == "WorkerCrashed"
    assert "no single record makes it fail alone" in end.reason
    assert bench.outbox.of(TaskDied) == []
    assert bench.written() == []


@pytest.mark.long
def test_a_crashing_transform_is_bisected_like_a_raising_one(spark: SparkSession) -> None:
    def crash(frames: Iterator[Any]) -> Iterator[Any]:
        import os

        for frame in frames:
            if (frame["value"] == "killed").any():
                os.kill(os.getpid(), 9)
            yield frame

    source = lines(spark, "1", "killed", "3")
    builder = pipeline_of(source).transform("crash", lambda df: df.mapInPandas(crash, df.schema))
    pipeline = builder.write(discard)

    evaluated = evaluate(source, pipeline)

    [failed] = evaluated.frame.where(F.col(OUTCOME) == 1).collect()
    assert (failed[POSITION], failed[ERROR]["exception_class"]) == (1, "WorkerCrashed")
    assert sorted(row.value for row in evaluated.passed(pipeline).collect()) == ["1", "3"]


# ── .produce ─────────────────────────────────────────────────────────────────────────────────


def sender(bench: Bench) -> Callable[[Row], None]:
    """Return a `send` that records its calls, and those that its worker survives."""
    given, sent = str(bench.folder / "given"), str(bench.folder / "sent")

    def send(row: Row) -> None:
        import os

        where = f"{row['task']}:{row['position']}\n"
        with open(given, "a") as file:
            file.write(where)
        match row["value"]:
            case "exit":
                os._exit(0)
            case "killed":
                os.kill(os.getpid(), 9)
            case "segfault":
                import ctypes

                ctypes.string_at(0)
            case "bad":
                raise ValueError("bad")
        with open(sent, "a") as file:
            file.write(where)

    return send


def noted(bench: Bench, name: str) -> Counter[str]:
    file = bench.folder / name
    return Counter(file.read_text().split() if file.exists() else [])


def test_a_record_whose_send_crashes_the_worker_is_skipped_and_others_are_sent(
    bench: Bench,
) -> None:
    values = {("a", 1): "bad", ("a", 2): "killed", ("b", 1): "exit"}
    places = [*[("a", n) for n in range(4)], *[("b", n) for n in range(3)]]
    bench.add(*[(*place, values.get(place, "x")) for place in places])
    bench.start(bench.define().produce(sender(bench), on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    assert bench.ends == []
    sent, given = noted(bench, "sent"), noted(bench, "given")
    assert set(sent) == {"a:0", "a:3", "b:0", "b:2"}
    # In the failed round, in its part, and before the crashing record.
    assert max(given.values()) <= 3
    failed = {(e.task, e.position): e.failure for e in bench.outbox.of(RecordFailed)}
    assert {place: each.exception_class for place, each in failed.items()} == {
        ("a", 1): "ValueError",
        ("a", 2): "WorkerCrashed",
        ("b", 1): "WorkerCrashed",
    }
    assert {each.stage for each in failed.values()} == {"produce"}
    message = "the Python worker crashed: it was killed, or ended by itself"
    assert failed["b", 1].message == message
    dead_letters = {
        (each["task"], each["position"], each["stage"]) for each in bench.dead_letters()
    }
    assert dead_letters == {(*place, "produce") for place in values}


@pytest.mark.long
def test_a_crashing_send_pauses_its_task_and_no_later_record_is_sent(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "killed"), ("a", 2, "x"), ("b", 0, "x"), ("b", 1, "x"))
    thread = bench.start(bench.define().produce(sender(bench), on_error=LogAndPause()))
    bench.wait_for_input()
    bench.stop()

    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("a", 1, 2)
    assert set(noted(bench, "sent")) == {"a:0", "b:0", "b:1"}


@pytest.mark.long
def test_by_default_a_crashing_send_ends_the_run_and_names_the_record(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "segfault"), ("a", 2, "x"))
    bench.start(bench.define().produce(sender(bench)))
    wait_until(lambda: bool(bench.ends))

    assert "produce failed at task 'a', position 1: WorkerCrashed" in bench.ends[0].reason
    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.position, died.failure.stage) == ("a", 1, "produce")
    # Python's own trace, without the progress that the worker wrote.
    assert died.failure.message == (
        "the Python worker crashed: Fatal Python error: Segmentation fault"
    )
    assert str(died.failure.frame).endswith("in send")
    assert noted(bench, "sent") == {"a:0": 2}


@pytest.mark.long
def test_a_client_that_crashes_later_is_probed_record_by_record(bench: Bench) -> None:
    """Records given to a client in C are delivered by its threads, or by `flush`."""
    send = sender(bench)

    @contextmanager
    def connect() -> Iterator[Callable[[Row], None]]:
        waiting: list[Row] = []
        yield waiting.append
        for row in waiting:
            send(row)

    bench.add(("a", 0, "x"), ("a", 1, "killed"), ("a", 2, "x"), ("b", 0, "x"))
    bench.start(bench.define().produce(connect=connect, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.task, failed.position) == ("a", 1)
    assert failed.failure.exception_class == "WorkerCrashed"
    assert set(noted(bench, "sent")) == {"a:0", "a:2", "b:0"}
    assert max(noted(bench, "given").values()) <= 4


def test_a_send_that_crashes_only_with_other_records_ends_the_run(
    bench: Bench,
) -> None:
    seen: list[str] = []

    def crowded(row: Row) -> None:
        import os

        seen.append(row["value"])
        if len(seen) > 2:
            os.kill(os.getpid(), 9)

    bench.add(*[("a", n, "x") for n in range(4)])
    bench.start(bench.define().produce(crowded, on_error=LogAndContinue()))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert end.failure is not None
    assert (end.failure.stage, end.failure.exception_class) == ("produce", "WorkerCrashed")
    assert "no single record makes it fail alone" in end.reason
    assert bench.outbox.of(RecordFailed) == []


def test_more_crashing_sends_than_the_bisection_can_find_end_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.agents.execution.bisection.JOBS", 2)
    bench.add(*[(task, 0, "killed") for task in "abcdefgh"])
    kept = blocks(bench.spark)
    bench.start(bench.define().produce(sender(bench), on_error=LogAndContinue()))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert end.failure is not None
    assert (end.failure.stage, end.failure.exception_class) == ("produce", "WorkerCrashed")
    assert "more of its records crash the worker than 2 jobs could find" in end.reason
    assert (bench.outbox.of(RecordFailed), bench.dead_letters()) == ([], [])
    assert len(noted(bench, "given")) < 8
    assert blocks(bench.spark) <= kept


def test_a_stop_ends_the_isolation_of_crashing_sends(bench: Bench) -> None:
    """At a stop a sink may finish, but the isolation of its records ends."""
    begun, stopped = bench.folder / "begun", bench.folder / "stopped"
    names = str(begun), str(stopped)
    send = sender(bench)

    def waiting(row: Row) -> None:
        import os
        import time

        open(names[0], "w").close()
        while not os.path.exists(names[1]):
            time.sleep(0.02)
        send(row)

    bench.add(*[(task, 0, "killed") for task in "abcdefgh"])
    thread = bench.start(bench.define().produce(waiting, on_error=LogAndContinue()))
    wait_until(begun.exists)
    stopping = Thread(target=thread.stop, args=("stopped",), kwargs={"timeout_seconds": 100})
    stopping.start()
    wait_until(lambda: thread._stop_signal.is_requested)
    stopped.touch()
    stopping.join()

    assert bench.ends == []
    assert bench.outbox.of(RecordFailed) == []
    # The first record of each partition, in the crashed round and in its parts.
    assert len(noted(bench, "given")) <= 4
    assert bench.committed() == -1
