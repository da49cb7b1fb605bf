"""errors.failure.scope=task: FAIL kills one task, and the others continue (Kafka Connect)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue, LogAndFail, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import (
    FinalResponse,
    RecordFailed,
    ResumeHow,
    TaskDied,
    TaskPaused,
    TaskRestarted,
)
from arrester.domain.state.states import TaskStatus, ThreadStatus
from tests.agents.pipeline_bench import Bench, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
ALONE: dict[str, Any] = {"errors_failure_scope": "task"}


@pytest.fixture
def repaired(bench: Bench) -> Path:
    return bench.folder / "repaired"


def failing(bench: Bench, repaired: Path, handler: Any = LogAndFail()) -> Any:  # noqa: B008
    flag = str(repaired)

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(flag):
            raise ValueError("bad")
        return row

    return bench.checking(check, handler)


def dead(bench: Bench, thread: Any) -> dict[str, int | None]:
    return {
        str(each.id.key): each.position for each in thread.tasks() if each.status is TaskStatus.DEAD
    }


def test_a_dead_task_is_held_until_an_operator_restarts_it(bench: Bench, repaired: Path) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "x"), ("c", 0, "bad"))
    thread = bench.start(failing(bench, repaired), **ALONE)
    bench.wait_for_input()
    bench.add(("a", 3, "x"), ("b", 1, "x"), ("c", 1, "x"))
    bench.wait_for_input()

    assert dead(bench, thread) == {"a": 1, "c": 0}
    assert (bench.positions("a"), bench.positions("b"), bench.positions("c")) == ([0], [0, 1], [])
    refused = thread.apply(TaskCommand("a", how=ResumeHow.RETRY))
    assert (refused.applied, "only a PAUSED task" in refused.reason) == (False, True)
    assert not thread.apply(TaskCommand("b", how=ResumeHow.RESTART)).applied

    assert thread.apply(TaskCommand("a", how=ResumeHow.RESTART, actor="ana")).applied
    wait_until(lambda: len(bench.outbox.of(TaskDied)) == 3, what="the same end again")
    repaired.touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RESTART, actor="ana")).applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3], what="held rows")

    assert thread.state is ThreadStatus.RUNNING
    bench.stop()
    assert [each.alone for each in bench.outbox.of(TaskDied)] == [True] * 3
    assert [each.actor for each in bench.outbox.of(TaskRestarted)] == ["ana", "ana"]
    failed = [each for each in bench.outbox.of(RecordFailed) if each.task == "a"]
    assert [each.recurrence for each in failed] == [False, True]
    tasks = {str(each.id.key): each for each in server_state(bench.outbox.events).tasks.values()}
    assert (tasks["a"].status, tasks["a"].held) == (TaskStatus.RUNNING, 0)
    assert (tasks["c"].status, tasks["c"].held, tasks["c"].failed) == (TaskStatus.DEAD, 2, 1)
    assert bench.dead_letters() == []


def test_a_record_over_the_limit_kills_only_its_task_and_a_restart_counts_from_zero(
    bench: Bench, repaired: Path
) -> None:
    bench.add(("a", 0, "bad"), ("a", 1, "bad"), ("a", 2, "bad"), ("a", 3, "x"), ("b", 0, "bad"))
    thread = bench.start(
        failing(bench, repaired, LogAndContinue()), errors_tolerance_limit=1, **ALONE
    )
    bench.wait_for_input()
    assert dead(bench, thread) == {"a": 1}

    assert thread.apply(TaskCommand("a", how=ResumeHow.RESTART)).applied
    # Its record is skipped now, as the first of a new count; the next one exceeds the limit.
    wait_until(lambda: dead(bench, thread) == {"a": 2})
    assert thread.apply(TaskCommand("a", how=ResumeHow.RESTART)).applied
    wait_until(lambda: bench.positions("a") == [3])
    dead_letters = [
        dead_letter["position"]
        for dead_letter in bench.dead_letters()
        if dead_letter["task"] == "a"
    ]
    assert sorted(dead_letters) == [0, 1, 2]


def test_a_dead_task_stays_dead_in_a_replacement_thread_and_runs_in_a_new_instance(
    bench: Bench, repaired: Path
) -> None:
    bench.add(("a", 0, "bad"), ("b", 0, "x"))
    pipeline = failing(bench, repaired)
    thread = bench.start(pipeline, **ALONE)
    bench.wait_for_input()
    bench.stop()
    bench.add(("a", 1, "x"), ("b", 1, "x"))

    thread = bench.start(pipeline, instance=thread._claimed.event_factory.instance, **ALONE)
    bench.wait_for_input()
    assert dead(bench, thread) == {"a": 0}
    bench.stop()
    repaired.touch()
    bench.start(failing(bench, repaired), **ALONE)
    wait_until(lambda: bench.positions("a") == [0, 1])
    assert bench.positions("b") == [0, 1]


def test_fatal_failures_of_native_steps_kill_each_task_that_has_one(bench: Bench) -> None:
    bench.add(*[(task, n, value) for task in "ab" for n, value in enumerate(("1", "0", "x", "2"))])
    bench.add(("c", 0, "4"))
    number = F.lit(8) / F.col("value").cast("int")
    builder = bench.define().deserialize("number", number, on_error=LogAndContinue())
    keys: dict[str, Any] = ALONE | {"errors_fatal_classes": "CAST_INVALID_INPUT"}
    thread = bench.start(builder.write(sink_to(bench.folder / "out")), **keys)
    bench.wait_for_input()

    assert dead(bench, thread) == {"a": 2, "b": 2}
    assert (bench.positions("a"), bench.positions("c")) == ([0], [0])
    wait_until(lambda: len(bench.outbox.of(TaskDied)) == 2)
    answers = {(each.position, each.response) for each in bench.outbox.of(RecordFailed)}
    assert answers == {(1, FinalResponse.CONTINUE), (2, FinalResponse.FAIL)}


def test_a_failure_of_the_global_task_ends_its_thread_in_any_scope(
    bench: Bench, repaired: Path
) -> None:
    bench.add((None, 0, "bad"), ("b", 0, "x"))
    thread = bench.start(failing(bench, repaired, LogAndPause()), **ALONE)
    wait_until(lambda: thread.state is ThreadStatus.DEAD)
    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.alone) == (None, False)
    assert bench.outbox.of(TaskPaused) == []
