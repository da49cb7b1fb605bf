"""Overrides of error policies: applied at a safe point, before the code's, kept, on Spark."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester import CONTINUE, FAIL, PAUSE, Agent
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.run.query_loop import QueryLoop
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import PolicyCommand
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    FinalResponse,
    PipelineDescribed,
    PolicyChanged,
    RecordFailed,
    TaskDied,
    TaskPaused,
)
from arrester.domain.state.states import TaskStatus, ThreadStatus
from tests.agents.pipeline_bench import Bench, levels_of, server_state, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
CHECK = "process:check"


def check(row: Row) -> Row:
    if row["value"] == "bad":
        raise ValueError("bad")
    if row["value"] == "fatal":
        raise ImportError("hits every record")
    return row


def stepping(bench: Bench, **more: Any) -> Pipeline:
    """Return a pipeline whose handler pauses, and whose `on=` gives FAIL."""
    builder = bench.define(**more).process(
        "check", check, on={ValueError: FAIL}, on_error=LogAndPause()
    )
    return builder.write(sink_to(bench.folder / "out"))


def shown(bench: Bench) -> list[tuple[str, str, str | None]]:
    """Return the last run's policy as the server shows it."""
    [thread] = server_state(bench.outbox.events).threads.values()
    assert thread.policy is not None
    return [(each.name, each.answer, each.actor) for each in thread.policy.commanded]


