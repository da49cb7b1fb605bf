"""A pipeline is paused by hand: nothing begins until it is resumed, on Spark."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame

from arrester import Agent
from arrester.agents.definition.builder import define
from arrester.agents.handlers import LogAndPause
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import PipelineCommand, TaskCommand
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    PipelinePaused,
    PipelineResumed,
    ResumeHow,
)
from arrester.domain.python_versions import UTC
from arrester.domain.state.states import PipelinePause, ThreadStatus
from tests.agents.pipeline_bench import SCHEMA, Bench, levels_of, server_state, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def fails_on_bad(row: Row) -> Row:
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def pause(thread: PipelineThread, until: datetime | None = None) -> CommandAnswer:
    return thread.apply(
        PipelineCommand(pauses=True, until=until, actor="ana", reason="a migration")
    )


def resume(thread: PipelineThread) -> CommandAnswer:
    return thread.apply(PipelineCommand(pauses=False, actor="ben"))


def planned(bench: Bench, batch: int) -> bool:
    """Whether Spark has planned a micro-batch."""
    return Path(bench.checkpoint, "offsets", str(batch)).exists()


def reports(bench: Bench, pause: PipelinePause | None) -> bool:
    """Whether the server has the pause, from the published events of the newest run."""
    threads = server_state(bench.outbox.events).threads.values()
    return [(each.epoch, each.paused) for each in threads] == [(len(bench.threads), pause)]


def test_a_paused_pipeline_begins_no_micro_batch_and_no_held_record(bench: Bench) -> None:
    bench.add(("a", 0, "bad"), ("a", 1, "x"), ("b", 0, "x"))
    thread = bench.start(bench.checking(fails_on_bad, LogAndPause()))
    bench.wait_for_input()

    assert pause(thread) == CommandAnswer(
        applied=True, reason="paused: no micro-batch and no held record begins"
    )
    first = thread.pause
    end = datetime.now(UTC) + timedelta(hours=1)
    changed = pause(thread, until=end)
    assert (changed.applied, changed.reason) == (True, f"PAUSED until {end:%Y-%m-%d %H:%M:%S} UTC")
    assert first is not None
    assert thread.pause == replace(first, until=end)
    bench.add(("b", 1, "x"))
    wait_until(lambda: planned(bench, 1))
    # Commands for tasks are applied; what they let continue waits, too.
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="a typo")).applied
    assert thread.apply(TaskCommand("c", how=TaskAct.PAUSE)).applied
    wait_until(lambda: len(bench.dead_letters()) == 1)
    assert (bench.written(), bench.committed()) == ([("b", 0)], 0)
    assert thread.pause.reason == "a migration"
    wait_until(lambda: reports(bench, thread.pause))
    assert thread.state is ThreadStatus.RUNNING

    assert resume(thread).applied
    refused = resume(thread)
    assert refused.reason == "only a PAUSED pipeline can resume; lines is RUNNING"
    bench.wait_for_input()
    wait_until(lambda: bench.positions("a") == [1])
    assert bench.positions("b") == [0, 1]
    wait_until(lambda: reports(bench, None))


def test_a_micro_batch_in_progress_is_completed(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()
    write = sink_to(bench.folder / "out")

    def slow(df: DataFrame, number: int) -> None:
        entered.set()
        assert leave.wait(PATIENCE_SECONDS)
        write(df, number)

    bench.add(("a", 0, "x"))
    thread = bench.start(bench.define().write(slow))
    assert entered.wait(PATIENCE_SECONDS)
    bench.add(("a", 1, "x"))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(pause, thread)
        leave.set()
        assert answer.result(PATIENCE_SECONDS).applied
    before = bench.positions("a")
    assert before[0] == 0
    assert thread.apply(TaskCommand("c", how=TaskAct.PAUSE)).applied
    assert bench.positions("a") == before
    assert resume(thread).applied
    bench.wait_for_input()
    assert bench.positions("a") == [0, 1]


def test_the_next_run_starts_paused_and_reports_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    thread = bench.start(bench.checking(fails_on_bad))
    assert pause(thread).applied
    bench.add(("a", 0, "x"))
    wait_until(lambda: planned(bench, 0))
    # The stop does not wait for the micro-batch.
    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    assert bench.ends == []

    with caplog.at_level(logging.WARNING, logger="arrester.thread"):
        again = bench.start(bench.checking(fails_on_bad), instance=uuid4())
    assert levels_of("pipeline 'lines' starts PAUSED by ana", caplog) == ["WARNING"]
    assert again.pause == thread.pause
    wait_until(lambda: reports(bench, thread.pause))
    assert len(bench.outbox.of(PipelinePaused)) == 2
    assert again.apply(TaskCommand("c", how=TaskAct.PAUSE)).applied
    assert bench.written() == []

    assert resume(again).applied
    bench.wait_for_input()
    assert bench.written() == [("a", 0)]


def test_a_pause_ends_at_its_time(bench: Bench) -> None:
    thread = bench.start(bench.checking(fails_on_bad))
    now = datetime.now(UTC)
    late = pause(thread, now)
    assert not late.applied
    assert "which is over" in late.reason
    assert pause(thread, now + timedelta(seconds=1)).applied
    bench.add(("a", 0, "x"))
    bench.wait_for_input()
    assert bench.written() == [("a", 0)]
    wait_until(lambda: reports(bench, None))
    [ended] = bench.outbox.of(PipelineResumed)
    assert ended.actor == "pause of ana"


def test_a_run_that_ends_by_itself_waits_for_the_end_of_the_pause(bench: Bench) -> None:
    bench.add(("a", 0, "bad"), ("a", 1, "x"))
    source = bench.spark.read.schema(SCHEMA).json(str(bench.folder / "in"))
    static = (
        define("lines", source, task="task", position="position")
        .process("check", fails_on_bad, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(static)
    wait_until(lambda: thread.is_idle)
    assert pause(thread).applied
    assert thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="a typo")).applied
    wait_until(lambda: len(bench.dead_letters()) == 1)
    thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)

    again = bench.start(static)
    assert again.apply(TaskCommand("c", how=TaskAct.PAUSE)).applied
    assert (again.state, bench.written()) == (ThreadStatus.RUNNING, [])
    assert resume(again).applied
    wait_until(lambda: again.state is ThreadStatus.DEAD)
    assert bench.written() == [("a", 1)]


@pytest.mark.long
def test_available_input_waits_for_the_end_of_the_pause(bench: Bench) -> None:
    thread = bench.start(bench.checking(fails_on_bad))
    assert pause(thread).applied
    bench.stop()
    bench.add(("a", 0, "x"))
    bench.add(("a", 1, "x"))
    again = bench.thread(bench.checking(fails_on_bad))
    again.start(bench.checkpoint, trigger={"availableNow": True})
    wait_until(lambda: planned(bench, 0))
    assert again.apply(TaskCommand("c", how=TaskAct.PAUSE)).applied
    assert (again.state, bench.written()) == (ThreadStatus.RUNNING, [])
    assert resume(again).applied
    wait_until(lambda: again.state is ThreadStatus.DEAD)
    assert bench.written() == [("a", 0), ("a", 1)]
    assert [end.finished for end in bench.ends] == [True]


def test_an_agent_pauses_its_own_pipeline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    agent = Agent(bench.spark, application="tests")
    lines = agent.pipeline("lines", bench.source(), task="task", position="position")
    with agent:
        lines.write(sink_to(bench.folder / "out")).start(bench.checkpoint)
        assert not agent.resume_pipeline("lines")
        assert agent.pause_pipeline("lines", actor="ana", reason="a migration")
        assert agent.pause_pipeline("lines")
        assert not agent.pause_pipeline("nowhere")
        assert "PAUSED" in repr(agent.status())
        bench.add(("a", 0, "x"))
        wait_until(lambda: planned(bench, 0))
        assert bench.written() == []
        assert agent.resume_pipeline("lines")
        assert agent.pause_pipeline("lines", seconds=0.5)
        bench.wait_for_input()
        with pytest.raises(InvalidValue):
            agent.pause_pipeline("lines", seconds=0)
    assert bench.written() == [("a", 0)]
