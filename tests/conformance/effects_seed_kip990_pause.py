"""KIP-990 on Spark: written records and positions before and after a pause."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from arrester import ResumeHow
from arrester.agents.handlers import LogAndPause
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.thread_protocol import TaskCommand
from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case
from tests.patience import wait_until

Row = dict[str, Any]


def records(*, bad: int, count: int = 1) -> list[str]:
    """Return records up to the one after the `count` bad ones at offset `bad` and later."""
    offsets = range(bad + count + 1)
    return [f"{'bad' if bad <= each < bad + count else 'good'}@{each}" for each in offsets]


def failing_on(*words: str) -> Any:
    def check(row: Row) -> Row:
        if row["value"] in words:
            raise ValueError(row["value"])
        return row

    return check


def paused(bench: Bench, records: list[str]) -> PipelineThread:
    """Return a run whose task 0_0 is PAUSED at the bad one of `records`."""
    rows = [record.split("@") for record in records]
    bench.add(*[("0_0", int(offset), value) for value, offset in rows])
    thread = bench.start(bench.checking(failing_on("bad"), LogAndPause()))
    bench.wait_for_input()
    wait_until(lambda: bool(thread.paused_tasks()))
    return thread


def stopped_at(thread: PipelineThread, position: int) -> bool:
    return [task.position for task in thread.paused_tasks()] == [position]


def check_commits_last_good(case: Case, bench: Bench) -> None:
    [task] = paused(bench, case.given["records"]).paused_tasks()
    assert task.position == case.expect["committed_offset"]
    assert bench.positions("0_0") == case.expect["processed"]


def check_resume_fails(case: Case, bench: Bench) -> None:
    thread = paused(bench, records(bad=2))
    bench.stop()
    assert thread.apply(TaskCommand("0_0", how=ResumeHow.RETRY)).applied is case.expect["returns"]


def check_skip(case: Case, bench: Bench) -> None:
    bad, skips = case.given["committed_offset"], case.given["operator_shifts_by"]
    thread = paused(bench, records(bad=bad, count=skips))
    before = len(bench.positions("0_0"))
    for position in range(bad, bad + skips):
        wait_until(partial(stopped_at, thread, position))
        assert thread.apply(TaskCommand("0_0", how=ResumeHow.SKIP)).applied
    wait_until(lambda: len(bench.positions("0_0")) > before)
    assert bench.positions("0_0")[before] == case.expect["next_record_processed"]


def check_fix_and_restart(case: Case, bench: Bench) -> None:
    rows = records(bad=case.given["committed_offset"])
    paused(bench, rows)
    bench.stop()
    before = bench.positions("0_0")
    thread = bench.start(bench.checking(failing_on(), LogAndPause()), instance=uuid4())
    wait_until(lambda: len(bench.positions("0_0")) == len(rows))
    after = bench.positions("0_0")[len(before) :]
    assert after[0] == case.expect["first_record_processed"]
    assert [each for each in after if each in before] == case.expect["records_reprocessed"]
    [task] = thread.tasks()
    assert task.status == case.expect["task_state_after_restart"]


def check_resume(case: Case, bench: Bench) -> None:
    """A task in the given state is resumed."""
    state = case.given["task_state"]
    bench.add(("0_0", 0, "bad" if state == "PAUSED" else "x"))
    thread = bench.start(bench.checking(failing_on("bad"), LogAndPause()))
    bench.wait_for_input()
    assert [task.status for task in thread.paused_tasks()] == ([state] if state == "PAUSED" else [])
    assert case.given["call"] == "resume(task)"
    assert thread.apply(TaskCommand("0_0", how=ResumeHow.RETRY)).applied is case.expect["returns"]


def check_unknown_task(case: Case, bench: Bench) -> None:
    thread = paused(bench, records(bad=2))
    assert case.given["call"] == "resume(task)"
    assert (
        thread.apply(TaskCommand(case.given["task"], how=ResumeHow.RETRY)).applied
        is case.expect["returns"]
    )


def check_listing(case: Case, bench: Bench) -> None:
    # Spark has no standby tasks: here it is a task like any other.
    states = {name.split()[-1]: state for name, state in case.given["tasks"].items()}
    bench.add(*[(key, 0, "bad" if state == "PAUSED" else "x") for key, state in states.items()])
    thread = bench.start(bench.checking(failing_on("bad"), LogAndPause()))
    bench.wait_for_input()
    assert case.given["call"] == "pausedLocalTasks"
    listed = [task.id.key for task in thread.paused_tasks()]
    assert sorted(map(str, listed)) == case.expect["returns"]


CHECKS = {
    ("expect.committed_offset",): check_commits_last_good,
    ("given.transition_to_RUNNING",): check_resume_fails,
    ("given.operator_shifts_by",): check_skip,
    ("expect.task_state_after_restart",): check_fix_and_restart,
    ("given.tasks",): check_listing,
    ("given.task", "given.call"): check_unknown_task,
    ("given.task_state", "given.call"): check_resume,
}
