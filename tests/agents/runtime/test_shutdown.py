"""How an instance ends in each case, within `error.shutdown.timeout.ms`, on Spark (KIP-671)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from arrester import Agent, Ending, UncaughtAnswer
from arrester.domain.events import (
    CommandApplied,
    CommandIssued,
    CommandKind,
    TaskPaused,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire import command_codec
from tests.agents.pipeline_bench import SCHEMA, levels_of, sink_to, write_batch
from tests.agents.redis_server import FoldingSide, Server
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

SOON, PATIENT = 1_500, 60_000


class World:
    """Two pipelines: `good` writes its input; the sink of `slow` waits for `leave`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.entered, self.leave = threading.Event(), threading.Event()
        self._files = 0

    def agent(self, timeout_ms: int, answer: UncaughtAnswer | None = None) -> Agent:
        errors = {"error.shutdown.timeout.ms": timeout_ms}
        return Agent(self._spark, application="flights", errors=errors, on_uncaught=answer)

    def add(self, name: str, value: str) -> None:
        self._files += 1
        row = {"task": "a", "position": self._files, "value": value}
        write_batch(self._folder / "in" / name, self._files, [row])

    def start(self, agent: Agent, name: str) -> None:
        place = self._folder / "in" / name
        place.mkdir(parents=True, exist_ok=True)
        source = self._spark.readStream.schema(SCHEMA).json(str(place))
        pipeline = agent.pipeline(name, source, task="task", position="position", value="value")
        write = sink_to(self._folder / "out" / name)

        def slow(df: DataFrame, number: int) -> None:
            self.entered.set()
            self.leave.wait(PATIENCE_SECONDS)
            write(df, number)

        def raising(df: DataFrame, number: int) -> None:
            if df.where("value = 'bad'").count():
                raise KeyError("no such table")
            write(df, number)

        sink = slow if name == "slow" else raising
        pipeline.write(sink).start(str(self._folder / "checkpoint" / name))

    def written(self, name: str) -> int:
        return len(list((self._folder / "out" / name).glob("*/_SUCCESS")))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("ARRESTER_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    made = World(spark, tmp_path)
    yield made
    made.leave.set()


def agent_threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("arrester-"))


