"""The uncaught exception handler and the replacement of threads (KIP-671)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from arrester import UncaughtAnswer
from arrester.agents.config import AgentConfig
from arrester.agents.failures.driver_failure import driver_failure
from arrester.agents.runtime.instance import Ending
from arrester.agents.runtime.runtime import Runtime
from arrester.agents.runtime.thread_protocol import Outbox, ThreadEnd
from arrester.agents.runtime.thread_registry import ThreadSlot
from arrester.agents.runtime.uncaught_handler import UncaughtHandler
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    ApplicationShutdownRequested,
    InstanceStopped,
    InstanceStopping,
    ThreadReplaced,
)
from arrester.domain.state.states import InstanceStatus
from arrester.domain.state.uncaught_policy import Replacements
from tests.agents.fake_thread import FakeThread
from tests.agents.runtime.test_runtime import stored_events
from tests.agents.sample_events import failure
from tests.patience import PATIENCE_SECONDS, wait_until

BROKEN = ValueError("broken")


def always_replace(exception: BaseException) -> UncaughtAnswer:
    return UncaughtAnswer.REPLACE_THREAD


class Handler:
    """A handler as an object that records its calls."""

    def __init__(self, answer: object = UncaughtAnswer.REPLACE_THREAD) -> None:
        self.calls: list[BaseException] = []
        self._answer = answer

    def handle(self, exception: BaseException) -> object:
        self.calls.append(exception)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class Instance:
    """A runtime without Spark, and the threads that it has made."""

    def __init__(self, folder: Path, on_uncaught: object) -> None:
        config = AgentConfig.read("flights", {}, environment={"ARRESTER_SPOOL": str(folder)})
        self.folder = folder
        self.runtime = Runtime(
            config, versions={}, describe=driver_failure, on_uncaught=UncaughtHandler(on_uncaught)
        )
        self.made: list[FakeThread] = []

    def begin(self, *, name: str = "delays", is_global: bool = False) -> FakeThread:
        def make(outbox: Outbox, on_end: Callable[[ThreadEnd], None]) -> FakeThread:
            epoch = 1 + sum(each.pipeline_name == name for each in self.made)
            thread = FakeThread(outbox, on_end, pipeline_name=name, epoch=epoch)
            thread.is_global = is_global
            self.made.append(thread)
            return thread

        return self.runtime.start(make, FakeThread.start)

    def end(self) -> None:
        self.runtime.end(Ending.STOPPED, "enough")

    def events(self) -> list[str]:
        self.end()
        return [event.type for event in stored_events(self.folder)]


def broken() -> ThreadEnd:
    return ThreadEnd("it broke", failure=failure(), exception=BROKEN)


def slot_of(thread: FakeThread) -> ThreadSlot[FakeThread]:
    """Return the slot of a thread in the runtime."""
    assert isinstance(thread.on_end, partial)
    slot: ThreadSlot[FakeThread] = thread.on_end.args[0]
    return slot


def test_without_a_handler_the_instance_ends(tmp_path: Path) -> None:
    instance = Instance(tmp_path, None)
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert instance.runtime.instance.status is InstanceStatus.NOT_RUNNING


@pytest.mark.parametrize(
    "given",
    [
        always_replace,
        Handler(),
        Handler,
        UncaughtAnswer.REPLACE_THREAD,
        "tests.agents.runtime.test_uncaught_handler.always_replace",
        "tests.agents.runtime.test_uncaught_handler.Handler",
    ],
    ids=["function", "object", "class", "answer", "path", "path of a class"],
)
def test_a_thread_is_replaced_after_its_wait(tmp_path: Path, given: object) -> None:
    instance = Instance(tmp_path, given)
    other = instance.begin(name="other")
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(0.3) is None
    assert len(instance.made) == 2
    wait_until(lambda: instance.runtime.registry.threads == (other, *instance.made[2:3]))
    assert (other.alive, instance.made[2].alive) == (True, True)
    events = instance.events()
    assert events.index("ThreadDied") < events.index("ThreadReplaced")
    assert events.count("ThreadStarted") == 3


def test_a_replacement_is_reported_with_its_wait_and_its_run(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    instance.begin().die(broken())
    instance.end()
    [event] = [each for each in stored_events(tmp_path) if isinstance(each.data, ThreadReplaced)]
    assert event.data == ThreadReplaced(reason="it broke", wait_ms=1_000, replacement=1)
    assert event.run is not None
    assert event.run.epoch == 1


def test_an_ending_instance_replaces_nothing(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    instance.begin().die(broken())
    instance.end()
    # The Python thread that would have replaced it has ended.
    wait_until(lambda: "arrester-replace" not in {each.name for each in threading.enumerate()})
    assert len(instance.made) == 1


def test_waiting_continues_while_the_last_thread_is_replaced(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(0.8) is None
    instance.end()


def test_too_many_replacements_end_the_instance(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    thread = instance.begin()
    slot = slot_of(thread)
    now_ms = int(time.time() * 1_000)
    slot.replacements = Replacements((now_ms,) * 10)
    thread.die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED


def test_a_replacement_that_cannot_start_is_a_failure_for_the_handler(tmp_path: Path) -> None:
    answers = iter([UncaughtAnswer.REPLACE_THREAD, UncaughtAnswer.SHUTDOWN_CLIENT])
    calls: list[BaseException] = []

    def handler(exception: BaseException) -> UncaughtAnswer:
        calls.append(exception)
        return next(answers)

    instance = Instance(tmp_path, handler)
    thread = instance.begin()
    cannot = FileNotFoundError("checkpoint")
    slot = slot_of(thread)

    def refuse(thread: FakeThread) -> None:
        raise cannot

    slot.launch = refuse
    thread.die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert calls == [BROKEN, cannot]


def test_a_global_tasks_thread_is_not_replaced(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    instance.begin(is_global=True).die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED


def test_shutdown_thread_does_not_stop_the_others(tmp_path: Path) -> None:
    handler = Handler(UncaughtAnswer.SHUTDOWN_THREAD)
    instance = Instance(tmp_path, handler)
    other = instance.begin(name="other")
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(0.5) is None
    assert instance.runtime.registry.running() == [other]
    assert handler.calls == [BROKEN]
    assert instance.runtime.exception is BROKEN
    instance.end()


def test_default_raises_in_await_termination(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.DEFAULT)
    other = instance.begin(name="other")
    instance.begin().die(broken())
    with pytest.raises(ValueError, match="broken") as caught:
        instance.runtime.termination.wait(PATIENCE_SECONDS)
    assert caught.value is BROKEN
    assert other.alive
    instance.end()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        UncaughtAnswer.SHUTDOWN_CLIENT,
        UncaughtAnswer.SHUTDOWN_APPLICATION,
        UncaughtAnswer.SHUTDOWN_THREAD,
        UncaughtAnswer.DEFAULT,
    ],
)
def test_what_ended_a_run_is_raised_once_in_the_caller(
    tmp_path: Path, answer: UncaughtAnswer | None
) -> None:
    instance = Instance(tmp_path, answer)
    instance.begin().die(broken())
    with pytest.raises(ValueError, match="broken") as caught:
        instance.runtime.termination.wait(PATIENCE_SECONDS)
    assert caught.value is BROKEN
    assert instance.runtime.termination.wait(PATIENCE_SECONDS) is Ending.FAILED
    instance.end()
    instance.runtime.termination.raise_unseen()


def test_a_failure_that_was_not_received_is_raised_after_the_end(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.SHUTDOWN_THREAD)
    instance.begin(name="other")
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(0.1) is None
    instance.end()
    with pytest.raises(ValueError, match="broken"):
        instance.runtime.termination.raise_unseen()


def test_a_caller_that_got_the_ending_gets_no_exception(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.DEFAULT)
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    instance.end()
    instance.runtime.termination.raise_unseen()


def test_a_replaced_thread_is_no_failure_of_the_run(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    instance.begin().die(broken())
    wait_until(lambda: len(instance.made) == 2 and instance.made[1].alive)
    instance.made[1].die(ThreadEnd("the query has come to its end", finished=True))
    assert instance.runtime.termination.wait(PATIENCE_SECONDS) is Ending.FINISHED
    instance.end()


def test_an_exit_in_a_function_of_the_pipeline_ends_no_script_with_success(tmp_path: Path) -> None:
    instance = Instance(tmp_path, None)
    left = SystemExit(0)
    instance.begin().die(ThreadEnd("the sink raised SystemExit", exception=left))
    with pytest.raises(RuntimeError, match="the sink raised SystemExit") as caught:
        instance.runtime.termination.wait(PATIENCE_SECONDS)
    assert caught.value.__cause__ is left


def test_a_superseded_run_has_its_own_ending(tmp_path: Path) -> None:
    instance = Instance(tmp_path, None)
    instance.begin(name="other").die(ThreadEnd("done", finished=True))
    instance.begin().die(ThreadEnd("run 2 owns the checkpoint", superseded=True))
    assert instance.runtime.termination.wait(PATIENCE_SECONDS) is Ending.SUPERSEDED
    instance.end()


@pytest.mark.parametrize("answer", ["REPLACE", None, RuntimeError("handler"), 1])
def test_an_invalid_answer_ends_the_instance(tmp_path: Path, answer: object) -> None:
    instance = Instance(tmp_path, Handler(answer))
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED


def test_superseded_and_finished_threads_call_no_handler(tmp_path: Path) -> None:
    handler = Handler()
    instance = Instance(tmp_path, handler)
    instance.begin().die(ThreadEnd("newer", superseded=True, exception=BROKEN))
    instance.begin(name="other").die(ThreadEnd("done", finished=True))
    assert instance.runtime.termination.wait(PATIENCE_SECONDS) is Ending.SUPERSEDED
    assert handler.calls == []
    instance.end()


def test_shutdown_application_ends_in_error_and_logs_unreached_instances(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.SHUTDOWN_APPLICATION)
    other = instance.begin(name="other")
    instance.begin().die(broken())
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert instance.runtime.instance.status is InstanceStatus.ERROR
    assert not other.alive
    assert "the other instances did not receive the shutdown: there is no server" in caplog.text
    events = stored_events(tmp_path)
    [calls] = [each for each in events if isinstance(each.data, ApplicationShutdownRequested)]
    assert calls.data == ApplicationShutdownRequested(reason="it broke", failure=failure())
    assert calls.run is not None
    stopping, stopped = [each.data for each in events if each.type.startswith("InstanceStop")]
    assert stopping == InstanceStopping(reason="it broke", error=True)
    assert stopped == InstanceStopped(reason="it broke", failure=failure(), error=True)


def test_waiting_continues_until_the_handler_has_returned(tmp_path: Path) -> None:
    waited: list[Ending | None] = []

    def slow(exception: BaseException) -> UncaughtAnswer:
        waited.append(instance.runtime.termination.wait(1))
        return UncaughtAnswer.SHUTDOWN_THREAD

    instance = Instance(tmp_path, slow)
    instance.begin().die(broken())
    assert waited == [None]
    assert instance.runtime.termination.wait(PATIENCE_SECONDS, raises=False) is Ending.FAILED
    assert instance.runtime.exception is BROKEN
    instance.end()


def test_a_removed_thread_is_not_replaced_and_the_others_continue(tmp_path: Path) -> None:
    instance = Instance(tmp_path, UncaughtAnswer.REPLACE_THREAD)
    other, gone = instance.begin(name="other"), instance.begin()
    dying = instance.begin(name="dying")
    dying.die(broken())
    assert instance.runtime.remove("delays")
    assert not instance.runtime.remove("dying")
    assert not instance.runtime.remove("nowhere")
    assert not instance.runtime.remove("delays")
    wait_until(lambda: instance.runtime._dead_threads.replacing == 0)
    assert (other.alive, gone.alive, len(instance.made)) == (True, False, 3)
    assert instance.runtime.remove("other")
    assert instance.runtime.instance.status is InstanceStatus.RUNNING
    assert instance.runtime.termination.wait(PATIENCE_SECONDS) is Ending.FINISHED
    instance.end()
    assert not instance.runtime.remove("other")


@pytest.mark.parametrize("given", ["nowhere.handler", "REPLACE_THREAD", 3, object()])
def test_an_invalid_uncaught_handler_is_refused(given: object) -> None:
    with pytest.raises(InvalidValue, match="on_uncaught"):
        UncaughtHandler(given)
