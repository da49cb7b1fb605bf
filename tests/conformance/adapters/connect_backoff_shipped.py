"""Connect's delays between attempts."""

from __future__ import annotations

from collections.abc import Callable

from arrester.domain.error_policy.policy import Policy
from arrester.domain.error_policy.retry import (
    SATURATED_MS,
    Attempts,
    RetryPolicy,
    raw_wait_ms,
    wait_ms,
)
from tests.conformance.adapters.schedules import check_schedule
from tests.conformance.cases import Case, Form, Json
from tests.conformance.simulation import Task, once, policy

IGNORED = {
    "operation": "a description: always retriable, without a duration",
    "negative_or_zero_raw_delay_means": "an overflow of Kafka; our delay saturates",
    "sequence_restarts_at_attempt": "the same",
}


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def settings(given: Json) -> Policy:
    return policy(
        errors_retry_timeout=given["retry_timeout_ms"],
        errors_retry_delay_max_ms=given["delay_max_ms"],
        errors_tolerance="all",
    )


def check_delays(case: Case) -> None:
    assert case.given["attempts"] == len(case.expect["schedule"])
    check_schedule(settings(case.given).retry, case.expect["schedule"])


def check_long_timeout(case: Case) -> None:
    given = case.given
    assert case.recommended == {"treat_as": "infinite"}
    case.expect.ignore()  # `recommended` replaces it.
    task = Task(policy(errors_retry_timeout=given["retry_timeout_ms"]))
    task.now_ms = given["clock_starts_ms"]
    assert task.operate(given["outcomes"]) == "success"
    assert task.attempts == len(given["outcomes"])


def check_loop(case: Case) -> None:
    given, expect = case.given, case.expect
    task = Task(settings(given))
    failures = given.get("failures_before_success")
    outcome = task.operate(once(["fail"]) if failures is None else ["fail"] * failures + ["ok"])
    assert task.waits == expect["waits_ms"]
    assert task.attempts == expect.get("attempts", len(task.waits) + 1)
    assert outcome == expect.get("outcome_tolerance_all", "success")


def check_deadline(case: Case) -> None:
    given, expect = case.given, case.expect
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


def check_saturation(case: Case) -> None:
    """The raw delay is that of Kafka while it fits into 64 bits, and then the largest one."""
    assert case.recommended == {"raw_delay_saturates": True}
    case.given.ignore()  # The raw delay does not depend on the settings.
    for step in case.expect["raw_delay_by_attempt"]:
        exact = 300 * 2 ** (step["attempt"] - 1)
        assert raw_wait_ms(step["attempt"]) == min(exact, SATURATED_MS)
        if exact <= SATURATED_MS:
            assert exact == step["raw_delay_ms"]


FORMS: dict[Form, Callable[[Case], None]] = {
    ("expect.schedule",): check_delays,
    ("given.deadline_at_ms",): check_deadline,
    ("expect.raw_delay_by_attempt",): check_saturation,
    ("given.outcomes",): check_long_timeout,
    ("expect.waits_ms",): check_loop,
}