def test_a_graceful_end_waits_for_a_running_sink_and_logs_it(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arrester.agents.runtime.end.shutdown.SOON_SECONDS", 0.1)

    def leave_when_logged() -> None:
        wait_until(lambda: levels_of("the stop waits for batch 0, phase write", caplog) != [])
        world.leave.set()

    world.add("slow", "x")
    with world.agent(PATIENT) as agent:
        world.start(agent, "slow")
        assert world.entered.wait(PATIENCE_SECONDS)
        [thread] = agent._runtime.registry.threads
        assert thread.in_progress is not None
        assert (thread.in_progress.input, thread.in_progress.phase) == ("batch 0", "write")
        assert agent.metrics()["in-progress-seconds"] >= 0
        threading.Thread(target=leave_when_logged, daemon=True).start()
    assert agent.await_termination() is Ending.STOPPED
    assert world.written("slow") == 1


def test_an_end_is_forced_after_its_timeout(world: World) -> None:
    world.add("slow", "x")
    with world.agent(SOON) as agent:
        world.start(agent, "slow")
        assert world.entered.wait(PATIENCE_SECONDS)
    # The sink still runs, and the block has ended nevertheless.
    assert not world.leave.is_set()
    assert agent.state is InstanceStatus.NOT_RUNNING
    assert agent.await_termination() is Ending.STOPPED
    assert world.written("slow") == 0


def test_an_uncaught_exception_ends_the_instance_although_another_thread_hangs(
    world: World,
) -> None:
    world.add("slow", "x")
    world.add("good", "bad")
    with world.agent(SOON, UncaughtAnswer.SHUTDOWN_CLIENT) as agent:
        world.start(agent, "slow")
        assert world.entered.wait(PATIENCE_SECONDS)
        world.start(agent, "good")
        assert agent.await_termination(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert not world.leave.is_set()
    assert isinstance(agent.exception, KeyError)
    assert agent.state is InstanceStatus.NOT_RUNNING


@pytest.mark.parametrize(
    ("timeout_ms", "force", "detail"),
    [
        (PATIENT, False, "stopped"),
        (SOON, False, "stopped by force: the shutdown timeout was over"),
        (PATIENT, True, "stopped by force"),
    ],
    ids=["in time", "by force after its time", "by force at once"],
)
def test_a_command_to_shut_down_is_answered_with_how_it_ended(
    world: World,
    redis_server: Server,
    folding: FoldingSide,
    monkeypatch: pytest.MonkeyPatch,
    timeout_ms: int,
    force: bool,
    detail: str,
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    world.add("slow", "x")
    with world.agent(timeout_ms) as agent:
        world.start(agent, "slow")
        assert world.entered.wait(PATIENCE_SECONDS)
        if timeout_ms == PATIENT and not force:
            world.leave.set()
        command = shut_down(redis_server, agent, force=force)
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    folding.take()
    answers = [each.data for each in folding.events if isinstance(each.data, CommandApplied)]
    assert answers == [CommandApplied(command=command, detail=detail)]


def shut_down(server: Server, agent: Agent, *, force: bool) -> UUID:
    command = CommandIssued(
        command=uuid4(),
        kind=CommandKind.SHUT_DOWN_APPLICATION,
        actor="ana",
        reason="enough",
        force=force,
        instances=(agent.instance,),
        expires_at=datetime.now(UTC) + timedelta(minutes=15),
    )
    server.client.xadd(
        redis_keys.commands("flights"), {"body": command_codec.encode_command(command)}
    )
    return command.command


def test_default_raises_in_the_caller_and_the_other_pipeline_continues(
    world: World,
) -> None:
    caught: list[BaseException] = []
    world.add("good", "x")
    world.add("other", "bad")
    with world.agent(PATIENT, UncaughtAnswer.DEFAULT) as agent:
        world.start(agent, "good")
        world.start(agent, "other")
        try:
            agent.await_termination(PATIENCE_SECONDS)
        except KeyError as exc:  # the user's own
            caught.append(exc)
        assert [str(exc) for exc in caught] == ["'no such table'"]
        assert agent.exception is caught[0]
        assert agent.state is InstanceStatus.RUNNING
        # It is raised once: the caller may wait again for the remaining pipeline.
        assert agent.await_termination(0.5) is None
        world.add("good", "y")
        wait_until(lambda: world.written("good") == 2)
        world.add("good", "bad")
        with pytest.raises(KeyError) as second:
            agent.await_termination(PATIENCE_SECONDS)
        assert second.value is not caught[0]
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.FAILED


def test_background_threads_stop_with_the_instance_and_start_with_a_new_one(
    world: World, redis_server: Server, folding: FoldingSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Agent is one instance and runs once; the next one starts its own threads."""
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    wait_until(lambda: agent_threads() == [])
    for number in range(2):
        agent = world.agent(PATIENT)
        assert agent_threads() == []
        world.start(agent, "good")
        assert {"arrester-sender", "arrester-poller", "arrester-good"} <= set(agent_threads())
        # An instance without a pipeline thread keeps them.
        assert agent.remove_thread("good")
        wait_until(lambda: "arrester-good" not in agent_threads())
        assert {"arrester-sender", "arrester-poller"} <= set(agent_threads())
        world.start(agent, "good")
        pause(redis_server, agent)
        wait_until(lambda number=number: paused(folding) == number + 1)  # type: ignore[misc]
        assert "arrester-commands-good" in agent_threads()
        agent.stop()
        wait_until(lambda: agent_threads() == [])


def pause(server: Server, agent: Agent) -> None:
    (thread,) = agent._runtime.registry.running()
    command = CommandIssued(
        command=uuid4(),
        kind=CommandKind.PAUSE_TASK,
        actor="ana",
        reason="to see",
        pipeline="good",
        checkpoint=thread.checkpoint_id,
        task=str(agent.instance),
        instances=(agent.instance,),
        expires_at=datetime.now(UTC) + timedelta(minutes=15),
    )
    server.client.xadd(
        redis_keys.commands("flights"), {"body": command_codec.encode_command(command)}
    )


def paused(folding: FoldingSide) -> int:
    folding.take()
    return sum(isinstance(each.data, TaskPaused) for each in folding.events)
