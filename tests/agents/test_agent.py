from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent, Ending, InvalidConfiguration, StartRefused
from arrester.agents.journal.fencing import claim
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.runtime import spark_metrics
from arrester.agents.spark.jvm.versions import SparkRefused
from arrester.domain.errors import ArresterError, InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandIssued,
    CommandKind,
    InstanceStopped,
    StoredEvent,
)
from arrester.domain.identity import redis_keys
from arrester.domain.state.states import InstanceStatus, TaskStatus, ThreadStatus
from arrester.domain.state.stream_state import StreamState, empty
from arrester.domain.wire import command_codec
from tests.agents.flights import World
from tests.agents.pipeline_bench import levels_of
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.spark_gauges import gauges
from tests.histories import POLICY
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

GOOD = [("EWR", n, f"{n},{n}") for n in range(5)]
DIRTY = [("LGA", 0, "1,1"), ("LGA", 1, "NA,1"), ("LGA", 2, "2,2")]
LATE = [("JFK", 0, "3,3"), ("JFK", 1, "1000,3"), ("JFK", 2, "4,4"), ("JFK", 3, "5,5")]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)


@pytest.fixture
def with_redis(redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    yield redis_server


def agent_of(world: World) -> Agent:
    errors = {
        "errors.dlq.enable": True,
        "errors.dlq.path": str(world.folder / "dlq"),
        "error.shutdown.timeout.ms": 30_000,
    }
    return Agent(world.spark, application="flights", errors=errors)


def paused_keys(agent: Agent) -> list[str | None]:
    return [task.id.key for task in agent.paused_tasks()]


def folded(folding: FoldingSide) -> StreamState:
    folding.confirm()
    now = datetime.now(UTC)
    events = [(entry.batch, event) for entry in folding.folded for event in entry.events]
    return empty("flights").fold(
        StoredEvent(application="flights", sequence=n, received_at=now, batch=batch, event=event)
        for n, (batch, event) in enumerate(events, start=1)
    )


def test_ctrl_c_in_the_block_ends_the_script_in_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(KeyboardInterrupt) as raised, agent_of(world):
        raise KeyboardInterrupt
    line = raised.value._render_traceback_()  # type: ignore[attr-defined]  # of IPython
    assert line == ["flights: stopped by Ctrl-C (SIGINT)"]


@pytest.mark.long
def test_an_agent_works_without_a_server(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.arrive("first", [*GOOD, *DIRTY, *LATE])
    agent = agent_of(world)
    with agent:
        world.delays(agent).start(world.checkpoint)
        wait_until(lambda: paused_keys(agent) == ["JFK"])
        wait_until(lambda: world.written("JFK") == [0])
        (task,) = agent.paused_tasks()
        assert (task.position, task.held) == (1, 3)
        assert task.failure is not None
        assert "1000 minutes late" in task.failure.message
        world.arrive("second", [("EWR", 5, "5,5"), ("JFK", 4, "6,6")])
        wait_until(lambda: world.written("EWR") == [0, 1, 2, 3, 4, 5])
        assert world.written("JFK") == [0]
        assert agent.skip(task, reason="a typing error", actor="ana")
        assert not agent.skip(task, reason="again")
        line = "pipeline 'delays', task 'JFK': skip by "
        applied = f"{line}ana (a typing error): resumed past position 1"
        assert levels_of(applied, caplog) == ["WARNING"]
        refused = f"{line}the script (again): refused: only a PAUSED task can resume"
        assert levels_of(refused, caplog) == ["WARNING"]
        wait_until(lambda: world.written("JFK") == [0, 2, 3, 4])
        assert agent.paused_tasks() == []
    assert world.written("LGA") == [0, 2]
    assert world.dead_letters() == 2
    assert not agent.resume(task)


def test_a_superseded_run_resumes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arrester.agents.run.query_loop._OWNED_SECONDS", 1_000.0)
    world.arrive("first", LATE)
    agent = agent_of(world)
    with agent:
        world.delays(agent).start(world.checkpoint)
        wait_until(lambda: paused_keys(agent) == ["JFK"])
        (task,) = agent.paused_tasks()
        (thread,) = agent._runtime.registry.threads
        claim(
            LocalStorage(world.checkpoint),
            application="flights",
            pipeline="delays",
            checkpoint=thread.checkpoint_id,
            instance=uuid4(),
            policy=POLICY,
            now=datetime.now(UTC),
        )

        assert not agent.resume(task)

        wait_until(lambda: thread.state is ThreadStatus.DEAD)


def test_an_agent_reports_its_state_and_metrics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.arrive("first", [*DIRTY, *LATE])
    monkeypatch.setenv("ARRESTER_SPARK_METRICS", "true")
    monkeypatch.setattr(spark_metrics, "PERIOD_SECONDS", 0.1)
    agent = agent_of(world)
    assert agent.state.value == "CREATED"
    with agent:
        world.delays(agent).start(world.checkpoint)
        wait_until(lambda: paused_keys(agent) == ["JFK"])
        assert agent.state is InstanceStatus.RUNNING
        assert agent.await_termination(timeout_seconds=0.1) is None
        metrics = agent.metrics()
        assert metrics["tasks-paused"] == 1
        assert metrics["record-failures"] == 2
        assert metrics["records-skipped"] == metrics["dlq-records-produced"] == 1
        assert metrics["last-failure-timestamp"] > 1e12
        assert metrics["events-spooled"] > 0
        own = {f"delays.{name}": metrics[name] for name in ("record-failures", "tasks-paused")}
        own["delays.records-held"] = 3
        wait_until(lambda: own.items() <= gauges(world.spark, "arrester.flights").items())
        wait_until(lambda: agent.status().pipelines[0].rows_per_second is not None)
        status = agent.status()
        [delays] = status.pipelines
        assert (delays.failed, delays.skipped, delays.held, delays.paused) == (2, 1, 3, 1)
        assert [task.id.key for task in status.stopped] == ["JFK"]
        assert f"instance {agent.instance}: RUNNING\nno server: REDIS_URL is not set" in str(status)
        assert "JFK   PAUSED" in str(status)
        assert "1000 minutes late" in str(status)
        assert "<td" in status._repr_html_()
        assert agent.pause("a new key") and not agent.pause("a new key")
        assert set(paused_keys(agent)) == {"JFK", "a new key"}
    assert agent.state.value == "NOT_RUNNING"
    assert [each.state for each in agent.status().pipelines] == [ThreadStatus.DEAD]
    assert agent.status().pipelines[0].rows_per_second is None
    assert agent.await_termination() is Ending.STOPPED
    assert agent.exception is None
    assert not agent.stopped_by_command
    with pytest.raises(InvalidValue, match="nobody"):
        agent.pause("nobody")


@pytest.mark.long
def test_the_whole_loop_over_redis(world: World, with_redis: Server, folding: FoldingSide) -> None:
    world.arrive("first", [*GOOD, *DIRTY, *LATE])
    agent = agent_of(world)
    with agent:
        world.delays(agent).start(world.checkpoint)
        wait_until(lambda: paused(folded(folding)) == ["JFK"])
        skip = issue(with_redis, agent, folded(folding), CommandKind.SKIP_RECORD)
        wait_until(lambda: applied(folding, skip))
        wait_until(lambda: world.written("JFK") == [0, 2, 3])
        shutdown = issue(with_redis, agent, folded(folding), CommandKind.SHUT_DOWN_APPLICATION)
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.SHUT_DOWN
    assert agent.stopped_by_command
    assert applied(folding, shutdown)
    state = folded(folding)
    assert paused(state) == []
    assert state.application.failed == 2
    assert [each.status for each in state.threads.values()] == [ThreadStatus.DEAD]
    assert state.instances[agent.instance].status is InstanceStatus.NOT_RUNNING
    assert {each.id.key: each.held for each in state.tasks.values()} == {"LGA": 0, "JFK": 0}


def paused(state: StreamState) -> list[str | None]:
    return [task.id.key for task in state.tasks.values() if task.status is TaskStatus.PAUSED]


def applied(folding: FoldingSide, command: CommandIssued) -> bool:
    folding.confirm()
    answers = [each.data for each in folding.events if isinstance(each.data, CommandApplied)]
    return command.command in [answer.command for answer in answers]


def issue(server: Server, agent: Agent, state: StreamState, kind: CommandKind) -> CommandIssued:
    """Relay a command for the paused task, or for the application."""
    about_task = kind is CommandKind.SKIP_RECORD
    task = next((each for each in state.tasks.values() if each.position is not None), None)
    command = CommandIssued(
        command=uuid4(),
        kind=kind,
        actor="ana",
        reason="a typing error",
        pipeline=task.id.pipeline if task and about_task else None,
        checkpoint=task.id.checkpoint if task and about_task else None,
        task=task.id.key if task and about_task else None,
        position=task.position if task and about_task else None,
        instances=(agent.instance,),
        expires_at=datetime.now(UTC) + timedelta(minutes=15),
    )
    server.client.xadd(
        redis_keys.commands("flights"), {"body": command_codec.encode_command(command)}
    )
    return command


def test_a_latched_application_does_not_touch_its_checkpoint(
    world: World, with_redis: Server, folding: FoldingSide
) -> None:
    with_redis.client.set(redis_keys.state("flights"), "LATCHED")
    agent = agent_of(world)
    pipeline = world.delays(agent)
    with pytest.raises(StartRefused):
        pipeline.start(world.checkpoint)
    assert agent.stopped_by_command
    assert not Path(world.checkpoint).exists()
    folding.take()
    assert isinstance(folding.events[-1].data, InstanceStopped)


def test_the_exception_of_a_sink_is_the_exception_of_the_agent(world: World) -> None:
    world.arrive("first", GOOD)
    raised = KeyError("no such table")

    def sink(frame: DataFrame, number: int) -> None:
        raise raised

    with agent_of(world) as agent:
        source = world.source()
        agent.pipeline("copy", source, position="position").write(sink).start(world.checkpoint)
        assert agent.await_termination(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert agent.exception is raised
    assert agent.state is InstanceStatus.NOT_RUNNING


def test_a_record_answered_fail_ends_the_instance(world: World) -> None:
    world.arrive("first", DIRTY)
    with agent_of(world) as agent:
        pipeline = agent.pipeline("strict", world.source(), task="origin", position="position")
        flight = F.from_csv("value", "dep_delay INT, arr_delay INT")
        pipeline.deserialize("flight", flight).write(world.sink).start(world.checkpoint)
        assert agent.await_termination(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert isinstance(agent.exception, ArresterError)
    assert "deserialize failed at task 'LGA', position 1" in str(agent.exception)
    assert [task.status for task in agent.tasks()] == [TaskStatus.DEAD]


def test_a_finished_query_ends_the_wait(world: World) -> None:
    world.arrive("first", GOOD)
    with agent_of(world) as agent:
        world.delays(agent).start(world.checkpoint, trigger={"availableNow": True})
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.FINISHED
    assert world.written("EWR") == [0, 1, 2, 3, 4]


def raising_sink(frame: DataFrame, number: int) -> None:
    raise KeyError("no such table")


def test_a_block_whose_pipeline_failed_unseen_raises_the_failure(world: World) -> None:
    world.arrive("first", GOOD)
    agent = agent_of(world)
    with pytest.raises(KeyError, match="no such table"), agent:
        pipeline = agent.pipeline("copy", world.source(), position="position").write(raising_sink)
        pipeline.start(world.checkpoint)
        wait_until(lambda: not agent.is_running)


def test_an_exception_of_the_block_is_not_replaced_by_a_failure(world: World) -> None:
    world.arrive("first", GOOD)
    agent = agent_of(world)
    with pytest.raises(ZeroDivisionError), agent:
        pipeline = agent.pipeline("copy", world.source(), position="position").write(raising_sink)
        pipeline.start(world.checkpoint)
        wait_until(lambda: not agent.is_running)
        raise ZeroDivisionError


def unawaited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if "nothing was awaited" in each.message]


def test_a_block_that_ends_while_its_pipeline_works_unawaited_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with agent_of(world) as agent:
        world.delays(agent).start(world.checkpoint)
    [message] = unawaited(caplog)
    assert re.search(r"ended \d+ ms after the start of pipeline 'delays'", message)
    assert "call agent.await_termination()" in message


def test_an_end_on_purpose_is_no_forgotten_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with agent_of(world) as agent:
        world.delays(agent).start(world.checkpoint)
        agent.stop()
    with pytest.raises(SystemExit), agent_of(world) as agent:
        world.delays(agent).start(world.checkpoint)
        raise SystemExit(143)
    with agent_of(world) as agent:
        world.delays(agent).start(world.checkpoint)
        agent.await_termination(0.0)
    with agent_of(world):
        pass
    assert unawaited(caplog) == []


def test_spark_connect_is_refused_in_one_line() -> None:
    connect = cast("SparkSession", object())
    with pytest.raises(SparkRefused) as caught:
        Agent(connect, application="flights")
    assert len(str(caught.value).splitlines()) == 1


def test_a_wrong_setting_stops_the_construction(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "localhost:6379")
    with pytest.raises(InvalidConfiguration) as caught:
        Agent(
            spark,
            application="flights",
            errors={"errors.retries.limit": "often"},
            on_uncaught="nowhere.handler",
        )
    names = ["errors.retries.limit", "REDIS_URL", "on_uncaught"]
    assert [fault.name for fault in caught.value.faults] == names
    assert "REDIS_URL: 'localhost:6379' is not allowed" in str(caught.value)


DRIVER = """
    import sys
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.agents.flights import World
    from tests.agents.test_agent import agent_of

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    world = World(spark.getOrCreate(), Path(sys.argv[1]))
    agent = agent_of(world)
"""
IN_A_BLOCK = """
    with agent:
        world.delays(agent).start(world.checkpoint)
        print("started", flush=True)
        agent.await_termination()
"""
WITHOUT_A_BLOCK = """
    world.delays(agent).start(world.checkpoint)
    print("started", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def driver(world: World, server: Server, code: str) -> Iterator[subprocess.Popen[str]]:
    """Run a driver process of its own until its first flights are written."""
    world.arrive("first", GOOD)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER + code), str(world.folder)],
        env=os.environ | {"REDIS_URL": server.url, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        wait_until(lambda: world.written("EWR"))
        yield process


def assert_ended_in_order(folding: FoldingSide, reason: str) -> None:
    state = folded(folding)
    (instance,) = state.instances.values()
    assert instance.status is InstanceStatus.NOT_RUNNING
    assert instance.failure is None
    assert [each.reason for each in state.threads.values()] == [f"stopped: {reason}"]


def test_stop_in_another_python_thread_leaves_the_signal_handlers_to_the_block(
    world: World,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    agent = agent_of(world)
    with agent:
        assert signal.getsignal(signal.SIGTERM) is not before
        other = threading.Thread(target=agent.stop)
        other.start()
        other.join(PATIENCE_SECONDS)
        assert agent.state is InstanceStatus.NOT_RUNNING
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.long
@pytest.mark.chaos
def test_ctrl_c_ends_the_driver_gracefully(
    world: World, redis_server: Server, folding: FoldingSide
) -> None:
    with driver(world, redis_server, IN_A_BLOCK) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
    assert_ended_in_order(folding, "the driver received SIGINT")


@pytest.mark.long
@pytest.mark.chaos
def test_a_driver_that_exits_ends_its_instance(
    world: World, redis_server: Server, folding: FoldingSide
) -> None:
    with driver(world, redis_server, WITHOUT_A_BLOCK) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert_ended_in_order(folding, "the process ends")


@pytest.mark.long
@pytest.mark.chaos
def test_kill_9_loses_no_event_and_sigterm_is_graceful(
    world: World, redis_server: Server, folding: FoldingSide
) -> None:
    redis_server.stop()
    with driver(world, redis_server, IN_A_BLOCK) as process:
        process.kill()
        process.wait(PATIENCE_SECONDS)
    redis_server.start()
    with driver(world, redis_server, IN_A_BLOCK) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 143
    state = folded(folding)
    first, second = sorted(state.instances)
    assert state.instances[first].status is InstanceStatus.RUNNING
    assert state.instances[second].status is InstanceStatus.NOT_RUNNING
    assert [each.epoch for each in state.threads.values()] == [2]
    assert {entry.spool for entry in folding.folded} == {folding.folded[0].spool}
