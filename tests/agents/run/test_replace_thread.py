"""A run that dies is replaced by the same instance, on Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark import SparkContext

from arrester import Agent, Ending, Response, UncaughtAnswer
from arrester.agents.handlers import ErrorContext, Record, RecordError
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.run.thread import PipelineThread
from arrester.domain.state.states import InstanceStatus, TaskStatus, ThreadStatus
from tests.agents.pipeline_bench import Bench
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def own_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)


class ByValue:
    """Answers with the text of the record."""

    def handle(self, context: ErrorContext, record: Record, error: RecordError) -> Response:
        return Response[record.value]


def raising(repaired: str) -> Any:
    def check(row: Row) -> Row:
        import os

        if row["value"] == "PAUSE" or (row["value"] == "FAIL" and not os.path.exists(repaired)):
            raise ValueError(row["value"])
        return row

    return check


def begin(bench: Bench, agent: Agent) -> PipelineThread:
    step = raising(str(bench.folder / "repaired"))
    started = bench.checking(step, ByValue(), runner=agent).start(bench.checkpoint)
    assert isinstance(started, PipelineThread)
    return started


def test_a_replaced_thread_loses_nothing_and_leaves_tasks_paused(bench: Bench) -> None:
    asked: list[BaseException] = []

    def repair(exception: BaseException) -> UncaughtAnswer:
        asked.append(exception)
        (bench.folder / "repaired").touch()
        return UncaughtAnswer.REPLACE_THREAD

    bench.add(("a", 0, "PAUSE"), ("a", 1, "x"), ("b", 0, "x"))
    with Agent(bench.spark, application="tests", on_uncaught=repair) as agent:
        first = begin(bench, agent)
        wait_until(lambda: bool(agent.paused_tasks()))
        bench.wait_for_input()
        bench.add(("b", 1, "FAIL"), ("b", 2, "x"))
        wait_until(lambda: bench.positions("b") == [0, 1, 2])
        assert first.state is ThreadStatus.DEAD
        assert len(asked) == 1
        assert agent.state is InstanceStatus.RUNNING
        states = {task.id.key: task.status for task in agent.tasks()}
        assert states == {"a": TaskStatus.PAUSED, "b": TaskStatus.RUNNING}
        assert agent.await_termination(0.3) is None
    assert bench.positions("a") == []


def test_successive_runs_leave_no_threads_and_files_open(bench: Bench) -> None:
    def left() -> tuple[set[str], int]:
        gateway: Any = SparkContext._gateway
        serving = [
            thread
            for thread in threading.enumerate()
            if "ClientServerConnection" in str(getattr(thread, "_target", None))
        ]
        return set(gateway.gateway_property.pool.dict), len(serving)

    # Java may still release objects of earlier tests.
    before = left()
    for number in range(3):
        bench.add(("a", number, "x"))
        bench.start(bench.checking(lambda row: row))
        bench.wait_for_input()
        bench.stop()
    wait_until(lambda: left()[0] <= before[0] and left()[1] <= before[1] + 1)


def test_by_default_the_exception_that_ended_the_thread_is_raised(bench: Bench) -> None:
    bench.add(("b", 1, "FAIL"))
    with Agent(bench.spark, application="tests", on_uncaught=UncaughtAnswer.DEFAULT) as agent:
        begin(bench, agent)
        with pytest.raises(Exception, match="process:check failed at task 'b', position 1"):
            agent.await_termination(PATIENCE_SECONDS)
        assert agent.state is InstanceStatus.RUNNING


def test_shutdown_thread_ends_one_run_only(bench: Bench) -> None:
    bench.add(("b", 1, "FAIL"))
    answer = UncaughtAnswer.SHUTDOWN_THREAD
    with Agent(bench.spark, application="tests", on_uncaught=answer) as agent:
        thread = begin(bench, agent)
        assert agent.await_termination(PATIENCE_SECONDS, raises=False) is Ending.FAILED
        assert thread.state is ThreadStatus.DEAD
        assert agent.state is InstanceStatus.RUNNING
        assert "position 1" in str(agent.exception)


def restart(agent: Agent, pipeline: str) -> CommandAnswer:
    """Restart a pipeline as a command does, and return the answer."""
    answers: list[CommandAnswer] = []
    agent._runtime.restarts.restart(pipeline, "restarted by ana: new schema", answers.append)
    (answer,) = answers
    return answer


def test_a_restarted_pipeline_goes_on_from_its_checkpoint_and_leaves_tasks_paused(
    bench: Bench,
) -> None:
    bench.add(("a", 0, "PAUSE"), ("a", 1, "x"), ("b", 0, "x"))
    answer = UncaughtAnswer.SHUTDOWN_THREAD
    with Agent(bench.spark, application="tests", on_uncaught=answer) as agent:
        first = begin(bench, agent)
        name = first.pipeline_name
        wait_until(lambda: bool(agent.paused_tasks()) and bench.positions("b") == [0])
        assert restart(agent, name) == CommandAnswer(
            applied=True, reason=f"run 2 of {name} is RUNNING"
        )
        assert first.state is ThreadStatus.DEAD
        bench.add(("b", 1, "x"))
        wait_until(lambda: bench.positions("b") == [0, 1])
        assert {task.id.key for task in agent.paused_tasks()} == {"a"}

        # A failure ends the run; the operator repairs its cause, and restarts the pipeline.
        bench.add(("b", 2, "FAIL"))
        wait_until(lambda: not agent._runtime.registry.running())
        (bench.folder / "repaired").touch()
        assert restart(agent, name).reason == f"run 3 of {name} is RUNNING"
        wait_until(lambda: bench.positions("b") == [0, 1, 2])
        states = {task.id.key: task.status for task in agent.tasks()}
        assert states == {"a": TaskStatus.PAUSED, "b": TaskStatus.RUNNING}
        [slot] = agent._runtime.registry.restartable(name)
        assert slot.replacements.at_ms == ()
        with pytest.raises(Exception, match="position 2"):
            agent.stop()
            agent.await_termination(PATIENCE_SECONDS)
