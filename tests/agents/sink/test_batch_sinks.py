"""Records that a sink or `send` rejects: KIP-210 on Spark."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndFail, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.error_policy.policy import Response
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    FinalResponse,
    RecordFailed,
    ResumeHow,
    RetriesCounted,
    TaskDied,
    TaskPaused,
)
from tests.agents.pipeline_bench import Bench, levels_of, server_state
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
Sent = tuple[str, int]


class Post:
    """A file that executors send rows to: one line for each, in order of arrival."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "sent"
        self.repaired = folder / "repaired"

    def sender(self) -> Callable[[Row], None]:
        """Return a `send` that fails as `value` demands, until it is repaired."""
        file, repaired = str(self.file), str(self.repaired)

        def send(row: Row) -> None:
            where = f"{row['task']}:{row['position']}"
            if not os.path.exists(repaired):
                if row["value"] == "bad":
                    raise ValueError(f"refused {where}")
                if row["value"] == "full":
                    raise BufferError(f"no room for {where}")
                if row["value"] == "slow":
                    tries = f"{file}.tries.{row['task']}.{row['position']}"
                    with open(tries, "a") as counted:
                        counted.write("x")
                    if os.path.getsize(tries) < 3:
                        raise TimeoutError(f"too slow {where}")
            with open(file, "a") as sent:
                sent.write(json.dumps([row["task"], row["position"]]) + "\n")

        return send

    def sent(self) -> list[Sent]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [(task, position) for task, position in map(json.loads, lines)]

    def of(self, task: str) -> list[int]:
        return [position for each, position in self.sent() if each == task]


@pytest.fixture
def post(bench: Bench) -> Post:
    return Post(bench.folder)


class RecordingHandler:
    """Answers by value, and records its calls."""

    def __init__(self, **answers: Response) -> None:
        self.answers = answers
        self.handler_calls: list[tuple[str, str | None, int | None, int]] = []

    def handle(self, context: Any, record: Any, exception: Any) -> Response:
        self.handler_calls.append((context.stage, context.task, context.position, context.attempt))
        return self.answers[record.row.get("value", "batch")]


# ── .produce ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_records_are_sent_in_order_and_failed_ones_are_skipped(
    bench: Bench, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    rows = [("ab"[n % 2], n, "bad" if n in (3, 4) else "x") for n in range(40)]
    bench.add(*reversed(rows))
    bench.start(bench.define().produce(post.sender(), on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()

    assert post.of("a") == [n for n in range(0, 40, 2) if n != 4]
    assert post.of("b") == [n for n in range(1, 40, 2) if n != 3]
    failed = bench.outbox.of(RecordFailed)
    assert {(each.task, each.position, each.failure.stage) for each in failed} == {
        ("a", 4, "produce"),
        ("b", 3, "produce"),
    }
    dead_letters = {
        (each["task"], each["position"], each["stage"]) for each in bench.dead_letters()
    }
    assert dead_letters == {("a", 4, "produce"), ("b", 3, "produce")}
    assert levels_of("2 failed records of 2 tasks skipped", caplog) == ["DEBUG"]
    assert levels_of("skipped", caplog) == ["DEBUG"]


def test_a_pause_stops_the_task_in_its_partition_and_a_resume_continues_in_order(
    bench: Bench, post: Post
) -> None:
    bench.add(*[("a", n, "bad" if n == 2 else "x") for n in range(5)], ("b", 0, "x"))
    thread = bench.start(bench.define().produce(post.sender(), on_error=LogAndPause()))
    bench.wait_for_input()
    bench.add(("a", 5, "x"), ("b", 1, "x"))
    bench.wait_for_input()
    assert (post.of("a"), post.of("b")) == ([0, 1], [0, 1])
    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position) == ("a", 2)

    # Still broken: the chunk of held records ends at the same record again.
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2 and bool(thread.paused_tasks()))
    post.repaired.touch()
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(
        lambda: not any(task.held for task in server_state(bench.outbox.events).tasks.values())
    )
    bench.stop()
    assert post.of("a") == [0, 1, 2, 3, 4, 5]


