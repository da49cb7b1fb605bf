from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arrester.agents.config import AgentConfig
from arrester.agents.failures.driver_failure import driver_failure
from arrester.agents.runtime.instance import Ending, IllegalMove
from arrester.agents.runtime.runtime import Runtime
from arrester.agents.runtime.thread_protocol import Outbox, ThreadEnd
from arrester.agents.transport.spool_ownership import open_spool
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    Event,
    InstanceFound,
    InstanceStopped,
    InstanceStopping,
)
from arrester.domain.state.states import InstanceStatus
from arrester.domain.wire import received_batch
from tests.agents.fake_thread import FakeThread
from tests.agents.redis_server import FoldingSide, Server
from tests.agents.sample_events import NOW, failure
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return alone(tmp_path)


def alone(folder: Path, errors: dict[str, object] | None = None, **more: str) -> Runtime:
    environment = {"ARRESTER_SPOOL": str(folder), **more}
    config = AgentConfig.read("flights", errors or {}, environment=environment)
    return Runtime(config, versions={}, describe=driver_failure)


def begin(
    runtime: Runtime, *, kind: type[FakeThread] = FakeThread, **settings: object
) -> FakeThread:
    def make(outbox: Outbox, on_end: Callable[[ThreadEnd], None]) -> FakeThread:
        return kind(outbox, on_end, **settings)  # type: ignore[arg-type]  # for tests

    return runtime.start(make, FakeThread.start)


def stored_events(folder: Path) -> list[Event]:
    """Return the events that an instance has left in its spool."""
    own = open_spool(folder, "flights", limit_bytes=2**30, now=NOW)
    batches = own.spool.unsent(most=1000, most_bytes=2**30)
    own.close()
    events = [event for batch in batches for event in received_batch.decode_batch(batch.events)]
    return [event for event in events if isinstance(event, Event)]


def test_an_instance_runs_and_ends_without_redis(runtime: Runtime, tmp_path: Path) -> None:
    seen = [runtime.instance.status]
    thread = begin(runtime)
    seen.append(runtime.instance.status)
    runtime.end(Ending.STOPPED, "enough")
    seen.append(runtime.instance.status)
    assert seen == [InstanceStatus.CREATED, InstanceStatus.RUNNING, InstanceStatus.NOT_RUNNING]
    assert not thread.alive
    assert runtime.termination.wait(None) is Ending.STOPPED
    assert [event.type for event in stored_events(tmp_path)] == [
        "InstanceStarted",
        "ThreadStarted",
        "InstanceStopping",
        "ThreadDied",
        "InstanceStopped",
    ]


def test_events_are_kept_for_the_next_instance(tmp_path: Path) -> None:
    for _ in range(2):
        runtime = alone(tmp_path)
        begin(runtime)
        runtime.end(Ending.STOPPED, "enough")
    assert len(stored_events(tmp_path)) == 10


def test_a_failure_of_one_thread_stops_all_threads_and_is_the_reason(
    runtime: Runtime, tmp_path: Path
) -> None:
    thread, other = begin(runtime), begin(runtime, pipeline_name="other")
    exception = ValueError("bad")
    thread.die(ThreadEnd("record failed", failure=failure(), exception=exception))
    assert runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert runtime.exception is exception
    assert not other.alive
    assert runtime.instance.status is InstanceStatus.NOT_RUNNING
    assert runtime.instance.state.failure == failure()
    assert runtime.instance.state.reason == "record failed"
    assert isinstance(stored_events(tmp_path)[-1].data, InstanceStopped)


def test_a_superseded_thread_does_not_stop_the_others(runtime: Runtime) -> None:
    thread, other = begin(runtime), begin(runtime, pipeline_name="other")
    thread.die(ThreadEnd("superseded", superseded=True))
    assert runtime.termination.wait(0.5) is None
    assert runtime.registry.running() == [other]
    other.die(ThreadEnd("superseded", superseded=True))
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.SUPERSEDED
    assert runtime.instance.status is InstanceStatus.RUNNING
    runtime.end(Ending.STOPPED, "enough")


def test_the_shutdown_timeout_is_shared_by_all_threads(tmp_path: Path) -> None:
    runtime = alone(tmp_path, {"error.shutdown.timeout.ms": 300})
    stopping = threading.Barrier(3)

    class Together(FakeThread):
        """Stops once all three are stopping: one after the other, none would."""

        def stop(self, reason: str, *, timeout_seconds: float) -> bool:
            stopping.wait(PATIENCE_SECONDS)
            return super().stop(reason, timeout_seconds=timeout_seconds)

    for name in ("a", "b", "c"):
        begin(runtime, kind=Together, pipeline_name=name, busy_seconds=PATIENCE_SECONDS)
    runtime.end(Ending.STOPPED, "enough")
    assert not stopping.broken


def test_a_thread_that_cannot_start_raises_and_is_not_kept(runtime: Runtime) -> None:
    with pytest.raises(FileNotFoundError):
        begin(runtime, cannot_start=FileNotFoundError("checkpoint"))
    assert runtime.registry.threads == ()
    runtime.end(Ending.STOPPED, "enough")


