"""Count-limited retries of the seed draft."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.respond import Decided
from arrester.controlplane.domain.error_policy.retry import Attempts, RetryAfter, next_attempt
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from tests.conformance.adapters.schedules import check_schedule, schedule_of
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import Task, once, policy

NEEDS_SPARK: dict[str, str] = {}


def settings(given: Json) -> ErrorSettings:
    keys = {
        name if name.startswith("errors.") else f"errors.{name}": value
        for name, value in given.items()
        if "retries." in name
    }
    return ErrorSettings.read(keys)


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "consecutive_failures_before_success" in given:
        check_limit(given, expect)
    elif "may_retry" in expect:
        check_may_retry(given, expect)
    elif "schedule" in expect:
        check_schedule(settings(given).retry, expect["schedule"])
        if given.get("all_attempts_fail"):
            assert attempts_until_spent(given) == expect["attempts"]
    elif "first_wait_ms" in expect:
        retry = settings(given).retry
        schedule = schedule_of(expect["first_wait_ms"], retry.delay_max_ms, given["attempts"])
        check_schedule(retry, schedule)
    elif given.get("event") == "interrupt during backoff":
        task = Task(policy(errors_retries_limit=3), stop_during_wait=1)
        assert task.operate(once(["fail"])) == expect["outcome"]
        assert (task.errors, task.counters.records_skipped) == (0, 0)
    else:
        retry = settings({}).retry
        values = {"errors.retries.limit": retry.limit}
        values["errors.retries.delay.max.ms"] = retry.delay_max_ms
        assert values == expect


def check_limit(given: Json, expect: Json) -> None:
    outcomes = ["fail"] * given["consecutive_failures_before_success"] + ["ok"]
    task = Task(policy(errors_retries_limit=given["errors.retries.limit"]))
    outcome = task.operate(outcomes)
    exhausted = isinstance(task.last, Decided)
    assert ("retries_exhausted" if exhausted else outcome) == expect["outcome"]
    assert task.attempts == expect["attempts"]
    assert task.counters.total_retries == expect["retries"]


def check_may_retry(given: Json, expect: Json) -> None:
    retry = settings(given).retry
    answers = [
        isinstance(next_attempt(retry, Attempts(made=made), chance=int), RetryAfter)
        for made in given["attempts_made"]
    ]
    assert answers == expect["may_retry"]


def attempts_until_spent(given: Json) -> int:
    keys = {name: value for name, value in given.items() if name.startswith("errors.")}
    task = Task(policy(**{name.replace(".", "_"): value for name, value in keys.items()}))
    task.operate(once(["fail"]))
    return task.attempts
