"""Drivers that are killed at the worst moments: nothing is lost, nothing is there twice."""

from __future__ import annotations

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

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(600)]
ORIGINS = ("EWR", "JFK", "LGA")


def settled(stack: Stack, rows: list[dict[str, Any]]) -> bool:
    """Whether every row has come to rest: in the sink, a dead letter, or held."""
    held = sum(task["held"] for task in stack.all_of("/api/tasks"))
    written = sum(len(sink_positions(stack.folder, key)) for key in ORIGINS)
    return written + len(dead_letters(stack.folder)) + held == len(rows)


def check_counts(stack: Stack, rows: list[dict[str, Any]], *, implausible: int) -> None:
    """Check that all counts of failed records agree, to the last one."""
    failed = without_departure(rows) + implausible
    eventually(lambda: _counts(stack) == {failed}, what=f"all counts are {failed}")


def _counts(stack: Stack) -> set[int]:
    return {
        stack.get("/api/applications/flights")["failed"],
        sum(group["count"] for group in stack.all_of("/api/errors")),
        sum(row["count"] for row in stack.all_of("/api/failures")),
        sum(task["failed"] for task in stack.all_of("/api/tasks")),
    }


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
    check_counts(stack, rows, implausible=2)

    stack.kill("driver")
    (stack.folder / "repaired").touch()
    stack.start_driver()
    eventually(lambda: not stack.is_paused("JFK"), what="JFK runs, its cause repaired")
    eventually(lambda: settled(stack, rows) and no_held(stack), what="nothing is held")
    check_sink(stack, rows)
    check_counts(stack, rows, implausible=2)
    stack.manage("rebuild", "--verify")


def test_kill_between_sink_and_spark_commit(stack: Stack, rows: list[dict[str, Any]]) -> None:
    crash = stack.folder / "crash"
    crash.write_text("7")
    driver = stack.start_driver()
    assert driver.wait(240) == -9, "the driver kills itself behind the sink's write"
    assert not crash.exists()

    stack.start_driver()
    eventually(lambda: stack.is_paused("JFK"), what="JFK is PAUSED")
    eventually(lambda: stack.is_paused("EWR"), what="EWR is PAUSED")
    eventually(lambda: settled(stack, rows), what="all rows are somewhere")
    check_counts(stack, rows, implausible=2)
    for key in ("JFK", "EWR"):
        wish = {"kind": "SKIP_RECORD", "task": stack.task(key)["id"], "reason": "a test"}
        assert stack.command(**wish)["status"] == "APPLIED"
    eventually(lambda: settled(stack, rows) and no_held(stack), what="nothing is held")
    check_sink(stack, rows, without=2)
    check_counts(stack, rows, implausible=2)
    stack.manage("rebuild", "--verify")


def thread_epoch(stack: Stack) -> int:
    """Return the run that spoke last of JFK's task."""
    failures = [row for row in stack.all_of("/api/failures") if row["key"] == "JFK"]
    return max((row["epoch"] for row in failures), default=0)


def no_held(stack: Stack) -> bool:
    """Whether no task holds rows."""
    return all(task["held"] == 0 for task in stack.all_of("/api/tasks"))