def test_an_ended_instance_cannot_be_reused(runtime: Runtime) -> None:
    begin(runtime)
    runtime.end(Ending.STOPPED, "enough")
    with pytest.raises(InvalidValue, match="an agent that has not ended"):
        begin(runtime)


def test_concurrent_ends_all_wait_for_the_end(runtime: Runtime, tmp_path: Path) -> None:
    begin(runtime, busy_seconds=0.2)
    enders = [
        threading.Thread(target=runtime.end, args=(Ending.STOPPED, "enough")) for _ in range(4)
    ]
    for each in enders:
        each.start()
    for each in enders:
        each.join()
    assert runtime.instance.status is InstanceStatus.NOT_RUNNING
    assert [event.type for event in stored_events(tmp_path)].count("InstanceStopped") == 1


def test_an_agent_that_never_ran_leaves_no_files(runtime: Runtime, tmp_path: Path) -> None:
    runtime.end(Ending.STOPPED, "enough")
    runtime.end(Ending.STOPPED, "enough")
    assert list(tmp_path.iterdir()) == []
    assert runtime.instance.status is InstanceStatus.NOT_RUNNING


def test_an_idle_thread_is_not_awaited(runtime: Runtime) -> None:
    thread = begin(runtime)
    assert runtime.termination.wait(0.5) is None
    thread.is_idle = True
    assert runtime.termination.wait(PATIENCE_SECONDS) is Ending.FINISHED
    assert thread.alive
    runtime.end(Ending.STOPPED, "enough")


def test_only_allowed_transitions_change_the_state(runtime: Runtime) -> None:
    instance = runtime.instance
    with pytest.raises(IllegalMove, match="CREATED cannot become NOT_RUNNING"):
        instance.emit(InstanceStopped(reason="too early"))
    begin(runtime)
    with pytest.raises(IllegalMove, match="RUNNING cannot become ERROR"):
        instance.emit(InstanceStopped(reason="too early", error=True))
    with pytest.raises(IllegalMove, match="does not emit InstanceFound"):
        instance.emit(InstanceFound())
    runtime.end(Ending.STOPPED, "enough")
    before = instance.state
    instance.emit(InstanceStopping(reason="late"))
    assert instance.state == before
    with pytest.raises(IllegalMove, match="NOT_RUNNING cannot become PENDING_ERROR"):
        instance.emit(InstanceStopping(reason="late", error=True))


def test_a_process_that_exits_ends_its_instance(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from tests.agents.runtime.test_runtime import alone, begin

        begin(alone(Path(sys.argv[1])))
    """
    subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), str(tmp_path)],
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert [event.type for event in stored_events(tmp_path)][-2:] == [
        "ThreadDied",
        "InstanceStopped",
    ]


@contextmanager
def running_process(folder: Path, server: Server) -> Iterator[subprocess.Popen[str]]:
    """Run an instance with a thread in a process of its own, which waits for its end."""
    code = """
        import sys
        from pathlib import Path
        from arrester.agents.runtime.instance import Ending
        from arrester.agents.runtime.end.signals import exit_on_signals
        from tests.agents.runtime.test_runtime import alone, begin

        runtime = alone(Path(sys.argv[1]), REDIS_URL=sys.argv[2])
        begin(runtime)
        try:
            with exit_on_signals():
                print("started", flush=True)
                runtime.termination.wait(None)
        finally:
            runtime.end(Ending.STOPPED, "the block ended")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder), server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process


@pytest.mark.chaos
def test_kill_9_loses_no_event_and_sigterm_ends_the_next_instance_in_order(
    tmp_path: Path, redis_server: Server, folding: FoldingSide
) -> None:
    redis_server.stop()
    with running_process(tmp_path, redis_server) as process:
        process.kill()
    redis_server.start()
    with running_process(tmp_path, redis_server) as process:
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    folding.confirm()
    assert [event.type for event in folding.events] == [
        "InstanceStarted",
        "ThreadStarted",
        "InstanceStarted",
        "ThreadStarted",
        "InstanceStopping",
        "ThreadDied",
        "InstanceStopped",
    ]
    first, *second = (
        event.instance for event in folding.events if event.type.startswith("Instance")
    )
    assert second == second[:1] * 3 != [first] * 3
    assert {entry.spool for entry in folding.folded} == {folding.folded[0].spool}


def test_an_end_does_not_wait_for_a_blocked_start(runtime: Runtime) -> None:
    stopped = threading.Event()

    class Waiting(FakeThread):
        def stop(self, reason: str, *, timeout_seconds: float) -> bool:
            stopped.set()
            return True

    def launch(thread: FakeThread) -> None:
        runtime.end_soon(Ending.STOPPED, "stop")
        assert stopped.wait(PATIENCE_SECONDS)
        raise InterruptedError("given up")

    with pytest.raises(InterruptedError):
        runtime.start(lambda outbox, died: Waiting(outbox=outbox, on_end=died), launch)
    assert runtime.registry.running() == []
