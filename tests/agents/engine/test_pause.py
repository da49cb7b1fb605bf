"""PAUSE holds just its task, in order, over micro-batches and restarts (KIP-990)."""

from __future__ import annotations

from typing import Any

import pytest

from agents.handlers import LogAndPause
from controlplane.domain.events import RecordFailed, ResumeHow, TaskPaused, TaskResumed
from controlplane.domain.states import TaskStatus
from tests.agents.engine.bench import Bench, server_state, wait_until

pytestmark = pytest.mark.spark


def test_a_pause_holds_its_task_and_no_other(bench: Bench) -> None:
    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == "bad":
            raise ValueError(f"bad value at {row['position']}")
        return row

    bench.add(("a", 0, "good"), ("a", 1, "good"), ("a", 2, "bad"), ("a", 3, "good"), ("b", 0, "x"))
    thread = bench.start(bench.checking(check, LogAndPause()))
    bench.wait_for_input()
    bench.add(("a", 4, "good"), ("b", 1, "x"))
    bench.wait_for_input()

    assert bench.positions("a") == [0, 1]
    assert bench.positions("b") == [0, 1]
    [paused] = thread.paused_tasks()
    assert (paused.id.key, paused.position, paused.held) == ("a", 2, 3)
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 1)

    outcome = thread.resume("a", how=ResumeHow.SKIP, actor="ana", reason="known")
    assert outcome.applied
    wait_until(lambda: bench.positions("a") == [0, 1, 3, 4], what="held")
    bench.stop()
    state = server_state(bench.outbox.events)
    [task] = state.tasks.values()
    assert task.status is TaskStatus.RUNNING
    assert task.held == 0
    assert len(bench.outbox.of(TaskResumed)) == 1
    assert len(bench.outbox.of(RecordFailed)) == 1
    [letter] = bench.dead_letters()
    print(letter)