def test_an_override_precedes_the_code_and_lasts_until_it_is_withdrawn(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    thread = bench.start(stepping(bench))
    bench.wait_for_input()
    command = uuid4()
    outcome = thread.apply(
        PolicyCommand(CHECK, "CONTINUE", command=command, actor="ana", reason="a test")
    )
    assert (outcome.applied, outcome.reason) == (
        True,
        "process:check is answered CONTINUE from the next micro-batch on",
    )
    # Delivered twice, it is applied once.
    assert thread.apply(PolicyCommand(CHECK, "CONTINUE", command=command)) == outcome
    bench.add(("a", 1, "bad"), ("a", 2, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 2]
    wait_until(lambda: len(bench.outbox.of(CommandApplied)) == 1)
    assert shown(bench) == [(CHECK, "CONTINUE", "ana")]
    bench.stop()

    later = bench.start(stepping(bench))
    assert later.apply(PolicyCommand(CHECK, "CONTINUE", command=command)) == outcome
    bench.add(("a", 3, "bad"), ("a", 4, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [0, 2, 4]
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 2)
    first, second = bench.outbox.of(PipelineDescribed)
    assert (first.commanded, len(second.commanded)) == ((), 1)
    assert second.stages == first.stages
    assert shown(bench) == [(CHECK, "CONTINUE", "ana")]

    assert later.apply(PolicyCommand(CHECK, None, actor="ben")).applied
    wait_until(lambda: len(bench.outbox.of(PolicyChanged)) == 2)
    assert shown(bench) == []
    bench.add(("a", 5, "bad"))
    wait_until(lambda: bool(bench.ends))
    wait_until(lambda: len(bench.outbox.of(TaskDied)) == 1)
    answers = [each.response for each in bench.outbox.of(RecordFailed)]
    assert answers == [FinalResponse.CONTINUE, FinalResponse.CONTINUE, FinalResponse.FAIL]


def test_an_override_leaves_fatal_classes_alone_and_an_invalid_one_is_refused(bench: Bench) -> None:
    thread = bench.start(stepping(bench), errors_retries_limit=2)
    unknown = thread.apply(PolicyCommand("process:nope", "FAIL", command=uuid4()))
    assert not unknown.applied
    assert unknown.reason == (
        "lines has no stage process:nope; it has source, process:check, produce"
    )
    assert "has used its retries" in thread.apply(PolicyCommand(CHECK, "RETRY")).reason
    wait_until(lambda: len(bench.outbox.of(CommandRefused)) == 1)
    assert bench.outbox.of(PolicyChanged) == []
    assert thread.apply(PolicyCommand(CHECK, "CONTINUE")).applied
    bench.add(("a", 0, "bad"), ("a", 1, "fatal"), ("a", 2, "x"))
    wait_until(lambda: bool(bench.ends))
    assert bench.written() == []
    assert not thread.apply(PolicyCommand(CHECK, "PAUSE")).applied


def test_a_replay_obeys_decisions_made_before_an_override(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run skips a record, and its sink fails; then FAIL is set."""
    write, broken = sink_to(bench.folder / "out"), [True]

    def sink(df: DataFrame, number: int) -> None:
        if broken:
            raise KeyError("no such table")
        write(df, number)

    def pipeline() -> Pipeline:
        builder = bench.define().process("check", check, on_error=LogAndContinue())
        return builder.write(sink)

    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    bench.start(pipeline())
    wait_until(lambda: bool(bench.ends))
    later = bench.thread(pipeline())
    # Set between the claim and the replay, before any call of the sink.
    start_query = QueryLoop.start_query

    def set_first(loop: QueryLoop) -> None:
        broken.clear()
        assert later.apply(PolicyCommand(CHECK, "FAIL", reason="no more")).applied
        start_query(loop)

    monkeypatch.setattr(QueryLoop, "start_query", set_first)
    later.start(bench.checkpoint)
    wait_until(lambda: bench.positions("a") == [1])
    bench.add(("a", 2, "bad"))
    wait_until(lambda: len(bench.ends) == 2)
    assert later.state is ThreadStatus.DEAD
    assert bench.positions("a") == [1]


def test_an_override_to_pause_or_retry_and_one_of_a_removed_stage(bench: Bench) -> None:
    builder = bench.define().deserialize("number", F.col("value").cast("int"))
    parsing = builder.write(sink_to(bench.folder / "out"))
    thread = bench.start(parsing, errors_retries_limit=1, errors_retries_delay_max_ms=1)
    # The rules decide the result: a cast is not retriable.
    assert thread.apply(PolicyCommand("deserialize", "RETRY")).applied
    assert thread.apply(PolicyCommand("deserialize", "PAUSE", actor="ana")).applied
    bench.add(("a", 0, "bad"), ("b", 0, "7"))
    wait_until(lambda: bool(thread.paused_tasks()))
    bench.wait_for_input()
    assert bench.written() == [("b", 0)]
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 1)
    bench.stop()

    other = bench.start(bench.checking(lambda row: row))
    wait_until(lambda: len(bench.outbox.of(PolicyChanged)) == 3)
    gone = bench.outbox.of(PolicyChanged)[-1]
    assert (gone.stage, gone.answer, gone.actor) == ("deserialize", None, None)
    assert gone.reason == "the pipeline has no such stage any more"
    assert shown(bench) == []
    assert other.is_running


def test_an_override_to_pause_the_global_task_is_fail_and_its_answer_reports_it(
    bench: Bench,
) -> None:
    thread = bench.start(stepping(bench, task=None))
    outcome = thread.apply(PolicyCommand(CHECK, "PAUSE", reason="to see"))
    assert outcome.applied
    assert outcome.reason.endswith("; PAUSE of a task without a key is FAIL")
    bench.add(("a", 0, "bad"))
    wait_until(lambda: bool(bench.ends))
    [state] = thread.tasks()
    assert (state.id.key, state.status) == (None, TaskStatus.DEAD)


def test_an_override_of_the_sink_stage(bench: Bench) -> None:
    write = sink_to(bench.folder / "out")

    def sink(df: DataFrame, number: int) -> None:
        if df.where("value = 'unwritable'").count():
            raise KeyError("no such table")
        write(df, number)

    thread = bench.start(bench.define().write(sink))
    assert thread.apply(PolicyCommand("produce", "CONTINUE")).applied
    bench.add(("a", 0, "unwritable"))
    bench.add(("a", 1, "x"))
    bench.wait_for_input()
    assert bench.positions("a") == [1]


def test_the_authors_code_may_set_an_override(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    with Agent(bench.spark, application="tests") as agent:
        thread = stepping(bench, runner=agent).start(bench.checkpoint)
        assert isinstance(thread, PipelineThread)
        assert agent.set_policy("lines", CHECK, CONTINUE, reason="a test")
        assert not agent.set_policy("lines", "process:nope", PAUSE, reason="a test")
        assert not agent.set_policy("nowhere", CHECK, PAUSE, reason="a test")
        done = "set_policy by the script (a test): "
        applied = f"'lines': {done}{CHECK} is answered CONTINUE from the next micro-batch on"
        assert levels_of(applied, caplog) == ["WARNING"]
        refused = f"'lines': {done}refused: lines has no stage process:nope"
        assert levels_of(refused, caplog) == ["WARNING"]
        no_run = f"'nowhere': {done}refused: it has no RUNNING run in this instance"
        assert levels_of(no_run, caplog) == ["WARNING"]
        with pytest.raises(InvalidValue, match="answer"):
            agent.set_policy("lines", CHECK, "SKIP", reason="x")  # type: ignore[arg-type]  # wrong on purpose
        bench.add(("a", 0, "bad"), ("a", 1, "x"))
        bench.wait_for_input()
        assert bench.positions("a") == [1]
        assert agent.set_policy("lines", CHECK, None, reason="it is over")
