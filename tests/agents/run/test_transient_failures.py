"""Self-healing failures end no run: its query restarts, a limited number of times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.decisions.rules import SelfHealing
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.agents.handlers import LogAndContinue
from arrester.agents.run.source_retries import SourceRetries
from arrester.agents.run.termination import end_of
from arrester.agents.spark.errors import Problem
from arrester.agents.spark.jvm.exceptions.causes import cause_of
from arrester.agents.spark.jvm.exceptions.problems import problem_of_job
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind
from arrester.domain.error_policy.policy import Response, StageKind
from arrester.domain.events import RecordFailed, TaskDied, ThreadStarted
from tests.agents.pipeline_bench import Bench, sink_to
from tests.agents.sample_events import NOW
from tests.patience import wait_until

KILLED = Problem(exception_class="org.apache.spark.TaskKilledException", message="x")


def test_a_self_healing_failure_restarts_the_query_as_a_thread_is_replaced() -> None:
    settings = ErrorSettings.read({"errors.self.healing.classes": "builtins.InterruptedError"})
    retries = SourceRetries(settings.policy(StageKind.SOURCE), "flights")
    healing = [SelfHealing(KILLED, "a killed task"), InterruptedError("of a transform")] * 5
    waits = []
    for exc in healing:
        waits.append(retries.wait_ms(exc, at=NOW))
        retries.reset()
    assert waits == [1_000 * 2**n for n in range(6)] + [60_000] * 4
    # For the eleventh within an hour the uncaught exception handler is called.
    assert retries.wait_ms(healing[0], at=NOW + timedelta(minutes=59)) is None
    assert retries.wait_ms(healing[0], at=NOW + timedelta(hours=1)) == 1_000
    assert retries.wait_ms(ValueError("no"), at=NOW) is None


def test_a_failure_within_a_micro_batch_counts_once() -> None:
    retries = SourceRetries(ErrorSettings.read({}).policy(StageKind.SOURCE), "flights")
    healing = SelfHealing(KILLED, "a killed task")
    assert retries.decide(healing, at=NOW) == 1_000
    assert retries.wait_ms(healing, at=NOW) == 1_000
    # The same exception again is another failure.
    assert retries.wait_ms(healing, at=NOW) == 2_000


def lose_blocks(spark: SparkSession) -> None:
    """Lose all local checkpoints, as with lost executors."""
    kept: Any = spark.sparkContext._jsc
    for each in kept.getPersistentRDDs().values():
        each.unpersist(True)


class Losing:
    """Loses the blocks a number of times before it does something."""

    def __init__(self, spark: SparkSession, times: int = 1) -> None:
        self.spark = spark
        self.times = times
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.times:
            lose_blocks(self.spark)


def began_again(bench: Bench) -> None:
    """Check that the run continued and no record failed."""
    assert bench.ends == []
    assert len(bench.outbox.of(ThreadStarted)) == 1
    assert bench.outbox.of(TaskDied) == []


@pytest.mark.spark
def test_blocks_lost_before_the_sink_are_not_a_failure_of_the_sink(bench: Bench) -> None:
    losing, write = Losing(bench.spark), sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        losing()
        write(df, number)

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    step = bench.define().process("check", check, on_error=LogAndContinue())
    bench.start(step.write(sink, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    began_again(bench)
    assert losing.calls == 2
    assert bench.positions("a") == [0, 2]
    assert [each["position"] for each in bench.dead_letters()] == [1]
    assert [each.position for each in bench.outbox.of(RecordFailed)] == [1]


@pytest.mark.spark
def test_blocks_lost_before_a_durable_decision_leave_nothing_decided(
    bench: Bench,
) -> None:
    losing = Losing(bench.spark)

    class Handler:
        def handle(self, context: Any, record: Any, exception: Any) -> Response:
            losing()
            return Response.CONTINUE

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    bench.start(bench.checking(check, Handler()))
    bench.wait_for_input()
    bench.stop()
    began_again(bench)
    # It is called again: its first answer was not durable.
    assert losing.calls == 2
    assert bench.positions("a") == [0, 2]
    assert [each["position"] for each in bench.dead_letters()] == [1]


@pytest.mark.spark
def test_sends_that_end_with_a_self_healing_failure_are_repeated(bench: Bench) -> None:
    def sending(file: Path) -> Callable[[dict[str, Any]], None]:
        def send(row: dict[str, Any]) -> None:
            if not file.exists():
                file.touch()
                raise InterruptedError("fenced")
            with file.open("a") as sent:
                sent.write(f"{row['position']} ")

        return send

    file = bench.folder / "sent"
    bench.add(("a", 0, "x"), ("a", 1, "x"))
    pipeline = bench.define().produce(sending(file), on_error=LogAndContinue())
    bench.start(pipeline, errors_self_healing_classes="builtins.InterruptedError")
    wait_until(lambda: bench.committed() == 0 or bool(bench.ends))
    bench.stop()
    began_again(bench)
    assert file.read_text() == "0 1 "


@pytest.mark.spark
def test_a_stage_whose_input_was_lost_too_often_is_identified_by_its_text(
    spark: SparkSession,
) -> None:
    java: Any = spark._jvm
    text = (
        "Job aborted due to stage failure: ResultStage 2 (save) has failed the maximum allowable "
        "number of times: 4. Most recent failure reason:\n"
        "org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output location"
    )
    exc = Py4JJavaError("An error occurred", java.org.apache.spark.SparkException(text))
    for cause in (cause_of(exc), problem_of_job(spark, exc).cause):
        assert DEFAULT_TABLE.classify(cause).kind is Kind.SELF_HEALING
    # A record may be the cause if four executors end with the same task.
    lost = (
        "Job aborted due to stage failure: Task 0 failed 4 times: ExecutorLostFailure (executor 1"
    )
    exc = Py4JJavaError("An error occurred", java.org.apache.spark.SparkException(lost))
    assert DEFAULT_TABLE.classify(cause_of(exc)).kind is Kind.OTHER


@pytest.mark.spark
def test_executors_lost_with_one_task_end_the_run_at_stage_unknown(
    spark: SparkSession,
) -> None:
    """A StackOverflowError in generated code ends the JVM: source or step is unknown."""
    java: Any = spark._jvm
    text = (
        "Job aborted due to stage failure: Task 0 in stage 7.0 failed 4 times, most recent "
        "failure: Lost task 0.3 in stage 7.0 (TID 12) (host executor 3): ExecutorLostFailure "
        "(executor 3 exited caused by one of the running tasks) Reason: Command exited with code 50"
    )
    exc = Py4JJavaError("An error occurred", java.org.apache.spark.SparkException(text))
    end = end_of(exc, stopped=None)
    assert end.failure is not None
    assert end.failure.stage == "unknown"
    assert "executor 3 exited caused by one of the running tasks" in end.reason

    other = java.org.apache.spark.SparkException("Job aborted due to stage failure: no disk")
    end = end_of(Py4JJavaError("An error occurred", other), stopped=None)
    assert end.failure is not None
    assert end.failure.stage == "source"


def test_the_reason_of_an_end_by_a_worker_is_its_exception() -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 9, in main\n'
        "pyspark.errors.exceptions.base.PySparkRuntimeException: [PYTHON_VERSION_MISMATCH] Python "
        "in worker has different version: 3.12 than that in driver: 3.11.\n"
    )
    end = end_of(PythonException(text), stopped=None)
    assert end.reason == (
        "pyspark.errors.exceptions.base.PySparkRuntimeException: [PYTHON_VERSION_MISMATCH] Python "
        "in worker has different version: 3.12 than that in driver: 3.11."
    )


@pytest.mark.spark
def test_the_reason_of_an_end_by_the_jvm_is_its_cause_without_a_trace(bench: Bench) -> None:
    java: Any = bench.spark._jvm
    disk = java.java.io.IOException("No space left on device")

    def sink(df: DataFrame, number: int) -> None:
        aborted = java.org.apache.spark.SparkException("Job aborted due to stage failure: x", disk)
        raise Py4JJavaError("An error occurred while calling o394.save.\n", aborted)

    bench.add(("a", 0, "x"))
    bench.start(bench.define().write(sink))
    wait_until(lambda: bool(bench.ends))
    [end] = bench.ends
    assert end.reason == "the sink raised java.io.IOException: No space left on device"
    assert end.failure is not None
    assert (end.failure.exception_class, end.failure.message) == (
        "java.io.IOException",
        "No space left on device",
    )
