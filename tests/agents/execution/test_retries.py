"""Attempts on executors: budgets, classes of exceptions, and a stop during a wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from arrester import Response
from arrester.agents.handlers import ErrorContext, LogAndContinue, LogAndFail, Record, RecordError
from arrester.domain.events import (
    FailuresCounted,
    RecordFailed,
    RetriesCounted,
    TaskDied,
    ThreadStarted,
)
from arrester.domain.state.states import Counters, ThreadStatus
from tests.agents.pipeline_bench import Bench, blocks, levels_of, server_state, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
NOW: dict[str, Any] = {"errors_retries_delay_max_ms": 1}


def flaky(folder: Path, error: str = "TimeoutError") -> Callable[[Row], Row]:
    """Return a step that fails n times for the value `n`, and always for `never`."""
    place = str(folder)

    def check(row: Row) -> Row:
        import builtins
        import os

        marks = f"{place}/{row['task']}-{row['position']}"
        os.makedirs(marks, exist_ok=True)
        attempts = len(os.listdir(marks))
        open(f"{marks}/{attempts}", "w").close()
        if row["value"] == "never" or (row["value"].isdigit() and attempts < int(row["value"])):
            raise getattr(builtins, error)("not yet")
        return row

    return check


class RecordingHandler:
    """A handler with given answers, which stores its calls."""

    def __init__(self, answer: Response) -> None:
        self.contexts: list[ErrorContext] = []
        self._answer = answer

    def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
        self.contexts.append(context)
        return self._answer


def counters(bench: Bench, task: str = "a") -> Counters:
    states = server_state(bench.outbox.events).tasks.values()
    return next(state.counters for state in states if state.id.key == task)


def test_a_retriable_failure_is_retried_and_no_record_fails(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "2"), ("b", 0, "1"))
    bench.start(
        bench.checking(flaky(bench.folder / "tries"), LogAndFail()), errors_retries_limit=2, **NOW
    )
    bench.wait_for_input()
    bench.stop()
    assert sorted(bench.written()) == [("a", 0), ("a", 1), ("b", 0)]
    assert bench.outbox.of(RecordFailed) == []
    assert sorted(bench.outbox.of(RetriesCounted), key=lambda each: str(each.task)) == [
        RetriesCounted(task="a", retries=2),
        RetriesCounted(task="b", retries=1),
    ]
    assert (counters(bench).record_failures, counters(bench).total_retries) == (2, 2)
    assert counters(bench).records_skipped == 0


def test_used_retries_are_attempts_of_one_failed_record(bench: Bench) -> None:
    rows = [("a", n, "never") for n in range(5)]
    bench.add(*rows, ("a", 5, "1"), ("a", 6, "x"))
    bench.start(
        bench.checking(flaky(bench.folder / "tries"), LogAndContinue()),
        errors_retries_limit=2,
        errors_examples_limit=2,
        errors_log_enable=True,
        **NOW,
    )
    bench.wait_for_input()
    bench.stop()
    assert bench.positions("a") == [5, 6]
    failed = bench.outbox.of(RecordFailed)
    assert [each.failure.attempts for each in failed] == [3, 3]
    [rest] = bench.outbox.of(FailuresCounted)
    assert (rest.count, rest.failure.attempts) == (3, 3)
    [state] = server_state(bench.outbox.events).tasks.values()
    assert state.failed == 5
    assert state.counters.record_failures == 5 * 3 + 1
    assert state.counters.total_retries == 5 * 2 + 1
    assert state.counters.failures_logged == 5
    assert state.counters.records_skipped == 5


def test_only_classes_of_the_table_are_retried(bench: Bench) -> None:
    bench.add(("a", 0, "1"), ("a", 1, "x"))
    step = flaky(bench.folder / "tries", error="ValueError")
    bench.start(bench.checking(step, LogAndContinue()), errors_retries_limit=5, **NOW)
    bench.wait_for_input()
    bench.stop()
    assert bench.positions("a") == [1]
    [failed] = bench.outbox.of(RecordFailed)
    assert failed.failure.attempts == 1


def test_users_extend_the_table_of_retriable_classes(bench: Bench) -> None:
    bench.add(("a", 0, "1"), ("a", 1, "x"))
    bench.start(
        bench.checking(flaky(bench.folder / "tries", error="ValueError")),
        errors_retries_limit=5,
        errors_retriable_classes="builtins.ValueError",
        **NOW,
    )
    bench.wait_for_input()
    bench.stop()
    assert bench.positions("a") == [0, 1]


def test_a_fatal_class_fails_at_once_without_a_handler(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    recording = RecordingHandler(Response.CONTINUE)
    bench.add(("a", 0, "x"), ("a", 1, "never"))
    step = flaky(bench.folder / "tries", error="PermissionError")
    bench.start(bench.checking(step, recording), errors_retries_limit=5, **NOW)
    wait_until(lambda: bool(bench.ends))
    assert recording.contexts == []
    assert bench.outbox.of(TaskDied)[0].position == 1
    assert levels_of("no handler is called", caplog) == ["DEBUG"]


def test_a_fatal_class_fails_also_with_a_declared_answer(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    bench.add(("a", 0, "x"), ("a", 1, "never"), ("a", 2, "never"))
    step = flaky(bench.folder / "tries", error="PermissionError")
    bench.start(bench.checking(step, LogAndContinue()))
    wait_until(lambda: bool(bench.ends))
    assert bench.outbox.of(TaskDied)[0].position == 1
    assert levels_of("no handler is called", caplog) == ["DEBUG"]
    line = "task 'a', position 1: PermissionError: not yet; it affects every record"
    assert levels_of(line, caplog) == ["DEBUG"]


def test_self_healing_failures_are_left_to_spark(bench: Bench) -> None:
    recording = RecordingHandler(Response.CONTINUE)
    bench.add(("a", 0, "1"))
    bench.start(
        bench.checking(flaky(bench.folder / "tries", error="InterruptedError"), recording),
        errors_self_healing_classes="builtins.InterruptedError",
    )
    bench.wait_for_input()
    # The query was restarted in the same run.
    assert (bench.ends, bench.written()) == ([], [("a", 0)])
    assert len(bench.outbox.of(ThreadStarted)) == 1
    assert recording.contexts == []
    assert bench.outbox.of(TaskDied) == []
    assert bench.outbox.of(RecordFailed) == []


@pytest.mark.parametrize("error", ["ValueError", "TimeoutError"])
def test_an_invalid_retry_is_fail(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    """Not retriable, or without budget: both are FAIL, with a WARN."""
    recording = RecordingHandler(Response.RETRY)
    bench.add(("a", 0, "never"))
    bench.start(
        bench.checking(flaky(bench.folder / "tries", error), recording),
        errors_retries_limit=1,
        **NOW,
    )
    wait_until(lambda: bool(bench.ends))
    assert [each.attempt for each in recording.contexts] == [2 if error == "TimeoutError" else 1]
    assert bench.outbox.of(TaskDied)[0].position == 0
    assert levels_of("RETRY was answered", caplog) == ["WARNING"]


def test_retry_of_a_native_step_runs_the_record_again(bench: Bench, spark: SparkSession) -> None:
    java: Any = spark._jvm
    java.java.lang.System.setProperty("arrester.flaky", "not a number")

    class Repairing:
        def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
            if context.attempt == 2:
                java.java.lang.System.setProperty("arrester.flaky", "7")
            return Response.RETRY

    bench.add(("a", 0, "x"))
    setting = "cast(reflect('java.lang.System', 'getProperty', 'arrester.flaky') as int)"
    pipeline = (
        bench.define()
        .deserialize("number", F.expr(setting), on_error=Repairing())
        .write(sink_to(bench.folder / "out"))
    )
    bench.start(
        pipeline, errors_retries_limit=3, errors_retriable_classes="CAST_INVALID_INPUT", **NOW
    )
    bench.wait_for_input()
    bench.stop()
    assert bench.written() == [("a", 0)]
    assert bench.outbox.of(RetriesCounted) == [RetriesCounted(task="a", retries=2)]
    assert bench.outbox.of(RecordFailed) == []


@pytest.mark.parametrize("last", [Response.FAIL, Response.RETRY])
def test_blocks_of_retried_records_are_released_when_the_run_ends(
    bench: Bench, spark: SparkSession, last: Response
) -> None:
    """One record has passed by then; the other is answered FAIL, or uses its budget."""
    java: Any = spark._jvm
    java.java.lang.System.setProperty("arrester.flaky", "not a number")

    class Repairing:
        def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
            java.java.lang.System.setProperty("arrester.flaky", "7")
            return last if context.position == 1 else Response.RETRY

    kept = blocks(bench.spark)
    bench.add(("a", 0, "x"), ("a", 1, "never"))
    setting = "reflect('java.lang.System', 'getProperty', 'arrester.flaky')"
    number = F.expr(f"cast(if(value = 'never', value, {setting}) as int)")
    builder = bench.define().deserialize("number", number, on_error=Repairing())
    keys: dict[str, Any] = {"errors_retriable_classes": "CAST_INVALID_INPUT"}
    bench.start(builder.write(sink_to(bench.folder / "out")), errors_retries_limit=2, **keys, **NOW)
    wait_until(lambda: bool(bench.ends))
    assert bench.outbox.of(TaskDied)[0].position == 1
    assert blocks(bench.spark) <= kept


def test_a_stop_interrupts_a_wait_and_leaves_the_record_undecided(bench: Bench) -> None:
    tries = bench.folder / "tries"
    bench.add(("a", 0, "never"))
    thread = bench.start(
        bench.checking(flaky(tries), LogAndContinue()),
        errors_retries_limit=-1,
        errors_retries_delay_max_ms=3_600_000,
    )
    wait_until(lambda: tries.exists() and len(list(tries.glob("a-0/*"))) >= 2)
    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    assert thread.state is ThreadStatus.DEAD
    assert bench.ends == []
    assert bench.outbox.of(RecordFailed) == []

    bench.start(bench.checking(flaky(tries), LogAndContinue()), errors_retries_limit=0)
    bench.wait_for_input()
    bench.stop()
    [failed] = bench.outbox.of(RecordFailed)
    assert failed.position == 0


def slow(row: Row) -> Row:

    if row["value"].startswith("bad"):
        time.sleep(0.05)
        raise (TimeoutError if row["value"] == "bad later" else ValueError)("bad")
    return row


@pytest.mark.long
def test_a_handler_receives_the_time_that_the_executors_took(bench: Bench) -> None:
    recording = RecordingHandler(Response.CONTINUE)
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "bad later"))
    bench.start(
        bench.checking(slow, recording), errors_retries_limit=1, errors_retries_delay_max_ms=50
    )
    bench.wait_for_input()
    once, twice = [(each.attempt, each.took_ms or 0) for each in recording.contexts]
    assert (once[0], twice[0]) == (1, 2)
    assert once[1] >= 49
    assert twice[1] >= 98
    bench.stop()

    sent = RecordingHandler(Response.CONTINUE)
    pipeline = bench.define().produce(slow, on_error=sent)
    bench.checkpoint = str(bench.folder / "another")
    bench.start(pipeline, errors_retries_limit=1, errors_retries_delay_max_ms=200)
    bench.wait_for_input()
    wait_until(lambda: len(sent.contexts) == 2)
    assert [each.position for each in sent.contexts] == [1, 2]
    assert [each.took_ms is not None and each.took_ms >= 49 for each in sent.contexts] == [True] * 2
