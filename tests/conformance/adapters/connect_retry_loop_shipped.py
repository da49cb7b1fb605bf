"""Connect's retry loop: outcome, attempts, waits, counters."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.simulation import STAGES, Task, once, policy

IGNORED: dict[str, str] = {}
#: Where trunk counts one failed attempt twice, a case has the right value under this key.
COUNTED_ONCE = "total-record-failures_if_each_failed_call_counted_once"


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    task = Task(
        policy(
            given["stage"],
            errors_retry_timeout=given["retry_timeout_ms"],
            errors_retries_delay_max_ms=given["delay_max_ms"],
            errors_tolerance=given["tolerance"],
        ),
        stage=STAGES[given["stage"]],
        stop_during_wait=given.get("stop_requested_during_wait_number"),
    )
    assert given["operation_duration_ms"] == 0
    outcomes = given["attempt_outcomes"]
    outcome = task.operate(once(outcomes) if given["last_outcome_repeats"] else outcomes)
    assert outcome == expect["outcome"]
    if outcome == "undecided":
        assert (task.errors, task.counters.records_skipped) == (0, 0)
        assert len(task.waits) == given["stop_requested_during_wait_number"]
        return
    assert task.attempts == expect["attempts"]
    assert task.waits == expect["waits_ms"]
    assert task.kill_reason == expect["kill_reason"]
    assert task.now_ms == expect["elapsed_ms"]
    wanted = dict(expect["metrics_delta"])
    if COUNTED_ONCE in expect:
        wanted["total-record-failures"] = expect[COUNTED_ONCE]
    counted = task.connect_counters()
    counted.pop("total-errors-logged")
    assert {name: value for name, value in counted.items() if value} == wanted
