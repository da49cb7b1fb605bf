"""The steps run on the record that stopped a task, changed, and nothing else happens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import functions as F

from arrester.agents.handlers import LogAndPause
from arrester.agents.run.commands import record_tester
from arrester.agents.runtime.thread_protocol import RecordTestAnswer, TaskCommand
from arrester.domain.commands.kinds import TaskAct
from arrester.domain.error_policy.policy import Response
from arrester.domain.events import (
    Failure,
    RecordsDeadLettered,
    RecordsHeld,
    RecordTest,
    ResumeHow,
)
from tests.agents.pipeline_bench import Bench, sink_to
from tests.agents.run.commands.test_redrive import command, mend, skipped
from tests.patience import wait_until

pytestmark = pytest.mark.spark
COMMAND = UUID(int=1)


def replacing(**values: object) -> str:
    patch = [{"op": "replace", "path": f"/{name}", "value": new} for name, new in values.items()]
    return json.dumps(patch)


def run_test(thread: Any, **values: object) -> Any:
    """Test the record at which task `a` is PAUSED with other values; return the answer."""
    command = TaskCommand(
        "a", how=TaskAct.TEST, patch=replacing(**values), command=COMMAND, actor="ana"
    )
    return thread.apply(command)


def failure_of(answer: Any) -> Failure:
    assert isinstance(answer, RecordTestAnswer), answer
    assert answer.applied and answer.test.failure is not None
    return answer.test.failure


def state(bench: Bench, thread: Any) -> list[object]:
    """Return all that a test must not change: states, files, dead letters, events."""
    folders = [Path(bench.checkpoint, "arrester"), bench.folder / "out", bench.folder / "dlq"]
    files = sorted(str(each) for folder in folders for each in folder.rglob("*"))
    return [thread.tasks(), files, bench.outbox.events, thread.answer_to(COMMAND)]


def check(row: dict[str, Any]) -> Any:
    import time

    match row["value"]:
        case "twice":
            return [row, row]
        case "nothing":
            return None
        case "slow":
            time.sleep(600)
        case value if value.startswith("bad"):
            raise ValueError(f"{value} at {row['position']}")
    return row


def test_a_python_step_runs_once_on_the_changed_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    class Pausing:
        def handle(self, *about: Any) -> Response:
            calls.append(about)
            return Response.PAUSE

    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"), ("b", 0, "x"))
    keys: dict[str, Any] = {"errors_retries_limit": 3, "errors_redact": ["value"]}
    thread = bench.start(bench.checking(check, Pausing()), **keys)
    bench.wait_for_input()
    wait_until(lambda: len(bench.outbox.of(RecordsHeld)) == 1)
    before, called = state(bench, thread), len(calls)

    for value, rows in (("good", 1), ("twice", 2), ("nothing", 0)):
        answer = run_test(thread, value=value)
        assert (answer.applied, answer.test) == (True, RecordTest(rows=rows)), answer
    assert answer.reason == "the record passes the steps: 0 rows for the sink"
    failed = run_test(thread, value="bad, too")
    failure = failure_of(failed)
    assert (failure.stage, failure.exception_class) == ("process:check", "ValueError")
    [paused] = thread.paused_tasks()
    assert paused.failure is not None
    assert (failure.attempts, failure.frame) == (1, paused.failure.frame)
    # A field that is redacted stays in the driver, as in reported failures.
    assert "bad, too" not in failure.message and failure.message.endswith(" at 1")
    assert failed.reason == f"the record fails at process:check: ValueError: {failure.message}"
    for values, reason in (
        ({"task": "b"}, "would be of task 'b' at position 1; it must stay 'a' at 1"),
        ({"position": "x"}, "position is not bigint"),
        ({"valu": "x"}, "the patch does not apply"),
    ):
        refused = run_test(thread, **values)
        assert not refused.applied and "the record of lines_a is not tested" in refused.reason
        assert reason in refused.reason
    monkeypatch.setattr(record_tester, "LIMIT_SECONDS", 2.0)
    slow = run_test(thread, value="slow")
    assert not slow.applied
    assert slow.reason.endswith("the steps took more than 2 s, and were cancelled")
    assert state(bench, thread) == before and len(calls) == called

    mended = TaskCommand("a", how=ResumeHow.MEND, patch=replacing(value="good"))
    assert thread.apply(mended).applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2])
    assert not run_test(thread, value="good").applied


def test_native_steps_and_transforms_are_tested(bench: Bench) -> None:
    def halve(rows: Any) -> Any:
        if (bench.folder / "exits").exists():
            raise SystemExit("in a step")
        return rows.withColumn("half", F.expr("100 / CAST(number AS INT)"))

    bench.add(("a", 0, "1"), ("a", 1, "NA"), ("a", 2, "2"), ("b", 0, "5"))
    pipeline = (
        bench.define()
        .columns("number", number=F.expr("CAST(value AS INT)"), on_error=LogAndPause())
        .transform("halves", halve, on_error=LogAndPause())
        .write(sink_to(bench.folder / "out"))
    )
    thread = bench.start(pipeline)
    bench.wait_for_input()
    wait_until(lambda: len(bench.outbox.of(RecordsHeld)) == 1)
    before = state(bench, thread)

    assert run_test(thread, value="4").test == RecordTest(rows=1)
    cast = failure_of(run_test(thread, value="N/A"))
    assert (cast.stage, cast.condition) == ("process:number", "CAST_INVALID_INPUT")
    zero = failure_of(run_test(thread, value="0"))
    assert (zero.stage, zero.condition) == ("process:halves", "DIVIDE_BY_ZERO")
    (bench.folder / "exits").touch()
    left = run_test(thread, value="4")
    assert not left.applied and left.reason.endswith("is not tested: in a step")
    (bench.folder / "exits").unlink()
    assert state(bench, thread) == before
    assert thread.is_running


def test_a_dead_letter_is_tested_as_it_is_and_changed(bench: Bench) -> None:
    thread = skipped(bench, bench.folder / "repaired", ("a", 0, "x"), ("a", 1, "bad"))
    # The last events about the record are published after all its files are in place.
    wait_until(lambda: len(bench.outbox.of(RecordsDeadLettered)) == 1)
    test = replace(command(bench), is_test=True)
    good = replace(command(bench, patch=mend()), is_test=True)
    before = state(bench, thread)

    failure = failure_of(thread.apply(test))
    assert (failure.stage, failure.message) == ("process:check", "bad value at 1")
    for _ in range(2):
        assert thread.apply(good).test == RecordTest(rows=1)
    assert thread.answer_to(good.command) is None and state(bench, thread) == before

    assert thread.apply(command(bench, patch=mend())).applied
    wait_until(lambda: bench.positions("a") == [0, 1])
    refused = thread.apply(good)
    reason = "the dead letter is not tested: 1 taken by an earlier redrive"
    assert (refused.applied, refused.reason) == (False, reason)
    assert thread.answer_to(good.command) is None
