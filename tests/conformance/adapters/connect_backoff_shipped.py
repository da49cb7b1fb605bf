"""Connect's waits between attempts."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.retry import (
    SATURATED_MS,
    Attempts,
    RetryPolicy,
    raw_wait_ms,
    wait_ms,
)
from tests.conformance.adapters.schedules import check_schedule
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import Task, once, policy

NEEDS_SPARK: dict[str, str] = {}


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "schedule" in expect:
        check_schedule(
            RetryPolicy(limit=-1, delay_max_ms=given["delay_max_ms"]), expect["schedule"]
        )
    elif "deadline_at_ms" in given:
        check_deadline(given, expect)
    elif "raw_delay_by_attempt" in expect:
        assert case.recommended == {"raw_delay_saturates": True}
        check_saturation(expect["raw_delay_by_attempt"])
    elif case.recommended == {"treat_as": "infinite"}:
        task = Task(policy(errors_retry_timeout=given["retry_timeout_ms"]))
        task.now_ms = given["clock_starts_ms"]
        assert task.operate(given["outcomes"]) == "success"
        assert task.attempts == len(given["outcomes"])
    else:
        check_loop(given, expect)


def check_loop(given: Json, expect: Json) -> None:
    task = Task(
        policy(
            errors_retry_timeout=given["retry_timeout_ms"],
            errors_retry_delay_max_ms=given["delay_max_ms"],
            errors_tolerance="all",
        )
    )
    failures = given.get("failures_before_success")
    outcome = task.operate(once(["fail"]) if failures is None else ["fail"] * failures + ["ok"])
    assert task.waits == expect["waits_ms"]
    assert task.attempts == expect.get("attempts", len(task.waits) + 1)
    assert outcome == expect.get("outcome_tolerance_all", "success")


def check_deadline(given: Json, expect: Json) -> None:
    now_ms = start_ms = given["clock_starts_ms"]
    retry = RetryPolicy(
        limit=-1, timeout_ms=given["deadline_at_ms"], delay_max_ms=given["delay_max_ms"]
    )
    waits = []
    for made in given["attempts"]:
        attempts = Attempts(made=made, started_ms=start_ms, now_ms=now_ms)
        waits.append(wait_ms(retry, attempts, chance=lambda below: below - 1))
        now_ms += waits[-1]
    assert waits == expect["waits_ms"]
    late = Attempts(
        made=given["then_attempt"], started_ms=start_ms, now_ms=given["clock_after_5th_ms"]
    )
    assert wait_ms(retry, late, chance=lambda below: below - 1) == expect["sixth_wait_ms"]


def check_saturation(steps: list[Json]) -> None:
    """Up to where a 64-bit number holds it, the wait is upstream's; beyond, the largest one."""
    for step in steps:
        exact = 300 * 2 ** (step["attempt"] - 1)
        assert raw_wait_ms(step["attempt"]) == min(exact, SATURATED_MS)
        if exact <= SATURATED_MS:
            assert exact == step["raw_delay_ms"]
