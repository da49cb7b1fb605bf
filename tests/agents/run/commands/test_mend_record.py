"""The record that stopped a task is changed in place; order and everything behind it stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from arrester.agents.held.store import HeldStore
from arrester.agents.journal.ledger import CommandAnswer
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.errors import InvalidValue
from arrester.domain.events import (
    CommandApplied,
    CommandRefused,
    RecordFailed,
    ResumeHow,
    TaskPaused,
    TaskResumed,
)
from arrester.domain.state.states import TaskStatus
from tests.agents.pipeline_bench import Bench, read_sink, server_state
from tests.agents.run.test_pause_and_resume import held_at_two
from tests.patience import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def repaired(bench: Bench) -> Path:
    return bench.folder / "repaired"


def mend(thread: Any, command: int = 1, /, **values: object) -> CommandAnswer:
    """Replace values of the record at which task `a` is PAUSED."""
    patch = [{"op": "replace", "path": f"/{name}", "value": new} for name, new in values.items()]
    answer: CommandAnswer = thread.apply(
        TaskCommand(
            "a",
            how=ResumeHow.MEND,
            patch=json.dumps(patch),
            command=UUID(int=command),
            actor="ana",
            reason="a typing error",
        )
    )
    return answer


def values(bench: Bench) -> list[tuple[int, str]]:
    """Return the written records of task `a`, in their order."""
    rows = [row for _, row in read_sink(bench.folder / "out") if row["task"] == "a"]
    return [(row["position"], row["value"]) for row in rows]


@pytest.mark.smoke
def test_a_mended_record_goes_first_and_in_order(bench: Bench, repaired: Path) -> None:
    thread = held_at_two(bench, repaired)

    answer = mend(thread, value="good")

    assert answer == CommandAnswer(
        applied=True, reason="resumed with the changed record at position 2"
    )
    assert mend(thread, value="better") == answer, "a repeated command gets the first answer"
    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3, 4, 5], what="held rows")
    assert values(bench)[2] == (2, "good")
    wait_until(lambda: thread.tasks()[0].held == 0)
    bench.stop()
    [resumed] = bench.outbox.of(TaskResumed)
    assert (resumed.how, resumed.position, resumed.actor) == (ResumeHow.MEND, 2, "ana")
    assert [each.command for each in bench.outbox.of(CommandApplied)] == [UUID(int=1)]
    [task] = server_state(bench.outbox.events).tasks.values()
    assert (task.status, task.held, task.failed) == (TaskStatus.RUNNING, 0, 1)


def refuse_bad_beginnings(row: dict[str, Any]) -> dict[str, Any]:
    if row["value"].startswith("bad"):
        raise ValueError(f"{row['value']} at {row['position']}")
    return row


def test_a_record_that_fails_again_can_be_mended_again_or_skipped(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "bad"), ("a", 2, "x"), ("b", 1, "x"))
    thread = bench.start(bench.checking(refuse_bad_beginnings))
    bench.wait_for_input()

    assert mend(thread, value="bad, too").applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 3, what="the second failure")
    assert mend(thread, 2, value="good").applied
    wait_until(lambda: values(bench) == [(0, "x"), (1, "good"), (2, "x")])
    patch = '[{"op": "replace", "path": "/value", "value": "bad again"}]'
    assert thread.apply(TaskCommand("b", how=ResumeHow.MEND, patch=patch)).applied
    wait_until(lambda: len(bench.outbox.of(TaskPaused)) == 4, what="the failure of the other task")
    thread.apply(TaskCommand("b", how=ResumeHow.SKIP, actor="ana", reason="lost"))
    wait_until(lambda: bench.positions("b") == [1])
    wait_until(lambda: len(bench.dead_letters()) == 1)
    [dead_letter] = bench.dead_letters()
    assert (dead_letter["task"], json.loads(dead_letter["row"])["value"]) == ("b", "bad again")
    bench.stop()
    failed = [each.position for each in bench.outbox.of(RecordFailed) if each.task == "a"]
    assert failed == [1, 1]
    tasks = server_state(bench.outbox.events).tasks.values()
    assert [(task.held, task.failed) for task in tasks] == [(0, 1), (0, 1)]


#: Changes that do not fit, each with the reason of its refusal.
UNFIT: list[tuple[dict[str, object], str]] = [
    ({"value": 5, "position": "x"}, "position is not bigint"),
    ({"task": "b"}, "would be of task 'b' at position 2; it must stay 'a' at 2"),
    ({"position": 9}, "would be of task 'a' at position 9"),
    ({"valu": "x"}, "the patch does not apply"),
]


def test_changes_that_do_not_fit_are_refused(bench: Bench, repaired: Path) -> None:
    thread = held_at_two(bench, repaired)

    for number, (changed, reason) in enumerate(UNFIT, start=1):
        refused = mend(thread, number, **changed)

        assert not refused.applied
        assert reason in refused.reason
        assert "is not changed" in refused.reason
        [paused] = thread.paused_tasks()
        assert (paused.position, paused.held) == (2, 4)
    assert mend(thread, 9, value="good").applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3, 4, 5])
    bench.stop()
    assert len(bench.outbox.of(CommandRefused)) == len(UNFIT)


def test_a_mended_record_survives_a_restart_before_it_is_processed(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = held_at_two(bench, repaired)
    with monkeypatch.context() as blocked:
        blocked.setattr(
            "arrester.agents.run.micro_batch.processor.Processor.drain",
            lambda self: False,
            raising=True,
        )
        assert mend(thread, value="good").applied
        bench.stop()
    assert bench.positions("a") == [0, 1]

    bench.start(thread.pipeline)

    wait_until(lambda: bench.positions("a") == [0, 1, 2, 3, 4, 5], what="held rows")
    assert values(bench)[2] == (2, "good")


def test_a_failure_to_save_changes_nothing(
    bench: Bench, repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = held_at_two(bench, repaired)

    def full(*args: object, **keys: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(HeldStore, "save_again", full)
        refused = mend(thread, value="good")

    assert "No space left on device" in refused.reason
    assert thread.is_running
    assert mend(thread, 2, value="good").applied


def test_a_patch_belongs_to_a_mend() -> None:
    with pytest.raises(InvalidValue, match="with MEND and with nothing else"):
        TaskCommand("a", how=ResumeHow.RETRY, patch="[]")
