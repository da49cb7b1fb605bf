"""What the agent reports while held records are skipped and processed, on Spark."""

from __future__ import annotations

from typing import Any

import pytest

from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import RecordsHeld, ResumeHow
from tests.agents.pipeline_bench import Bench
from tests.patience import wait_until

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def fails_on_bad(row: Row) -> Row:
    if row["value"] == "bad":
        raise ValueError("bad")
    return row


def test_the_reported_number_falls_with_each_skip_and_chunk(bench: Bench) -> None:
    def numbers() -> list[int]:
        return [each.held for each in bench.outbox.of(RecordsHeld)]

    values = ("bad", "x", "x", "bad", "x")
    bench.add(*(("a", position, value) for position, value in enumerate(values)))
    thread = bench.start(bench.checking(fails_on_bad))
    bench.wait_for_input()
    wait_until(lambda: numbers() == [5])
    skip = TaskCommand("a", how=ResumeHow.SKIP, reason="a typo")
    assert thread.apply(skip).applied
    wait_until(lambda: numbers() == [5, 4, 2])
    wait_until(lambda: thread.apply(skip).applied)
    wait_until(lambda: numbers() == [5, 4, 2, 1, 0])
    assert bench.positions("a") == [1, 2, 4]
    first = [each.first_position for each in bench.outbox.of(RecordsHeld)]
    assert first == [0, 1, 3, 4, None]
