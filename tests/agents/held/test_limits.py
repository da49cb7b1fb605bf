"""Limits of held records: held.records.limit, held.bytes.limit, held.limit.response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arrester.agents.held.limits import HeldLimitExceeded
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.domain.events import TaskPaused, ThreadDied
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def failing(row: Row) -> Row:
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def test_a_run_ends_before_it_holds_more_records_than_the_limit(bench: Bench) -> None:
    bench.add(("a", 0, "bad"), ("a", 1, "x"), ("b", 0, "x"))
    bench.start(bench.checking(failing), held_records_limit=2)
    bench.wait_for_input()
    bench.add(("a", 2, "x"), ("b", 1, "x"))
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert isinstance(end.exception, HeldLimitExceeded)
    assert end.reason == "3 held would be more than held.records.limit allows, which is 2"
    assert bench.positions("b") == [0]
    # The folder of the refused decision is deleted: only the first micro-batch's is left.
    assert len(list((Path(bench.checkpoint) / ROWS_FOLDER).iterdir())) == 1
    # The micro-batch was not decided: with a higher limit it is held, and the rest written.
    bench.ends.clear()
    thread = bench.start(bench.checking(failing), held_records_limit=3)
    bench.wait_for_input()
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 2)
    wait_until(lambda: [each.held for each in thread.paused_tasks()] == [3])
    assert bench.positions("b") == [0, 1]


def test_held_bytes_are_limited_and_the_run_may_stop_without_an_error(bench: Bench) -> None:
    bench.add(("a", 0, "bad"), ("b", 0, "x"))
    keys: dict[str, Any] = {"held_bytes_limit": 10, "held_limit_response": "stop"}
    bench.start(bench.checking(failing), **keys)
    wait_until(lambda: bool(bench.ends))

    [end] = bench.ends
    assert (end.exception, end.finished) == (None, True)
    assert "held.bytes.limit" in end.reason
    assert [each.reason for each in bench.outbox.of(ThreadDied)] == [end.reason]
    assert bench.outbox.of(TaskPaused) == []
