"""The outage guard (errors.outage.*): many records that fail alike are not bad records."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from agents.handlers import LogAndContinue
from controlplane.domain.events import (
    FailuresCounted,
    OutageFound,
    RecordFailed,
    Response,
    TaskDied,
    TaskPaused,
    ThreadDied,
)
from tests.agents.engine.bench import Bench, sink_to, wait_until

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
    letters = {(each["task"], each["position"]) for each in bench.dead_letters()}
    assert letters == {("a", 1), ("c", 0)}
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2)
    [found] = bench.outbox.of(OutageFound)
    assert (found.failed, found.records, found.response) == (5, 11, Response.PAUSE)
    assert found.failure.exception_class == "ConnectionRefusedError"
    assert not found.estimated

    # Less than the share: these are bad records, and the handler is asked.
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


def test_an_outage_ends_the_run_where_that_was_set_or_nothing_can_be_held(bench: Bench) -> None:
    bench.add(*[(None, n, "down") for n in range(9)], ("b", 0, "x"))
    bench.start(bench.checking(calling, LogAndContinue()), **GUARD)
    wait_until(lambda: bool(bench.deaths))
    [died] = bench.outbox.of(ThreadDied)
    assert died.reason.startswith("outage: 9 of 10 records failed alike at process:check: ")
    assert [each.response for each in bench.outbox.of(OutageFound)] == [Response.FAIL]
    assert [each.task for each in bench.outbox.of(TaskDied)] == [None]
    counted = [each.response for each in bench.outbox.of(RecordFailed)]
    assert (counted, bench.outbox.of(FailuresCounted)) == ([Response.FAIL], [])
