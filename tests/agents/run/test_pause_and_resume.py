"""PAUSE holds its task only, in order, across micro-batches and restarts (KIP-990)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndPause
from arrester.agents.held.replay_check import PositionsChanged
from arrester.agents.held.store import HeldStore
from arrester.agents.run import query_loop
from arrester.agents.run.micro_batch.commit import Committer
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    RecordFailed,
    RecordsDeadLettered,
    ResumeHow,
    TaskPaused,
    TaskResumed,
)
from arrester.domain.state.states import TaskStatus
from tests.agents.pipeline_bench import Bench, read_sink, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
#: Task keys as hex; the first two are not UTF-8.
KEYS = ("ff", "fe", "61")


def refusing_bad(repaired: Path) -> Callable[[Row], Row]:
    """Return a step that fails on `bad` until the file `repaired` exists."""
    flag = str(repaired)

    def check(row: Row) -> Row:
        import os

        if row["value"] == "bad" and not os.path.exists(flag):
            raise ValueError(f"bad value at {row['position']}")
        return row

    return check


@pytest.fixture
def repaired(bench: Bench) -> Path:
    return bench.folder / "repaired"


def held_at_two(bench: Bench, repaired: Path, **keys: Any) -> Any:
    """Return a running thread whose task `a` is PAUSED at 2 and holds 2 to 5."""
    bench.add(("a", 0, "x"), ("a", 1, "x"), ("a", 2, "bad"), ("a", 3, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(refusing_bad(repaired)), **keys)
    bench.wait_for_input()
    bench.add(("b", 1, "x"), ("a", 4, "x"), ("a", 5, "x"))
    bench.wait_for_input()
    return thread


def test_a_pause_holds_its_task_only(bench: Bench, repaired: Path) -> None:
    thread = held_at_two(bench, repaired)

    assert bench.positions("a") == [0, 1]  # seed: pause-commits-last-good
    assert bench.positions("b") == [0, 1]
    [paused] = thread.paused_tasks()  # seed: paused-listing
    assert (paused.id.key, paused.position, paused.held) == ("a", 2, 4)
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 1)
    [failed] = bench.outbox.of(RecordFailed)
    assert failed.failure.exception_class == "ValueError"
    assert failed.failure.stage == "process:check"
    [body] = [event.body for event in bench.outbox.events if event.body is not None]
    assert body.record == {"task": "a", "position": 2, "value": "bad"}
    assert "ValueError: bad value at 2" in str(body.stack)


@pytest.mark.smoke
def test_resume_after_the_record_runs_held_records_without_new_input(
    bench: Bench, repaired: Path
) -> None:
    thread = held_at_two(bench, repaired)
    command = uuid4()

    outcome = thread.apply(
        TaskCommand(
            "a", how=ResumeHow.SKIP, position=2, command=command, actor="ana", reason="known"
        )
    )

    assert outcome.applied
    wait_until(lambda: bench.positions("a") == [0, 1, 3, 4, 5], what="held rows")
    wait_until(lambda: thread.tasks()[0].held == 0)
    bench.add(("a", 6, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 1, 3, 4, 5, 6]  # seed: skip-then-resume
    bench.stop()
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.status, task.held, task.failed) == (TaskStatus.RUNNING, 0, 1)
    [dead_letter] = bench.dead_letters()
    assert (dead_letter["task"], dead_letter["position"], dead_letter["actor"]) == ("a", 2, "ana")
    assert dead_letter["reason"] == "known"
    assert "ValueError" in dead_letter["stack"]
    [lettered] = bench.outbox.of(RecordsDeadLettered)
    assert (lettered.count, lettered.actor) == (1, "ana")
    assert [each.command for each in bench.outbox.of(CommandApplied)] == [command]


@pytest.mark.parametrize("pauses", [1, 2])
def test_a_skip_is_applied_before_a_held_record_is_read(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch, pauses: int
) -> None:
    """The first pause is that of a micro-batch, the second one that of held records."""
    bench.add(*[("a", n, "bad" if 1 <= n <= pauses else "x") for n in range(4)])
    thread = bench.start(bench.checking(refusing_bad(repaired)))
    bench.wait_for_input()
    if pauses == 2:
        assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="first")).applied
        wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2, what="second pause")
    skip = TaskCommand("a", how=ResumeHow.SKIP, position=pauses, reason="known")
    with monkeypatch.context() as patched, thread._lock.held() as lock:
        patched.setattr(HeldStore, "_read", lambda *_: pytest.fail("held records were read"))
        assert thread._query_loop.opened.apply(lock, skip).applied
        assert thread.tasks()[0].held == 3 - pauses
        assert not thread.is_idle and thread._query_loop.opened.holds_rows
    wait_until(lambda: thread.tasks()[0].held == 0, what="nothing is held")
    bench.stop()
    assert sorted(row["position"] for row in bench.dead_letters()) == [1, 2][:pauses]
    assert bench.positions("a") == [n for n in range(4) if not 1 <= n <= pauses]


def test_resume_after_the_repair_starts_with_the_failed_record(
    bench: Bench, repaired: Path
) -> None:
    thread = held_at_two(bench, repaired)
    repaired.touch()

    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied

    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3, 4, 5], what="held rows")
    assert bench.positions("b") == [0, 1]
    assert bench.dead_letters() == []


def test_resume_without_a_repair_pauses_again_at_the_same_record_and_counts_it_once(
    bench: Bench, repaired: Path
) -> None:
    thread = held_at_two(bench, repaired)

    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied

    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2, what="second pause")
    [paused] = thread.paused_tasks()  # seed: resume-without-skip
    assert (paused.position, paused.held, paused.failed) == (2, 4, 1)
    assert [each.recurrence for each in bench.outbox.of(RecordFailed)] == [False, True]
    assert bench.positions("a") == [0, 1]


@pytest.mark.smoke
def test_a_new_instance_restarts_at_the_failed_record(bench: Bench, repaired: Path) -> None:
    held_at_two(bench, repaired)
    bench.stop()
    repaired.touch()
    bench.add(("a", 6, "x"))

    thread = bench.start(bench.checking(refusing_bad(repaired)))

    bench.wait_for_input()
    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3, 4, 5, 6])  # seed: fix-and-restart
    assert thread.epoch == 2
    wait_until(lambda: bool(bench.outbox.of(TaskResumed)))
    assert [each.how for each in bench.outbox.of(TaskResumed)] == [ResumeHow.RESTART]
    assert [row for row in bench.written() if row[0] == "b"] == [("b", 0), ("b", 1)]


def test_the_same_instance_leaves_the_task_paused(bench: Bench, repaired: Path) -> None:
    instance = uuid4()
    bench.add(("a", 0, "bad"))
    bench.start(bench.checking(refusing_bad(repaired)), instance=instance)
    bench.wait_for_input()
    bench.stop()

    thread = bench.start(bench.checking(refusing_bad(repaired)), instance=instance)

    assert [each.position for each in thread.paused_tasks()] == [0]


def test_only_a_paused_task_resumes_and_the_answer_stays(bench: Bench, repaired: Path) -> None:
    thread = held_at_two(bench, repaired)
    wrong, again = uuid4(), uuid4()

    # seed: resume-fails
    refused = thread.apply(TaskCommand("b", how=ResumeHow.RETRY, command=wrong))
    late = thread.apply(TaskCommand("a", how=ResumeHow.RETRY, position=1, command=again))

    assert (refused.applied, refused.reason) == (
        False,
        "only a PAUSED task can resume; lines_b is RUNNING",
    )
    assert "held at position 2, not 1" in late.reason
    assert thread.answer_to(wrong) == refused
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY, command=again)) == late
    wait_until(lambda: len(bench.outbox.of(CommandRefused)) == 2)


def test_held_rows_run_in_chunks_in_order_and_a_second_failure_pauses_again(
    bench: Bench, repaired: Path
) -> None:
    bench.add(*[("a", n, "bad" if n in (1, 6) else "x") for n in range(8)])
    rates: list[float | None] = []
    write = sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        progress = thread.in_progress
        if progress is not None and progress.input == "held records":
            rates.append(thread.rows_per_second)
        write(df, number)

    checked = bench.define().process("check", refusing_bad(repaired), on_error=LogAndPause())
    thread = bench.start(checked.write(sink), held_chunk_records=2)
    bench.wait_for_input()
    bench.add(*[("a", n, "x") for n in range(8, 12)])
    bench.wait_for_input()

    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="one")).applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2, what="second pause")
    assert bench.positions("a") == [0, 2, 3, 4, 5]
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="two")).applied

    wait_until(lambda: bench.positions("a") == [0, 2, 3, 4, 5, *range(7, 12)], what="all")
    # The rate of a chunk is known after it.
    first, second = rates[:2]
    assert first is None and second is not None and second > 0
    wait_until(lambda: thread.rows_per_second not in rates[1:], what="the rate of the query")
    assert sorted(each["position"] for each in bench.dead_letters()) == [1, 6]
    bench.stop()
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.held, task.failed, task.counters.records_skipped) == (0, 2, 2)


def three_paused(bench: Bench, repaired: Path) -> None:
    """Run a pipeline until the tasks `a`, `b` and `c` are PAUSED at 0, and end it."""
    for position, value in enumerate(("bad", "x", "x")):
        worst = "worst" if position == 1 else value
        bench.add(("a", position, value), ("b", position, worst), ("c", position, value))
    bench.start(bench.checking(refusing_bad(repaired)))
    bench.wait_for_input()
    assert bench.written() == []
    bench.stop()


def test_held_records_of_many_tasks_run_together_and_one_of_them_pauses_again(
    bench: Bench, repaired: Path
) -> None:
    three_paused(bench, repaired)
    repaired.touch()

    def check(row: Row) -> Row:
        if row["value"] == "worst":
            raise ValueError("worst")
        return row

    thread = bench.start(bench.checking(check))

    wait_until(lambda: sum(task.held for task in thread.tasks()) == 2, what="held rows")
    assert len({number for number, _ in read_sink(bench.folder / "out")}) == 1
    for task in "ac":
        assert bench.positions(task) == [0, 1, 2]
    assert bench.positions("b") == [0]
    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("b", 1, 2)
    assert thread.apply(TaskCommand("b", how=ResumeHow.SKIP, position=1, reason="known")).applied
    wait_until(lambda: bench.positions("b") == [0, 2], what="the rest")


def test_the_tasks_of_commands_that_follow_each_other_run_together(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_loop, "_NEXT_COMMAND_SECONDS", 1.0)
    bench.add(*[(task, 0, "bad") for task in "abc"])
    thread = bench.start(bench.checking(refusing_bad(repaired)))
    bench.wait_for_input()
    repaired.touch()

    for task in "abc":
        assert thread.apply(TaskCommand(task, how=ResumeHow.RETRY)).applied

    wait_until(lambda: sum(task.held for task in thread.tasks()) == 0, what="held rows")
    [_] = {number for number, _ in read_sink(bench.folder / "out")}
    assert sorted(bench.written()) == [(task, 0) for task in "abc"]


@pytest.mark.long
def test_held_records_run_task_by_task_if_the_task_expression_changed(
    bench: Bench, repaired: Path
) -> None:
    three_paused(bench, repaired)
    repaired.touch()
    # The records of `a` have the task of the held ones of `b` now.
    changed = F.translate("task", "ab", "ba")

    thread = bench.start(bench.checking(refusing_bad(repaired), task=changed))

    wait_until(lambda: sum(task.held for task in thread.tasks()) == 0, what="held rows")
    assert len({number for number, _ in read_sink(bench.folder / "out")}) == 3
    assert sorted(bench.written()) == [(task, n) for task in "abc" for n in range(3)]
    assert bench.ends == []


def test_an_open_chunk_of_several_tasks_needs_its_task_expression(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_paused(bench, repaired)
    repaired.touch()
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "drained", lambda _: pytest.fail("killed before the entry"))
        bench.start(bench.checking(refusing_bad(repaired)))
        wait_until(lambda: len(bench.ends) == 1, what="the end of the run")
    changed = F.translate("task", "ab", "ba")
    bench.start(bench.checking(refusing_bad(repaired), task=changed))
    wait_until(lambda: len(bench.ends) == 2, what="the refusal")
    assert isinstance(bench.ends[-1].exception, PositionsChanged)
    assert "start once with the former task=" in bench.ends[-1].reason

    thread = bench.start(bench.checking(refusing_bad(repaired)))

    wait_until(lambda: sum(task.held for task in thread.tasks()) == 0, what="held rows")
    assert sorted(bench.written()) == [(task, n) for task in "abc" for n in range(3)]


def test_skipped_records_of_many_tasks_are_stored_together(bench: Bench, repaired: Path) -> None:
    bench.add(("a", 0, "bad"), ("b", 0, "x"), ("b", 1, "bad"), ("a", 1, "x"))
    thread = bench.start(bench.checking(refusing_bad(repaired)))
    bench.wait_for_input()
    commands = {"a": uuid4(), "b": uuid4()}
    with thread._lock.held() as lock:
        for task, command in commands.items():
            skip = TaskCommand(
                task, how=ResumeHow.SKIP, command=command, actor=f"{task}na", reason=f"of {task}"
            )
            assert thread._query_loop.opened.apply(lock, skip).applied
    wait_until(lambda: bench.written() == [("b", 0), ("a", 1)], what="held rows")
    bench.stop()

    stored = {row["task"]: row for row in bench.dead_letters()}
    assert {task: (row["position"], row["reason"]) for task, row in stored.items()} == {
        "a": (0, "of a"),
        "b": (1, "of b"),
    }
    assert stored["a"]["at"] < stored["b"]["at"]
    assert all("bad value" in row["message"] for row in stored.values())
    assert len(list((bench.folder / "dlq").glob("day=*/*"))) == 1
    reported = {
        event.data.task: (event.data.actor, event.caused_by)
        for event in bench.outbox.events
        if isinstance(event.data, RecordsDeadLettered)
    }
    assert reported == {task: (f"{task}na", command) for task, command in commands.items()}


def test_tasks_with_keys_that_are_not_utf8_are_held_separately(
    bench: Bench, repaired: Path
) -> None:
    """Both keys are the same replacement character on the driver."""
    rows = [(key, n, "bad" if (key, n) == ("ff", 1) else "x") for n in range(3) for key in KEYS]
    bench.add(*rows)
    pipeline = bench.checking(refusing_bad(repaired), task=F.unhex("task").cast("string"))

    thread = bench.start(pipeline)
    bench.wait_for_input()
    bench.add(("ff", 3, "x"), ("fe", 3, "x"), ("61", 3, "x"))
    bench.wait_for_input()

    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("0xFF", 1, 3)
    assert bench.positions("ff") == [0]
    assert bench.positions("fe") == bench.positions("61") == [0, 1, 2, 3]
    assert {task.id.key for task in thread.tasks()} == {"0xFF"}
    repaired.touch()
    assert thread.apply(TaskCommand("0xFF", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.positions("ff") == [0, 1, 2, 3], what="held rows")


def test_records_that_python_cannot_read_are_held_and_dead_lettered_unchanged(
    bench: Bench,
) -> None:
    bench.add(("a", 0, "61"), ("a", 1, "C4"), ("a", 2, "62"), ("b", 0, "C4"), ("b", 1, "63"))
    source = bench.source().selectExpr(
        "task",
        "position",
        "cast(unhex(value) as string) as value",
        "if(value = 'C4', date'9999-12-31' + 1, date'2026-01-02') as day",
    )
    builder = define("lines", source, task="task", position="position", value="value")
    pipeline = builder.process("step", lambda row: row, on_error=LogAndPause())

    thread = bench.start(pipeline.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()

    assert bench.written() == [("a", 0)]
    assert {(task.id.key, task.position, task.held) for task in thread.paused_tasks()} == {
        ("a", 1, 2),
        ("b", 0, 2),
    }
    # The events of a decision wait for Spark's commit.
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 2)
    bodies = [event.body.record for event in bench.outbox.events if event.body is not None]
    assert [each and (each["value"], each["day"]) for each in bodies] == [
        ("\ufffd", "+10000-01-01"),
        ("\ufffd", "+10000-01-01"),
    ]
    for task, position in (("a", 1), ("b", 0)):
        assert thread.apply(
            TaskCommand(task, how=ResumeHow.SKIP, position=position, reason="known")
        ).applied
    wait_until(lambda: len(bench.written()) == 3, what="held rows")
    bench.stop()
    assert [each["exception_class"] for each in bench.dead_letters()] == ["Unreadable"] * 2
    assert bench.ends == []


def test_of_many_tasks_that_pause_at_once_a_bounded_number_is_reported_in_full(
    bench: Bench, repaired: Path
) -> None:
    """A service is down, and each customer is a task."""
    tasks = [f"t{n}" for n in range(7)]
    bench.add(*[(task, n, "bad") for n, task in enumerate(tasks)], ("good", 0, "x"))
    thread = bench.start(bench.checking(refusing_bad(repaired)), errors_examples_limit=2)
    # The events of a decision wait for Spark's commit.
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 7)

    assert [each.task for each in bench.outbox.of(RecordFailed)] == tasks
    assert sum(each.body is not None for each in bench.outbox.events) == 2
    assert [each.position for each in bench.outbox.of(TaskPaused)] == list(range(7))
    assert thread.apply(TaskCommand("t5", how=ResumeHow.SKIP, reason="one of them")).applied
    assert thread.apply(TaskCommand("t6", how=ResumeHow.RETRY)).applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 8)
    assert bench.outbox.of(RecordFailed)[-1].recurrence
    [dead_letter] = bench.dead_letters()
    assert (dead_letter["task"], dead_letter["exception_class"]) == ("t5", "ValueError")
    assert bench.written() == [("good", 0)]


def test_of_hundreds_of_stopped_tasks_later_records_are_held(bench: Bench, repaired: Path) -> None:
    tasks = [f"täsk '{n}'" for n in range(250)]
    bench.add(*[(task, n, "bad") for n, task in enumerate(tasks)], ("good", 0, "x"))
    thread = bench.start(bench.checking(refusing_bad(repaired)))
    bench.wait_for_input()
    bench.add(*[(task, 1_000, "x") for task in tasks], ("good", 1, "x"))
    bench.wait_for_input()

    assert bench.written() == [("good", 0), ("good", 1)]
    paused = {task.id.key: (task.position, task.held) for task in thread.paused_tasks()}
    assert paused == {task: (n, 2) for n, task in enumerate(tasks)}