def test_a_handler_is_called_before_its_task_continues(
    bench: Bench, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    handler = RecordingHandler(bad=Response.CONTINUE)
    bench.add(*[("a", n, "bad" if n in (1, 2) else "x") for n in range(4)], ("b", 0, "x"))
    bench.start(bench.define().produce(post.sender(), on_error=handler))
    bench.wait_for_input()
    assert (post.of("a"), post.of("b")) == ([0, 3], [0])
    assert handler.handler_calls == [("produce", "a", 1, 1), ("produce", "a", 2, 1)]
    assert levels_of("1 failed record of 1 task skipped", caplog) == ["DEBUG"] * 2
    assert levels_of("skipped", caplog) == ["DEBUG"] * 2

    # A class that affects every record: no handler is called, nothing of the task follows.
    bench.add(("a", 4, "x"), ("a", 5, "full"), ("a", 6, "x"))
    wait_until(lambda: bool(bench.ends))
    assert post.of("a") == [0, 3, 4]
    assert len(handler.handler_calls) == 2
    [died] = bench.outbox.of(TaskDied)
    assert (died.task, died.position, died.failure.stage) == ("a", 5, "produce")
    assert [each.response for each in bench.outbox.of(RecordFailed)][-1] is FinalResponse.FAIL


def test_a_retriable_failure_is_retried_and_a_stop_ends_the_wait(
    bench: Bench, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(5, logger="arrester.failures")
    keys: dict[str, Any] = {"errors_retries_limit": 2, "errors_retries_delay_max_ms": 1}
    bench.add(("a", 0, "x"), ("a", 1, "slow"), ("a", 2, "x"), ("b", 0, "x"))
    pipeline = bench.define().produce(post.sender(), on_error=LogAndFail())
    bench.start(pipeline, **keys)
    bench.wait_for_input()
    bench.stop()
    assert (post.of("a"), post.of("b")) == ([0, 1, 2], [0])
    assert [(each.task, each.retries) for each in bench.outbox.of(RetriesCounted)] == [("a", 2)]
    assert bench.outbox.of(RecordFailed) == []
    retried = "lines: produce failed at task 'a', position 1: TimeoutError. It is tried again"
    assert levels_of(retried, caplog) == ["TRACE"] * 2

    # The first wait is 300 ms and the second an hour: the stop does not wait for it.
    (bench.folder / "sent.tries.a.3").unlink(missing_ok=True)
    bench.add(("a", 3, "slow"), ("a", 4, "x"))
    patient = bench.start(pipeline, errors_retries_limit=-1, errors_retry_timeout=3_600_000)
    wait_until(lambda: (bench.folder / "sent.tries.a.3").exists())
    assert patient.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    assert post.of("a") == [0, 1, 2]
    post.repaired.touch()
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    assert post.of("a") == [0, 1, 2, 3, 4]
    assert bench.ends == []


def test_a_client_is_opened_on_the_executor_and_its_futures_are_awaited(
    bench: Bench, post: Post
) -> None:
    send, log = post.sender(), str(bench.folder / "opened")

    @contextmanager
    def connect() -> Iterator[Callable[[Row], Future[None]]]:
        with open(log, "a") as opened:
            opened.write("o")

        def later(row: Row) -> Future[None]:
            answer: Future[None] = Future()
            try:
                answer.set_result(send(row))
            except Exception as exc:
                answer.set_exception(exc)
            return answer

        yield later
        with open(log, "a") as opened:
            opened.write("c")

    bench.add(*[("ab"[n % 2], n, "bad" if n == 6 else "x") for n in range(20)])
    bench.start(bench.define().produce(connect=connect, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert post.of("a") == [n for n in range(0, 20, 2) if n != 6]
    assert post.of("b") == list(range(1, 20, 2))
    log_text = Path(log).read_text()
    assert 1 <= log_text.count("o") == log_text.count("c") <= 2

    def broken() -> Any:
        raise ConnectionError("nobody there")

    handler = RecordingHandler(x=Response.CONTINUE)
    bench.add(("a", 20, "x"))
    bench.start(bench.define().produce(connect=broken, on_error=handler))
    wait_until(lambda: bool(bench.ends))
    assert handler.handler_calls == []
    assert "nobody there" in str(bench.ends[0].exception)
    assert bench.outbox.of(TaskDied) == []


def test_a_limit_is_exceeded_at_the_exact_record(bench: Bench, post: Post) -> None:
    bench.add(*[("a", n, "bad" if n in (1, 3, 5) else "x") for n in range(8)])
    bench.start(
        bench.define().produce(post.sender(), on_error=LogAndContinue()), errors_tolerance_limit=2
    )
    wait_until(lambda: bool(bench.ends))
    assert post.of("a") == [0, 2, 4]
    [died] = bench.outbox.of(TaskDied)
    assert died.position == 5


def test_an_invalid_sender_is_refused(bench: Bench) -> None:
    wrong: tuple[dict[str, Any], ...] = ({}, {"send": 3}, {"send": print, "connect": print})
    for given in wrong:
        with pytest.raises(InvalidValue, match="produce: send"):
            bench.define().produce(**given)


# ── .write ───────────────────────────────────────────────────────────────────────────────────


class Flaky:
    """A sink by number that raises as configured, and records its numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raising: list[BaseException] = []
        self.numbers: list[int] = []

    def __call__(self, df: DataFrame, number: int) -> None:
        self.numbers.append(number)
        if self.raising:
            raise self.raising.pop(0)
        df.write.mode("overwrite").json(str(self.folder / f"{number:08d}"))


@pytest.fixture
def sink(bench: Bench) -> Flaky:
    return Flaky(bench.folder / "out")


def writing(bench: Bench, sink: Flaky, on_error: Any) -> Pipeline:
    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    step = bench.define().process("check", check, on_error=LogAndContinue())
    return step.write(sink, on_error=on_error)


def test_a_rejected_batch_is_retried_under_one_number_and_then_skipped(
    bench: Bench, sink: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="arrester.failures")
    handler = RecordingHandler(batch=Response.CONTINUE)
    sink.raising = [TimeoutError("busy"), TimeoutError("busy"), ValueError("no such column")]
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "x"))
    bench.add(("a", 2, "x"))
    keys: dict[str, Any] = {"errors_retries_limit": 5, "errors_retries_delay_max_ms": 300}
    bench.start(writing(bench, sink, handler), **keys)
    bench.wait_for_input()
    bench.stop()

    assert sink.numbers == [0, 0, 0, 1]
    assert bench.written() == [("a", 2)]
    assert handler.handler_calls == [("produce", None, None, 3)]
    stages = {(each["task"], each["position"]): each["stage"] for each in bench.dead_letters()}
    assert stages == {("a", 0): "produce", ("a", 1): "process:check", ("b", 0): "produce"}
    states = server_state(bench.outbox.events).tasks.values()
    assert {task.id.key: task.counters.records_skipped for task in states} == {"a": 2, "b": 1}
    # First the failures of its step, then the rejections of the sink.
    assert levels_of("1 failed record of 1 task skipped", caplog) == ["WARNING"]
    assert levels_of("2 failed records of 2 tasks skipped", caplog) == ["DEBUG"]
    assert levels_of("at number 0, attempt", caplog) == ["ERROR"] * 2
    assert levels_of("lines waits 300 ms before another attempt", caplog) == ["DEBUG"]


def test_a_broken_handler_of_a_sink_is_named_in_the_reason_of_the_end(
    bench: Bench, sink: Flaky
) -> None:
    class Broken:
        def handle(self, *args: object) -> Any:
            raise ValueError("limit\n" + "and more " * 500)

    bench.add(("a", 0, "x"))
    sink.raising = [ValueError("no such column")]
    bench.start(writing(bench, sink, Broken()))
    wait_until(lambda: bool(bench.ends))

    assert bench.ends[0].reason == (
        "the sink raised ValueError: no such column (FAIL, since its handler Broken raised "
        "ValueError: limit)"
    )


@pytest.mark.long
def test_a_replay_obeys_decisions_made_after_the_sink_failed(bench: Bench, sink: Flaky) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "x"))
    handler = RecordingHandler(batch=Response.CONTINUE)
    sink.raising = [ValueError("no such column")]
    thread = bench.start(writing(bench, sink, handler))
    bench.wait_for_input()
    bench.stop()
    assert thread.tasks()

    bench.uncommit(0)
    sink.numbers = []
    bench.add(("a", 2, "x"))
    bench.start(writing(bench, sink, handler))
    wait_until(lambda: bench.committed() >= 1)
    bench.stop()
    assert sink.numbers == [0, 1]
    assert bench.written() == [("a", 2)]
    assert len(handler.handler_calls) == 1
    assert len(bench.dead_letters()) == 3


def test_pause_holds_each_task_of_a_rejected_batch_from_its_first_record(
    bench: Bench, sink: Flaky
) -> None:
    bench.add(("a", 0, "x"))
    thread = bench.start(writing(bench, sink, LogAndPause()))
    bench.wait_for_input()
    sink.raising = [ValueError("no such column")]
    bench.add(("a", 1, "x"), ("a", 2, "x"), ("b", 7, "x"))
    bench.add(("c", 0, "x"), ("a", 3, "x"))
    bench.wait_for_input()

    where = {task.id.key: task.position for task in thread.paused_tasks()}
    assert where == {"a": 1, "b": 7}
    assert bench.written() == [("a", 0), ("c", 0)]
    for key in ("a", "b"):
        assert thread.apply(TaskCommand(key, how=ResumeHow.RETRY)).applied
    wait_until(lambda: len(bench.written()) == 6)
    bench.stop()
    assert bench.positions("a") == [0, 1, 2, 3]
    assert bench.dead_letters() == []


def test_fatal_and_self_healing_failures_of_a_sink_call_no_handler(
    bench: Bench, sink: Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    handler = RecordingHandler(batch=Response.CONTINUE)
    bench.add(("a", 0, "x"))
    raised: list[tuple[BaseException, dict[str, Any]]] = [
        (PermissionError("not yours"), {}),
        (KeyError("theirs"), {"errors_fatal_classes": "builtins.KeyError"}),
    ]
    with caplog.at_level(logging.DEBUG, "arrester.failures"):
        for number, (exception, keys) in enumerate(raised, start=1):
            sink.raising = [exception]
            bench.start(writing(bench, sink, handler), **keys)
            wait_until(lambda: len(bench.ends) == number)  # noqa: B023 (waited for here)
    assert handler.handler_calls == []
    assert [type(end.exception).__name__ for end in bench.ends] == [
        "PermissionError",
        "KeyError",
    ]
    records = [each for each in caplog.records if "no handler is called" in each.message]
    assert [each.levelname for each in records] == ["DEBUG"] * 2

    # The query restarts: the replay calls the sink under the same number.
    sink.raising = [OSError("moved")]
    bench.start(writing(bench, sink, handler), errors_self_healing_classes="builtins.OSError")
    wait_until(lambda: bench.committed() == 0)
    bench.stop()
    assert (handler.handler_calls, len(bench.ends)) == ([], 2)
    assert len(set(sink.numbers)) == 1

    # Without a handler, the default is FAIL: no record is isolated.
    bench.add(("a", 1, "x"))
    sink.raising = [ValueError("no such column")]
    bench.start(writing(bench, sink, None))
    wait_until(lambda: len(bench.ends) == len(raised) + 1)
    assert isinstance(bench.ends[-1].exception, ValueError)
    assert bench.outbox.of(RecordFailed) == []
