"""The outage guard (errors.outage.*): many records that fail alike are not bad records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndContinue
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.error_policy.policy import Response
from arrester.domain.events import (
    FailuresCounted,
    FinalResponse,
    OutageFound,
    RecordFailed,
    ResumeHow,
    TaskDied,
    TaskPaused,
    ThreadDied,
)
from tests.agents.pipeline_bench import Bench, blocks, read_sink, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]
GUARD: dict[str, Any] = {"errors_outage_share": 0.4, "errors_outage_minimum": 5}


def calling(row: Row) -> Row:
    if row["value"] == "down":
        raise ConnectionRefusedError("the service is down")
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def test_an_outage_pauses_its_tasks_instead_of_flooding_the_dead_letters(bench: Bench) -> None:
    bench.add(
        *[("a", n, value) for n, value in enumerate(("x", "bad", "down", "down", "bad", "down"))],
        *[("b", n, value) for n, value in enumerate(("down", "down", "x"))],
        *[("c", n, value) for n, value in enumerate(("bad", "x"))],
    )
    thread = bench.start(bench.checking(calling, LogAndContinue()), **GUARD)
    bench.wait_for_input()

    assert (bench.positions("a"), bench.positions("b"), bench.positions("c")) == ([0], [], [1])
    places = {(str(each.id.key), each.position, each.held) for each in thread.paused_tasks()}
    assert places == {("a", 2, 4), ("b", 0, 3)}
    dead_letters = {(each["task"], each["position"]) for each in bench.dead_letters()}
    assert dead_letters == {("a", 1), ("c", 0)}
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2)
    [found] = bench.outbox.of(OutageFound)
    assert (found.failed, found.records, found.response) == (5, 11, FinalResponse.PAUSE)
    assert found.failure.exception_class == "ConnectionRefusedError"
    assert not found.estimated

    # Less than the share: these are failing records, and the handler is called.
    bench.add(*[("d", n, "x") for n in range(20)], *[("e", n, "down") for n in range(5)])
    bench.wait_for_input()
    assert len(bench.positions("d")) == 20
    assert len(bench.outbox.of(OutageFound)) == 1
    assert len(bench.dead_letters()) == 7


def test_an_outage_of_a_native_step_is_estimated_from_a_sample(bench: Bench) -> None:
    bench.add(*[("a", n, "x") for n in range(30)], ("b", 0, "1"), ("b", 1, "0"))
    number = F.lit(8) / F.col("value").cast("int")
    builder = bench.define().deserialize("number", number, on_error=LogAndContinue())
    bench.start(builder.write(sink_to(bench.folder / "out")), **GUARD)
    bench.wait_for_input()

    assert bench.positions("b") == [0]
    wait_until(lambda: bool(bench.outbox.of(OutageFound)))
    [found] = bench.outbox.of(OutageFound)
    assert (found.failure.condition, found.estimated) == ("CAST_INVALID_INPUT", True)
    assert 20 <= found.failed <= 31
    assert [each.task for each in bench.outbox.of(TaskPaused)] == ["a", "b"]
    assert bench.dead_letters() == []


def test_an_outage_ends_the_run_if_configured_or_if_records_cannot_be_held(bench: Bench) -> None:
    bench.add(*[(None, n, "down") for n in range(9)], ("b", 0, "x"))
    bench.start(bench.checking(calling, LogAndContinue()), **GUARD)
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(ThreadDied)
    assert died.reason.startswith("outage: 9 of 10 records failed alike at process:check: ")
    assert [each.response for each in bench.outbox.of(OutageFound)] == [FinalResponse.FAIL]
    assert [each.task for each in bench.outbox.of(TaskDied)] == [None]
    counted = [each.response for each in bench.outbox.of(RecordFailed)]
    assert (counted, bench.outbox.of(FailuresCounted)) == ([FinalResponse.FAIL], [])


# ── the end of a pipeline ────────────────────────────────────────────────────────────────────


def sending_to(file: Path, repaired: Path) -> Callable[[Row], None]:
    """Return a `send` that fails for "down" until it is repaired."""

    def send(row: Row) -> None:
        if row["value"] == "down" and not repaired.exists():
            raise ConnectionRefusedError("no broker is up")
        with file.open("a") as sent:
            sent.write(json.dumps([row["task"], row["position"]]) + "\n")

    return send


def sent_of(file: Path, task: str) -> list[int]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [position for name, position in rows if name == task]


class Continuing:
    """Is not constant; counts its calls."""

    def __init__(self) -> None:
        self.handler_calls: list[tuple[str | None, int | None]] = []

    def handle(self, context: Any, record: Any, exception: Any) -> Response:
        self.handler_calls.append((context.task, context.position))
        return Response.CONTINUE


def test_an_outage_of_the_broker_pauses_its_tasks_and_sends_no_later_record(bench: Bench) -> None:
    file, repaired = bench.folder / "sent", bench.folder / "repaired"
    bench.add(
        *[("a", n, "x" if n < 3 else "down") for n in range(10)],
        *[("b", n, "down") for n in range(10)],
        *[("c", n, "x") for n in range(8)],
        # Later records of its task were sent, so the failure belongs to the record.
        *[("d", n, value) for n, value in enumerate(("down", "x", "down", "down"))],
    )
    pipeline = bench.define().produce(sending_to(file, repaired), on_error=LogAndContinue())
    thread = bench.start(pipeline, **GUARD)
    bench.wait_for_input()

    places = {(str(each.id.key), each.position, each.held) for each in thread.paused_tasks()}
    assert places == {("a", 3, 7), ("b", 0, 10), ("d", 2, 2)}
    assert [(each["task"], each["position"]) for each in bench.dead_letters()] == [("d", 0)]
    assert (sent_of(file, "a"), sent_of(file, "d")) == ([0, 1, 2], [1])
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 3)
    [found] = bench.outbox.of(OutageFound)
    assert (found.failure.stage, found.response) == ("produce", FinalResponse.PAUSE)
    # More than 0.4 of 32; then nothing more is sent.
    assert 13 <= found.failed <= 20
    assert bench.ends == []

    repaired.touch()
    for task in "abd":
        assert thread.apply(TaskCommand(task, how=ResumeHow.RETRY)).applied
    wait_until(lambda: not any(each.held for each in thread.tasks()))
    bench.stop()
    assert [sent_of(file, task) for task in "abcd"] == [
        list(range(10)),
        list(range(10)),
        list(range(8)),
        [1, 2, 3],
    ]


@pytest.mark.long
def test_an_outage_is_detected_over_several_rounds(bench: Bench) -> None:
    file, handler = bench.folder / "sent", Continuing()
    bench.add(*[("a", n, "x" if n < 2 else "down") for n in range(30)])
    builder = bench.define()
    thread = bench.start(
        builder.produce(sending_to(file, bench.folder / "never"), on_error=handler), **GUARD
    )
    bench.wait_for_input()
    # The fifth failure of seven sent records: the first four were decided before.
    assert handler.handler_calls == [("a", n) for n in range(2, 6)]
    assert len(bench.dead_letters()) == 4
    [paused] = thread.paused_tasks()
    assert (paused.position, paused.held) == (6, 24)
    wait_until(lambda: bool(bench.outbox.of(OutageFound)))
    [found] = bench.outbox.of(OutageFound)
    assert (found.failed, found.records) == (5, 7)


@pytest.mark.long
def test_an_outage_of_the_broker_ends_the_run_if_configured(bench: Bench) -> None:
    file = bench.folder / "sent"
    bench.add(*[("ab"[n % 2], n, "down") for n in range(30)])
    sink = bench.define().produce(
        sending_to(file, bench.folder / "never"), on_error=LogAndContinue()
    )
    bench.start(sink, errors_outage_response="fail", **GUARD)
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(ThreadDied)
    assert died.reason.startswith("outage: ")
    assert "failed alike at produce: ConnectionRefusedError" in died.reason
    assert bench.dead_letters() == []


@pytest.mark.long
def test_a_sink_that_rejects_each_micro_batch_is_an_outage(bench: Bench) -> None:
    folder, repaired = str(bench.folder / "out"), bench.folder / "repaired"

    def sink(df: DataFrame, number: int) -> None:
        if not repaired.exists():
            raise ConnectionRefusedError("the database is down")
        df.write.mode("overwrite").json(f"{folder}/{number:08d}")

    handler = Continuing()
    bench.add(*[("ab"[n % 2], n, "x") for n in range(6)], ("c", 0, "bad"))
    # Fewer than errors.outage.minimum: the handler's answer applies.
    bench.add(*[("d", n, "x") for n in range(4)])
    step = bench.define().process("check", calling, on_error=LogAndContinue())
    thread = bench.start(step.write(sink, atomic=True, on_error=handler), **GUARD)
    bench.wait_for_input()
    assert {(each.id.key, each.position) for each in thread.paused_tasks()} == {("a", 0), ("b", 1)}
    dead_letters = {(each["task"], each["position"]) for each in bench.dead_letters()}
    assert dead_letters == {("c", 0), *[("d", n) for n in range(4)]}
    assert handler.handler_calls == [(None, None)]
    wait_until(lambda: bool(bench.outbox.of(OutageFound)))
    [found] = bench.outbox.of(OutageFound)
    assert (found.failed, found.records, found.failure.stage) == (6, 6, "produce")

    repaired.touch()
    for task in "ab":
        assert thread.apply(TaskCommand(task, how=ResumeHow.RETRY)).applied
    wait_until(lambda: not any(each.held for each in thread.tasks()))
    bench.stop()
    assert (bench.positions("a"), bench.positions("b")) == ([0, 2, 4], [1, 3, 5])


def test_an_outage_of_a_sink_that_may_have_written_is_replayed_under_its_number(
    bench: Bench,
) -> None:
    sink, answered = sink_to(bench.folder / "out"), bench.folder / "answered"

    def unanswered(df: DataFrame, number: int) -> None:
        sink(df, number)
        if not answered.exists():
            raise ConnectionRefusedError("the database was gone before it answered")

    bench.add(*[("ab"[n % 2], n, "x") for n in range(12)])
    kept = blocks(bench.spark)
    pipeline = bench.define().write(unanswered, on_error=Continuing())
    bench.start(pipeline, **GUARD)
    wait_until(lambda: bool(bench.ends))
    [died] = bench.outbox.of(ThreadDied)
    assert died.reason.startswith("outage: ")
    assert blocks(bench.spark) <= kept

    answered.touch()
    bench.start(pipeline, **GUARD)
    bench.wait_for_input()
    bench.stop()
    assert sorted(row["position"] for _, row in read_sink(bench.folder / "out")) == list(range(12))
    assert bench.dead_letters() == []
