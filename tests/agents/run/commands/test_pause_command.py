"""A task is paused by hand and continues at a position, on Spark."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame

from arrester.agents.definition.builder import define
from arrester.agents.handlers import ErrorContext, LogAndFail, LogAndPause, Record, RecordError
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.run.micro_batch.processor import Processor
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue
from arrester.domain.events import ResumeHow, StateReported, TaskPaused, TaskResumed
from arrester.domain.state import drift
from arrester.domain.state.states import TaskStatus
from tests.agents.pipeline_bench import Bench, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def failing_on(word: str) -> Any:
    def check(row: Row) -> Row:
        if row["value"] == word:
            raise ValueError(word)
        return row

    return check


def skipped(bench: Bench) -> int:
    [state] = server_state(bench.outbox.events).tasks.values()
    return state.counters.records_skipped


def paused(bench: Bench) -> PipelineThread:
    """Return a run whose task `a` holds the records 2 to 6; record 2 fails."""
    bench.add(("a", 0, "x"), ("a", 2, "bad"), ("a", 3, "x"), ("b", 0, "x"))
    bench.add(("a", 5, "x"), ("a", 6, "x"))
    thread = bench.start(bench.checking(failing_on("bad"), LogAndPause()))
    bench.wait_for_input()
    wait_until(lambda: bool(thread.paused_tasks()))
    return thread


def test_records_before_the_position_become_dead_letters_with_the_reason(bench: Bench) -> None:
    thread = paused(bench)
    answer = thread.apply(
        TaskCommand(
            "a", how=ResumeHow.AT, target=4, command=uuid4(), actor="ana", reason="a bad hour"
        )
    )
    assert answer.applied
    assert answer.reason == "resumed at position 4, 2 records skipped"
    wait_until(lambda: bench.positions("a") == [0, 5, 6])
    dead_letters = {row["position"]: row for row in bench.dead_letters()}
    assert sorted(dead_letters) == [2, 3]
    assert {(row["reason"], row["actor"]) for row in dead_letters.values()} == {
        ("a bad hour", "ana")
    }
    assert [dead_letters[position]["exception_class"] for position in (2, 3)] == [
        "ValueError",
        None,
    ]
    [resumed] = bench.outbox.of(TaskResumed)
    assert (resumed.how, resumed.position, resumed.skipped) == (ResumeHow.AT, 4, 2)
    assert skipped(bench) == 2


def test_a_task_continues_at_most_one_after_its_last_held_record(bench: Bench) -> None:
    thread = paused(bench)
    held = [each for saved in thread._claimed.journal.ledger.saved_rows for each in saved.held]
    assert {(each.first, each.last) for each in held} == {(2, 3), (5, 6)}

    def at(target: int) -> str:
        outcome = thread.apply(TaskCommand("a", how=ResumeHow.AT, target=target, reason="x"))
        assert not outcome.applied
        return outcome.reason

    assert "the last record that task 'a' holds is at position 6" in at(8)
    assert "is held at position 2; 1 is before it" in at(1)
    before = thread.paused_tasks()
    assert thread.apply(TaskCommand("a", how=ResumeHow.AT, target=7, reason="x")).applied
    assert [task.status for task in before] == [TaskStatus.PAUSED]
    bench.add(("a", 7, "x"))
    wait_until(lambda: bench.positions("a") == [0, 7])
    wait_until(lambda: sorted(row["position"] for row in bench.dead_letters()) == [2, 3, 5, 6])


def test_a_pause_by_hand_holds_new_records_and_outlives_the_instance(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(failing_on("bad")))
    bench.wait_for_input()
    assert thread.apply(TaskCommand("a", how=TaskAct.PAUSE, actor="ana", reason="an audit")).applied
    bench.add(("a", 1, "x"), ("b", 1, "x"))
    bench.wait_for_input()
    assert (bench.positions("a"), bench.positions("b")) == ([0], [0, 1])
    assert not thread.apply(TaskCommand("a", how=TaskAct.PAUSE)).applied
    assert not thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="x")).applied
    wait_until(lambda: thread.task_weight() == drift.weight(thread.tasks()) != 0)
    thread.report()
    wait_until(lambda: bool(bench.outbox.of(StateReported)))
    [reported] = bench.outbox.of(StateReported)
    assert [(each.task, each.status, each.held) for each in reported.tasks] == [("a", "PAUSED", 1)]
    bench.stop()

    again = bench.start(bench.checking(failing_on("bad")), instance=uuid4())
    bench.add(("a", 2, "x"))
    bench.wait_for_input()
    assert [task.id.key for task in again.paused_tasks()] == ["a"]
    assert bench.positions("a") == [0]
    assert again.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2])
    [paused] = bench.outbox.of(TaskPaused)
    assert (paused.failure, paused.actor, paused.reason) == (None, "ana", "an audit")


def test_a_global_or_dead_task_is_not_paused_by_hand(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    whole = define("whole", bench.source(), position="position")
    thread = bench.start(whole.write(sink_to(bench.folder / "out")))
    bench.wait_for_input()
    refused = thread.apply(TaskCommand(None, how=TaskAct.PAUSE))
    assert not refused.applied
    assert "only a task with a key" in refused.reason
    refused = thread.apply(TaskCommand("a", how=TaskAct.PAUSE))
    assert refused.reason == "whole has one task, without a key: it has no key 'a'"
    bench.stop()

    bench.checkpoint = str(bench.folder / "other")
    bench.add(("b", 0, "bad"), ("b", 1, "x"))
    alone = bench.checking(failing_on("bad"), LogAndFail())
    scope: dict[str, Any] = {"errors_failure_scope": "task"}
    thread = bench.start(alone, **scope)
    wait_until(lambda: any(task.status is TaskStatus.DEAD for task in thread.tasks()))
    refused = thread.apply(TaskCommand("b", how=TaskAct.PAUSE))
    assert refused.reason == "only a RUNNING task can be paused; lines_b is DEAD"
    assert [task.status for task in thread.tasks()] == [TaskStatus.DEAD]


def test_a_pause_by_hand_leaves_a_micro_batch_that_may_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay writes under the same number; only later records are held."""
    write, calls = sink_to(bench.folder / "out"), []

    def sink(df: DataFrame, number: int) -> None:
        write(df, number)
        calls.append(number)
        if len(calls) == 1:
            raise SystemExit("after the write, before Spark's commit")

    process = Processor.process
    requests: list[CommandAnswer] = []

    def pausing(self: Processor, frame: DataFrame, batch: int) -> None:
        if calls and not requests:
            requests.append(
                bench.threads[-1]._query_loop.opened.commands.apply(
                    TaskCommand("a", how=TaskAct.PAUSE)
                )
            )
        process(self, frame, batch)

    monkeypatch.setattr(Processor, "process", pausing)
    bench.add(("a", 0, "x"), ("b", 0, "x"))
    pipeline = bench.define().process("check", failing_on("bad"), on_error=LogAndPause())
    bench.start(pipeline.write(sink))
    wait_until(lambda: bool(bench.ends), what="an end")
    bench.ends.clear()
    bench.add(("a", 1, "x"), ("b", 1, "x"))
    thread = bench.start(pipeline.write(sink))
    bench.wait_for_input()

    assert [each.applied for each in requests] == [True]
    assert sorted(bench.written()) == [("a", 0), ("b", 0), ("b", 1)]
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: len(bench.positions("a")) > 1)
    assert bench.positions("a") == [0, 1]


def test_commands_of_a_handler_or_sink_to_their_own_agent_are_refused(
    bench: Bench,
) -> None:
    refused: list[str] = []
    runs: list[PipelineThread] = []

    def ask() -> None:
        try:
            runs[0].apply(TaskCommand("b", how=TaskAct.PAUSE))
        except InvalidValue as exc:
            refused.append(str(exc))

    class CommandingHandler:
        def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
            ask()
            return Response.CONTINUE

    write = sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        ask()
        write(df, number)

    bench.add(("a", 0, "bad"), ("b", 0, "x"))
    builder = bench.define().process("check", failing_on("bad"), on_error=CommandingHandler())
    runs.append(bench.thread(builder.write(sink)))
    runs[0].start(bench.checkpoint)
    bench.wait_for_input()

    assert (bench.written(), bench.ends) == ([("b", 0)], [])
    assert len(refused) == 2
    assert "from another Python thread" in refused[0]
    # From here on it is accepted.
    assert runs[0].apply(TaskCommand("b", how=TaskAct.PAUSE)).applied
