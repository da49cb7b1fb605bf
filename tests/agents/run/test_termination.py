"""Ends of a run: FAIL, sinks that raise, handlers, positions; and the replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import (
    ErrorContext,
    Handler,
    LogAndContinue,
    LogAndFail,
    LogAndPause,
    Record,
    RecordError,
)
from arrester.agents.run.micro_batch import commit
from arrester.domain.events import (
    FailuresCounted,
    FinalResponse,
    RecordFailed,
    RecordsDeadLettered,
    TaskDied,
    TaskRestarted,
    ThreadDied,
    ThreadStarted,
)
from arrester.domain.state.states import TaskStatus, ThreadStatus
from tests.agents.pipeline_bench import Bench, levels_of, server_state, sink_to
from tests.parameters import long_for
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def local_raising_on_bad() -> Any:
    """Return the step as a function that travels by value: workers do not have this module."""

    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        if row["value"] == "exit":
            raise SystemExit(3)
        return row

    return check


def test_fail_ends_the_run_and_decides_nothing(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "bad"))
    thread = bench.start(bench.checking(local_raising_on_bad(), LogAndFail()))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert end.failure is not None
    assert "process:check failed at task 'a', position 1: ValueError: bad" in end.reason
    assert thread.state is ThreadStatus.DEAD
    assert bench.written() == []
    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.position) == ("a", 1)
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.task, failed.response) == ("a", FinalResponse.FAIL)
    assert len(bench.outbox.of(ThreadDied)) == 1
    # It is still in the source: a dead letter each time would duplicate it.
    assert (bench.dead_letters(), bench.outbox.of(RecordsDeadLettered)) == ([], [])


def test_the_next_run_continues_the_dead_task_and_counts_the_record_once(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"))
    bench.start(bench.checking(local_raising_on_bad(), LogAndFail()))
    wait_until(lambda: len(bench.ends) == 1)
    bench.start(bench.checking(local_raising_on_bad(), LogAndFail()))
    wait_until(lambda: len(bench.ends) == 2)

    bench.start(bench.checking(local_raising_on_bad(), LogAndContinue()))
    wait_until(lambda: bench.committed() == 0)
    bench.stop()

    assert bench.positions("a") == [0]
    assert [each.count for each in bench.outbox.of(RecordFailed)] == [1, 0, 0]
    assert len(bench.outbox.of(TaskRestarted)) == 2
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.status, task.failed) == (TaskStatus.RUNNING, 1)


def test_pause_on_the_global_task_is_fail(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.add(("a", 0, "bad"))
    bench.start(bench.checking(local_raising_on_bad(), LogAndPause(), task=None))
    wait_until(lambda: bool(bench.ends))

    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.position) == (None, 0)
    assert levels_of("PAUSE was answered where nothing can be held", caplog) == ["WARNING"]


def test_system_exit_in_a_step_is_a_failed_record(bench: Bench) -> None:
    bench.add(("a", 0, "exit"), ("a", 1, "x"))
    bench.start(bench.checking(local_raising_on_bad(), LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    assert bench.positions("a") == [1]
    [failed] = bench.outbox.of(RecordFailed)
    assert failed.failure.exception_class == "SystemExit"


def test_a_sink_that_exits_ends_the_run_and_the_replay_obeys_its_decisions(
    bench: Bench,
) -> None:
    """A record that would pass now stays skipped; a paused task stays paused."""
    flag = bench.folder / "repaired"
    place = str(flag)

    def check(row: Row) -> Row:
        import os

        if row["value"] in ("bad", "worse") and not os.path.exists(place):
            raise ValueError(row["value"])
        return row

    class Worse:
        def handle(
            self, context: ErrorContext, record: Record, error: RecordError
        ) -> FinalResponse:
            return FinalResponse.PAUSE if record.value == "worse" else FinalResponse.CONTINUE

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    bench.add(("a", 3, "worse"), ("a", 4, "x"), ("b", 5, "bad"), ("b", 6, "x"))
    calls: list[int] = []
    sink = sink_to(bench.folder / "out")

    def second_time(df: DataFrame, number: int) -> None:
        calls.append(number)
        if number == 1:
            raise SystemExit(7)
        sink(df, number)

    step = bench.define().process("check", check, on_error=Worse())
    bench.start(step.write(second_time))
    wait_until(lambda: bool(bench.ends))
    [end] = bench.ends
    assert isinstance(end.exception, SystemExit)
    assert end.failure is not None
    assert end.failure.stage == "produce"
    assert bench.outbox.of(TaskDied) == []

    flag.touch()
    bench.start(step.write(sink))
    bench.wait_for_input()
    wait_until(lambda: bench.positions("a") == [0, 2, 3, 4])
    bench.stop()

    assert bench.positions("b") == [6]
    assert sorted(each["position"] for each in bench.dead_letters()) == [1, 5]
    assert sum(each.count for each in bench.outbox.of(RecordFailed)) == 3
    assert calls == [0, 1]


@pytest.mark.parametrize("in_entry", [0, 5_000])
def test_a_replay_skips_records_listed_in_the_entry_or_in_a_folder(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, in_entry: int
) -> None:
    monkeypatch.setattr(commit, "IN_ENTRY", in_entry)
    flag = str(bench.folder / "repaired")

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(flag):
            raise ValueError("bad")
        return row

    def exits(df: DataFrame, number: int) -> None:
        raise SystemExit(7)

    bench.add(("a", 0, "bad"), ("a", 1, "x"), ("ü'", 1, "bad"), ("ü'", 2, "x"), ("a", None, "x"))
    source = bench.define(on_error=LogAndContinue())
    step = source.process("check", check, on_error=LogAndContinue())
    bench.start(step.write(exits))
    wait_until(lambda: bool(bench.ends))
    assert (bench.folder / "checkpoint/arrester/held").exists() is (in_entry == 0)

    (bench.folder / "repaired").touch()
    bench.start(step.write(sink_to(bench.folder / "out")))
    wait_until(lambda: bench.committed() == 0 or len(bench.ends) > 1)
    bench.stop()

    assert sorted(bench.written()) == [("a", 1), ("ü'", 2)]
    assert sum(each.count for each in bench.outbox.of(RecordFailed)) == 3


def test_positions_that_are_null_or_not_unique_are_failures_of_their_records(
    bench: Bench,
) -> None:
    bench.add(("a", 0, "x"), (None, None, "x"), ("a", 1, "y"), ("a", 1, "bad"), ("b", 1, "x"))
    pipeline = (
        bench.define(on_error=LogAndContinue())
        .process("check", local_raising_on_bad())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()

    assert sorted(bench.written()) == [("a", 0), ("b", 1)]
    failed = {each.failure.exception_class: each for each in bench.outbox.of(RecordFailed)}
    assert set(failed) == {"PositionMissing", "PositionNotUnique"}
    missing = failed["PositionMissing"].failure
    assert missing.stage == "source"
    # The pipeline has a task column: there is no global task, but one whose key is NULL.
    assert "the position is NULL in the task without a key" in missing.message
    assert sum(each.count for each in bench.outbox.of(RecordFailed)) == 3
    assert len({each["id"] for each in bench.dead_letters()}) == 3


def test_a_task_or_a_position_that_raises_is_a_failure_of_its_record(bench: Bench) -> None:
    """A record without a task is not one of the global task, which has the same position."""
    bench.add(("1", 0, "0"), ("x", 1, "1"), ("2", 0, "x"), ("2", 1, "1"), ("", 1, "1"))
    task = F.when(F.col("task") != "", F.col("task").cast("int"))
    position = F.col("value").cast("long")
    builder = bench.define(task=task, position=position, on_error=LogAndContinue())
    bench.start(builder.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()
    bench.stop()

    assert sorted(bench.written()) == [("", 1), ("1", 0), ("2", 1)]
    failed = bench.outbox.of(RecordFailed)
    assert {(each.task, each.position, each.failure.exception_class) for each in failed} == {
        (None, None, "TaskRaised"),
        ("2", None, "PositionRaised"),
    }
    assert {each.failure.stage for each in failed} == {"source"}
    dead_letters = {each["exception_class"]: each for each in bench.dead_letters()}
    assert "the expression of the task raised" in dead_letters["TaskRaised"]["message"]
    assert "the expression of the position raised" in dead_letters["PositionRaised"]["message"]
    # With Spark's message, reproduced for the record.
    assert {each.failure.condition for each in failed} == {"CAST_INVALID_INPUT"}
    assert "The value 'x' of the type" in failed[0].failure.message


def test_pause_of_a_record_without_a_position_is_fail(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(("a", None, "x"), ("a", 1, "x"))
    bench.start(reading(bench, LogAndPause()))
    wait_until(lambda: bool(bench.ends))

    assert "the position is NULL in task 'a'" in bench.ends[0].reason
    assert levels_of("PAUSE was answered where nothing can be held", caplog) == ["WARNING"]


def test_a_missing_position_ends_the_run_by_default(bench: Bench) -> None:
    bench.add(("a", None, "x"))
    bench.start(bench.checking(lambda row: row))
    wait_until(lambda: bool(bench.ends))

    assert "the position is NULL in task 'a'" in bench.ends[0].reason


def reading(bench: Bench, on_error: Handler) -> Pipeline:
    """Return a pipeline with `on_error` for its source."""
    builder = bench.define(on_error=on_error).process("check", local_raising_on_bad())
    return builder.write(sink_to(bench.folder / "out"))


def test_records_without_a_position_are_never_a_recurrence(bench: Bench) -> None:
    bench.add(*[("a", None, "x")] * 3)
    bench.start(reading(bench, LogAndFail()))
    wait_until(lambda: bool(bench.ends))
    bench.start(reading(bench, LogAndContinue()), errors_examples_limit=1)
    wait_until(lambda: bench.committed() == 0)
    bench.stop()

    assert [each.recurrence for each in bench.outbox.of(RecordFailed)] == [False, False]
    assert [each.count for each in bench.outbox.of(FailuresCounted)] == [2]


def test_of_records_at_one_position_one_is_a_recurrence(bench: Bench) -> None:
    bench.add(("a", 1, "x"), ("a", 1, "bad"), ("a", 2, "y"))
    bench.start(reading(bench, LogAndFail()))
    wait_until(lambda: bool(bench.ends))
    bench.start(reading(bench, LogAndContinue()))
    wait_until(lambda: bench.committed() == 0)
    bench.stop()

    assert [each.recurrence for each in bench.outbox.of(RecordFailed)] == [False, True, False]
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.failed, task.counters.records_skipped) == (2, 2)


def test_a_handler_is_called_once_per_record_in_order_and_receives_it(bench: Bench) -> None:
    seen: list[tuple[str | None, int | None, str]] = []

    class RecordingHandler:
        def handle(
            self, context: ErrorContext, record: Record, error: RecordError
        ) -> FinalResponse:
            assert context.stage == "process:check"
            assert record.row["value"] == record.value
            seen.append((context.task, context.position, error.exception_class))
            return FinalResponse.PAUSE if context.position == 2 else FinalResponse.CONTINUE

    bench.add(*[(task, n, "bad") for task in "ba" for n in (3, 1, 2)])
    bench.start(bench.checking(local_raising_on_bad(), RecordingHandler()))
    bench.wait_for_input()

    assert seen == [(task, n, "ValueError") for task in "ab" for n in (1, 2)]


@pytest.mark.parametrize("answer", long_for(["RETRY?", None, 3], [None, 3]))
def test_an_invalid_answer_of_a_handler_means_fail(bench: Bench, answer: object) -> None:
    class Confused:
        def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Any:
            return answer

    bench.add(("a", 0, "bad"))
    bench.start(bench.checking(local_raising_on_bad(), Confused()))
    wait_until(lambda: bool(bench.ends))


def test_a_handler_that_exits_means_fail(bench: Bench) -> None:
    class Exiting:
        def handle(
            self, context: ErrorContext, record: Record, error: RecordError
        ) -> FinalResponse:
            raise SystemExit

    bench.add(("a", 0, "bad"))
    bench.start(bench.checking(local_raising_on_bad(), Exiting()))
    wait_until(lambda: bool(bench.ends))
    assert len(bench.outbox.of(TaskDied)) == 1


def test_a_failed_source_ends_the_run_and_isolates_no_record(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    thread = bench.start(bench.checking(lambda row: row))
    bench.wait_for_input()
    for part in (Path(bench.checkpoint) / "offsets").glob("*"):
        part.unlink()
    (Path(bench.checkpoint) / "offsets").rmdir()
    (Path(bench.checkpoint) / "offsets").write_text("not a folder")
    bench.add(("a", 1, "x"))
    wait_until(lambda: bool(bench.ends))

    assert thread.state is ThreadStatus.DEAD
    assert bench.outbox.of(TaskDied) == []
    [died] = bench.outbox.of(ThreadDied)
    assert died.failure is not None
    assert died.failure.stage == "source"


def test_each_run_reports_its_start_and_its_end(bench: Bench) -> None:
    bench.start(bench.checking(lambda row: row))
    bench.stop()
    bench.start(bench.checking(lambda row: row))
    bench.stop()

    assert len(bench.outbox.of(ThreadStarted)) == len(bench.outbox.of(ThreadDied)) == 2
    assert bench.outbox.of(FailuresCounted) == []
    assert bench.ends == []
