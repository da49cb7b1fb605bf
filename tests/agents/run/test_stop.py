"""A stop ends a run at a boundary, within its time, and leaves no incomplete decision."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyspark.sql import DataFrame

from arrester.agents.handlers import ErrorContext, Record, RecordError
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import (
    Event,
    FinalResponse,
    ResumeHow,
    TaskDied,
    TaskPaused,
    ThreadDied,
)
from arrester.domain.state.states import ThreadStatus
from tests.agents.pipeline_bench import Bench, MemoryOutbox, levels_of, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark


def test_an_idle_run_stops_and_refuses_commands(bench: Bench) -> None:
    thread = bench.start(bench.checking(lambda row: row))

    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)

    assert thread.state is ThreadStatus.DEAD
    assert not thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    assert [each.reason for each in bench.outbox.of(ThreadDied)] == ["stopped"]
    assert thread.stop("stopped", timeout_seconds=1)


def test_a_stop_lets_a_running_sink_finish(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()
    write = sink_to(bench.folder / "out")

    def slow(df: DataFrame, number: int) -> None:
        entered.set()
        leave.wait(PATIENCE_SECONDS)
        write(df, number)

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.define().write(slow))
    assert entered.wait(PATIENCE_SECONDS)
    threading.Timer(0.5, leave.set).start()

    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)

    assert bench.positions("a") == [0]
    assert bench.ends == []
    # The next run would call the sink again for a micro-batch that Spark has not committed.
    assert (bench.folder / "checkpoint" / "commits" / "0").exists()


def test_a_sink_that_hangs_does_not_delay_the_stop(bench: Bench) -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def hanging(df: DataFrame, number: int) -> None:
        entered.set()
        leave.wait(PATIENCE_SECONDS)
        left.set()

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.define().write(hanging))
    assert entered.wait(PATIENCE_SECONDS)

    assert not thread.stop("stopped", timeout_seconds=2)

    assert not left.is_set()
    leave.set()
    wait_until(lambda: thread.state is ThreadStatus.DEAD)


def test_a_forced_stop_cancels_the_jobs_of_a_sink_and_the_next_run_writes_once(
    bench: Bench,
) -> None:
    entered, leave = bench.folder / "entered", bench.folder / "leave"
    names = str(entered), str(leave)
    write = sink_to(bench.folder / "out")

    def wait(rows: Iterator[Any]) -> None:
        import pathlib

        pathlib.Path(names[0]).touch()
        while not pathlib.Path(names[1]).exists():
            time.sleep(0.02)

    def slow(df: DataFrame, number: int) -> None:
        df.foreachPartition(wait)
        write(df, number)

    bench.add(("a", 0, "x"), ("a", 1, "x"))
    thread = bench.start(bench.define().write(slow))
    wait_until(entered.exists)

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(thread.stop, "stopped", timeout_seconds=3_600)
        wait_until(lambda: thread._stop_signal.is_requested)
        assert not stopped.done()
        thread.force_stop()
        assert not stopped.result(PATIENCE_SECONDS)

    wait_until(lambda: thread.state is ThreadStatus.DEAD)
    assert (bench.committed(), bench.positions("a"), bench.ends) == (-1, [], [])
    leave.touch()
    bench.start(bench.define().write(slow))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 1]


def test_a_stop_while_records_are_evaluated_leaves_the_batch_to_the_next_run(
    bench: Bench,
) -> None:
    entered, asked = bench.folder / "entered", bench.folder / "asked"
    names = str(entered), str(asked)

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        import pathlib

        pathlib.Path(names[0]).touch()
        while not pathlib.Path(names[1]).exists():
            time.sleep(0.02)
        raise ValueError("late")

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.checking(slow))
    wait_until(entered.exists)

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(thread.stop, "stopped", timeout_seconds=PATIENCE_SECONDS)
        wait_until(lambda: thread._stop_signal.is_requested)
        asked.touch()
    assert stopped.result()

    assert bench.outbox.of(TaskPaused) == []
    assert bench.committed() == -1
    bench.start(bench.checking(lambda row: row))
    bench.wait_for_input()
    assert bench.positions("a") == [0]


def test_an_answer_fail_during_a_stop_kills_no_task(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def handle(
            self, context: ErrorContext, record: Record, error: RecordError
        ) -> FinalResponse:
            entered.set()
            leave.wait(PATIENCE_SECONDS)
            return FinalResponse.FAIL

    def failing(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("always")

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.checking(failing, Slow()))
    assert entered.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(thread.stop, "stopped", timeout_seconds=PATIENCE_SECONDS)
        wait_until(lambda: thread._stop_signal.is_requested)
        leave.set()
    assert stopped.result()

    assert (bench.ends, bench.outbox.of(TaskDied), bench.committed()) == ([], [], -1)
    assert levels_of("; the run stops: undecided", caplog) == ["WARNING"]
    assert levels_of("The task is DEAD", caplog) == []


def test_an_outbox_that_refuses_stops_no_pipeline_and_receives_all_later(bench: Bench) -> None:
    class Full(MemoryOutbox):
        full = True

        def put(self, batch_id: UUID, events: Sequence[Event]) -> None:
            if self.full:
                raise OSError("No space left on device")
            super().put(batch_id, events)

    def bad(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("bad")

    outbox = bench.outbox = Full()
    bench.add(("a", 0, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(bad))
    bench.wait_for_input()
    assert len(thread.paused_tasks()) == 2
    assert outbox.events == []

    outbox.full = False

    wait_until(lambda: len(outbox.of(TaskPaused)) == 2)


def test_a_query_that_ends_by_itself_ends_its_run_after_the_held_rows(bench: Bench) -> None:
    repaired = bench.folder / "repaired"
    flag = str(repaired)

    def check(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if row["position"] == 1 and not os.path.exists(flag):
            raise ValueError("not yet")
        return row

    bench.add(*[("a", n, "x") for n in range(4)])
    pipeline = bench.checking(check)
    for _ in range(2):
        thread = bench.thread(pipeline)
        thread.start(bench.checkpoint, trigger={"availableNow": True})
        wait_until(lambda thread=thread: thread.state is ThreadStatus.DEAD)  # type: ignore[misc]
        repaired.touch()

    assert bench.positions("a") == [0, 1, 2, 3]
    wait_until(lambda: [end.finished for end in bench.ends] == [True, True])


def test_a_finishing_run_still_runs_records_released_by_a_resume(bench: Bench) -> None:
    """Skipping a record takes some Spark jobs; meanwhile the query ends."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["position"] == 1:
            raise ValueError("never")
        return row

    bench.add(*[("a", n, "x") for n in range(4)])
    pipeline, instance = bench.checking(check), uuid4()
    bench.start(pipeline, instance=instance)
    bench.wait_for_input()
    bench.stop()
    thread = bench.thread(pipeline, instance=instance)
    thread.start(bench.checkpoint, trigger={"availableNow": True})
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="a test")).applied
    wait_until(lambda: thread.state is ThreadStatus.DEAD)

    assert bench.positions("a") == [0, 2, 3]


def test_rows_held_out_of_order_or_twice_are_neither_lost_nor_written_twice(bench: Bench) -> None:
    """The order of a task's rows is by micro-batch, then by position."""
    flag = str(bench.folder / "repaired")

    def check(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if row["value"] == "bad" and not os.path.exists(flag):
            raise ValueError("bad")
        return row

    bench.add(("a", 5, "bad"), ("a", 6, "x"))
    thread = bench.start(bench.checking(check))
    bench.wait_for_input()
    for row in [("a", 3, "bad"), ("a", 6, "x"), ("a", 4, "x"), ("a", 7, "x")]:
        bench.add(row)
    bench.wait_for_input()

    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="one")).applied
    wait_until(lambda: [each.position for each in thread.paused_tasks()] == [3])
    wait_until(lambda: bench.positions("a") == [6])
    (bench.folder / "repaired").touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: thread.tasks()[0].held == 0)

    assert sorted(bench.positions("a")) == [3, 4, 6, 6, 7]
