"""DEAD tasks and threads, on Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndContinue, LogAndFail
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.events import FinalResponse, RecordFailed, TaskDied
from arrester.domain.state.states import TaskStatus, ThreadStatus
from tests.agents.pipeline_bench import Bench, server_state, sink_to
from tests.conformance.cases import Case
from tests.patience import wait_until

Row = dict[str, Any]


def failing() -> Any:
    def check(row: Row) -> Row:
        raise ValueError("bad")

    return check


def check_trace(case: Case, bench: Bench) -> None:
    bench.add(("0_0", 0, "x"))
    bench.start(bench.checking(failing(), LogAndFail()))
    wait_until(lambda: bool(bench.ends))
    assert (case.given["task_fails_with"], case.expect["status"]) == ("exception", "FAILED")
    [task] = server_state(bench.outbox.events).tasks.values()
    assert task.status is TaskStatus.DEAD
    failed = [event for event in bench.outbox.events if isinstance(event.data, RecordFailed)]
    assert failed[-1].body is not None
    assert "Traceback (most recent call last)" in str(failed[-1].body.stack)
    # The next run changes the status of the task.
    bench.start(bench.checking(failing(), LogAndContinue()))
    wait_until(lambda: bench.committed() >= 0)
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.status, task.position) == (TaskStatus.RUNNING, None)


def check_source(case: Case, bench: Bench) -> None:
    polled = F.when(F.col("value") == "boom", F.raise_error(F.lit("poll"))).otherwise(
        F.col("value")
    )
    source = bench.source().withColumn("value", polled.cast("string"))
    pipeline = define("lines", source, task="task", position="position")
    bench.add(("0_0", 0, "x"))
    thread = bench.start(pipeline.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()
    bench.add(("0_0", 1, "boom"))
    wait_until(lambda: bool(bench.ends))
    assert case.expect["task_stopped"] is (thread.state is ThreadStatus.DEAD)
    assert case.expect["offset_flush_attempted"]
    assert (bench.committed(), bench.positions("0_0")) == (0, [0])
    failure = bench.ends[0].failure
    assert failure is not None
    assert failure.stage == "source"
    assert bench.outbox.of(TaskDied) == []
    assert FinalResponse.CONTINUE not in {each.response for each in bench.outbox.of(RecordFailed)}


def check_no_roll_up(case: Case, bench: Bench) -> None:
    """All tasks are DEAD, and the thread goes on."""
    for number in range(2):
        bench.add((f"0_{number}", 0, "x"))
    keys: dict[str, Any] = {"errors_failure_scope": "task"}
    thread = bench.start(bench.checking(failing(), LogAndFail()), **keys)
    bench.wait_for_input()
    assert case.given["all tasks"] == "FAILED"
    assert {task.status for task in thread.tasks()} == {TaskStatus.DEAD}
    assert thread.state == case.expect["connector_state"]


def check_stays_dead(case: Case, bench: Bench) -> None:
    bench.add(("0_0", 0, "x"))
    keys: dict[str, Any] = {"errors_failure_scope": "task"}
    thread = bench.start(bench.checking(failing(), LogAndFail()), **keys)
    for number in (1, 2):
        bench.wait_for_input()
        bench.add(("0_0", number, "x"))
    bench.wait_for_input()
    assert case.given["task"] == "FAILED"
    [task] = thread.tasks()
    assert case.expect["framework_restarts_it"] is (task.status is not TaskStatus.DEAD)
    assert (task.held, thread.state) == (3, ThreadStatus.RUNNING)


def check_ignores_pause(case: Case, bench: Bench) -> None:
    bench.add(("0_0", 0, "x"))
    keys: dict[str, Any] = {"errors_failure_scope": "task"}
    thread = bench.start(bench.checking(failing(), LogAndFail()), **keys)
    bench.wait_for_input()
    assert (case.given["task"], case.given["request"]) == ("FAILED", "pause")
    refused = thread.apply(TaskCommand("0_0", how=TaskAct.PAUSE))
    assert not refused.applied
    assert case.expect["task_state"] == "FAILED until restarted"
    assert [task.status for task in thread.tasks()] == [TaskStatus.DEAD]


CHECKS = {
    ("expect.connector_state", "given.all tasks"): check_no_roll_up,
    ("given.task", "given.request"): check_ignores_pause,
    ("expect.framework_restarts_it",): check_stays_dead,
    ("given.task_fails_with",): check_trace,
    ("given.poll",): check_source,
}
