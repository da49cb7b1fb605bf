"""KIP-990 on Spark: what is written and kept around a pause."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from arrester import ResumeHow
from arrester.agents.handlers import LogAndPause
from arrester.agents.run.thread import PipelineThread
from tests.agents.engine.bench import Bench, wait_until
from tests.conformance.cases import Case

Row = dict[str, Any]
#: What a case takes for granted where it begins at a committed offset of 2.
RECORDS = ["good@0", "good@1", "bad@2", "good@3"]


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


def check_commits_last_good(case: Case, bench: Bench) -> None:
    [task] = paused(bench, case.given["records"]).paused_tasks()
    assert task.position == case.expect["committed_offset"]
    assert bench.positions("0_0") == case.expect["processed"]


def check_resume_fails(case: Case, bench: Bench) -> None:
    thread = paused(bench, RECORDS)
    bench.stop()
    assert thread.resume("0_0", how=ResumeHow.RETRY).applied is case.expect["returns"]


def check_skip(case: Case, bench: Bench) -> None:
    thread = paused(bench, RECORDS)
    assert case.given["operator_shifts_by"] == 1
    before = len(bench.positions("0_0"))
    assert thread.resume("0_0", how=ResumeHow.SKIP).applied
    wait_until(lambda: len(bench.positions("0_0")) > before)
    assert bench.positions("0_0")[before] == case.expect["next_record_processed"]


def check_fix_and_restart(case: Case, bench: Bench) -> None:
    paused(bench, RECORDS)
    bench.stop()
    before = bench.positions("0_0")
    thread = bench.start(bench.checking(failing_on(), LogAndPause()), instance=uuid4())
    wait_until(lambda: len(bench.positions("0_0")) == len(RECORDS))
    after = bench.positions("0_0")[len(before) :]
    assert after[0] == case.expect["first_record_processed"]
    assert [each for each in after if each in before] == case.expect["records_reprocessed"]
    [task] = thread.tasks()
    assert task.status == case.expect["task_state_after_restart"]


def check_listing(case: Case, bench: Bench) -> None:
    # A standby task is to Spark a task like any other.
    states = {name.split()[-1]: state for name, state in case.given["tasks"].items()}
    bench.add(*[(key, 0, "bad" if state == "PAUSED" else "x") for key, state in states.items()])
    thread = bench.start(bench.checking(failing_on("bad"), LogAndPause()))
    bench.wait_for_input()
    listed = [task.id.key for task in thread.paused_tasks()]
    assert sorted(map(str, listed)) == case.expect["returns"]


CHECKS = {
    "pause-commits-last-good": check_commits_last_good,
    "resume-fails-to-transition": check_resume_fails,
    "skip-then-resume": check_skip,
    "fix-and-restart": check_fix_and_restart,
    "paused-listing": check_listing,
}
