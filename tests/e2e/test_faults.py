"""Drivers that are killed at the worst moments: nothing is lost, nothing is there twice."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.e2e.stack import (
    ROWS,
    Stack,
    dead_letters,
    eventually,
    sink_positions,
    without_departure,
)
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1800)]
ORIGINS = ("EWR", "JFK", "LGA")
#: The positions of the two tasks that pause, each at its implausible record.
HELD_FROM = {"JFK": 7072, "EWR": 8239}
IMPLAUSIBLE = len(HELD_FROM)


def tried(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that are not behind a record that paused its task."""
    return [row for row in rows if row["position"] < HELD_FROM.get(row["origin"], ROWS)]


def settled(stack: Stack, rows: list[dict[str, Any]]) -> bool:
    """Whether every row has come to rest: in the sink, a dead letter, or held."""
    held = sum(task["held"] for task in stack.all_of("/api/v1/tasks"))
    written = sum(len(sink_positions(stack.folder, key)) for key in ORIGINS)
    return bool(written + len(dead_letters(stack.folder)) + held == len(rows))


def check_counts(stack: Stack, rows: list[dict[str, Any]]) -> None:
    """Check that all counts of the records that were tried and failed agree, to the last one.

    `rows` are those that were tried: what a task holds has not failed yet.
    """
    failed = without_departure(rows) + IMPLAUSIBLE
    expected = dict.fromkeys(("application", "groups", "failures", "tasks"), failed)
    with contextlib.suppress(AssertionError):
        eventually(lambda: stack.failure_counts("flights") == expected, what="the counts agree")
    assert stack.failure_counts("flights") == expected


def check_sink(stack: Stack, rows: list[dict[str, Any]], *, without: int = 0) -> None:
    """Check that each task's rows are in the sink once and in order, but for what failed."""
    for key in ORIGINS:
        expected = [
            row["position"]
            for row in rows
            if row["origin"] == key and row["value"].split(",")[3] != "NA"
        ]
        written = sink_positions(stack.folder, key)
        assert written == sorted(set(written)), f"{key}: doubled or out of order"
        assert set(written) <= set(expected)
    assert sum(len(sink_positions(stack.folder, key)) for key in ORIGINS) == (
        ROWS - without_departure(rows) - without
    )


@pytest.mark.long
def test_kill_while_paused(stack: Stack, rows: list[dict[str, Any]]) -> None:
    stack.start_driver()
    eventually(lambda: stack.is_paused("JFK"), what="JFK is PAUSED")
    eventually(lambda: settled(stack, rows), what="all rows are somewhere")
    before = {key: sink_positions(stack.folder, key) for key in ORIGINS}
    stack.kill("driver")

    stack.start_driver()
    eventually(lambda: thread_epoch(stack) == 2, what="the new instance has the checkpoint")
    eventually(lambda: stack.is_paused("JFK"), what="JFK is PAUSED again, at the same record")
    assert stack.task("JFK")["position"] == 7072
    eventually(lambda: settled(stack, rows), what="all rows are somewhere")
    assert {key: sink_positions(stack.folder, key) for key in ORIGINS} == before
    check_counts(stack, tried(rows))

    # The next driver starts without a command: the application stays OPEN.
    [run] = stack.get("/api/v1/applications/flights/runs")["results"]
    about = {"application": "flights", "instance": run["instance"], "reason": "to repair it"}
    assert stack.command(kind="SHUT_DOWN_INSTANCE", **about)["status"] == "APPLIED"
    assert stack.wait_for_driver(seconds=PATIENCE_SECONDS) == 0
    (stack.folder / "repaired").touch()
    stack.start_driver()
    eventually(lambda: not stack.is_paused("JFK"), what="JFK runs, its cause repaired")
    eventually(lambda: settled(stack, rows) and no_held(stack), what="nothing is held")
    check_sink(stack, rows)
    check_counts(stack, rows)
    stack.manage("rebuild", "--verify")


@pytest.mark.long
def test_kill_between_sink_and_spark_commit(stack: Stack, rows: list[dict[str, Any]]) -> None:
    crash = stack.folder / "crash"
    crash.write_text("7")
    driver = stack.start_driver()
    assert driver.wait(PATIENCE_SECONDS) == -9, "the driver kills itself behind the sink's write"
    assert not crash.exists()

    stack.start_driver()
    eventually(lambda: stack.is_paused("JFK"), what="JFK is PAUSED")
    eventually(lambda: stack.is_paused("EWR"), what="EWR is PAUSED")
    eventually(lambda: settled(stack, rows), what="all rows are somewhere")
    check_counts(stack, tried(rows))
    for key in ("JFK", "EWR"):
        requested = {"kind": "SKIP_RECORD", "task": stack.task(key)["id"], "reason": "a test"}
        assert stack.command(**requested)["status"] == "APPLIED"
    eventually(lambda: settled(stack, rows) and no_held(stack), what="nothing is held")
    check_sink(stack, rows, without=2)
    check_counts(stack, rows)
    stack.manage("rebuild", "--verify")


def thread_epoch(stack: Stack) -> int:
    """Return the run that spoke last of JFK's task."""
    failures = [row for row in stack.all_of("/api/v1/failures") if row["key"] == "JFK"]
    return max((row["epoch"] for row in failures), default=0)


def no_held(stack: Stack) -> bool:
    """Whether no task holds rows."""
    return all(task["held"] == 0 for task in stack.all_of("/api/v1/tasks"))
