"""Count-limited retries of the seed draft."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.respond import Decided
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.retry import Attempts, RetryAfter, next_attempt
from tests.conformance.adapters.schedules import check_schedule, schedule_of
from tests.conformance.cases import Case, Form, Json
from tests.conformance.simulation import Task, once, policy

IGNORED = {"exception": "a description: handled at this stage"}


def settings(given: Json) -> ErrorSettings:
    keys = {
        name if name.startswith("errors.") else f"errors.{name}": given[name]
        for name in given
        if "retries." in name
    }
    return ErrorSettings.read(keys)


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_delays(case: Case) -> None:
    given, expect = case.given, case.expect
    check_schedule(settings(given).retry, expect["schedule"])
    if given.get("all_attempts_fail"):
        assert attempts_until_exhausted(given) == expect["attempts"]


def check_growth(case: Case) -> None:
    given, expect = case.given, case.expect
    retry = settings(given).retry
    schedule = schedule_of(expect["first_wait_ms"], retry.delay_max_ms, given["attempts"])
    check_schedule(retry, schedule)


def check_interrupt(case: Case) -> None:
    task = Task(policy(errors_retries_limit=3), stop_during_wait=1)
    assert task.operate(once(["fail"])) == case.expect["outcome"]
    assert (task.errors, task.counters.records_skipped) == (0, 0)


def check_defaults(case: Case) -> None:
    retry = settings(case.given).retry
    assert case.expect == {
        "errors.retries.limit": retry.limit,
        "errors.retries.delay.max.ms": retry.delay_max_ms,
    }


def check_limit(case: Case) -> None:
    given, expect = case.given, case.expect
    outcomes = ["fail"] * given["consecutive_failures_before_success"] + ["ok"]
    task = Task(policy(errors_retries_limit=given["errors.retries.limit"]))
    outcome = task.operate(outcomes)
    exhausted = isinstance(task.last, Decided)
    assert ("retries_exhausted" if exhausted else outcome) == expect["outcome"]
    assert task.attempts == expect["attempts"]
    assert task.counters.total_retries == expect["retries"]


def check_may_retry(case: Case) -> None:
    given, expect = case.given, case.expect
    retry = settings(given).retry
    answers = [
        isinstance(next_attempt(retry, Attempts(made=made), chance=int), RetryAfter)
        for made in given["attempts_made"]
    ]
    assert answers == expect["may_retry"]


def attempts_until_exhausted(given: Json) -> int:
    names = [name for name in given if name.startswith("errors.")]
    task = Task(policy(**{name.replace(".", "_"): given[name] for name in names}))
    task.operate(once(["fail"]))
    return task.attempts


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.consecutive_failures_before_success",): check_limit,
    ("expect.may_retry",): check_may_retry,
    ("expect.schedule",): check_delays,
    ("expect.first_wait_ms",): check_growth,
    ("given.event~interrupt during backoff",): check_interrupt,
    ("expect.errors.retries.limit",): check_defaults,
}
