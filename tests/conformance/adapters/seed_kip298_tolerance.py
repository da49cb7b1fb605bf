"""Total and rate limits of the seed draft."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.respond import Decided, DecisionReason
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.policy import Response, StageKind
from tests.conformance.cases import Case, Form, Json
from tests.conformance.simulation import Task, policy

IGNORED = {"with_sliding_window_instead": "decided: the window is tumbling"}
BY = {DecisionReason.TOLERANCE_EXCEEDED: "overall", DecisionReason.RATE_EXCEEDED: "rate"}


def settings(given: Json) -> ErrorSettings:
    keys = {
        name if name.startswith("errors.") else f"errors.{name}": given[name]
        for name in given
        if "tolerance." in name or "retries." in name
    }
    return ErrorSettings.read(keys)


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def task_of(case: Case) -> Task:
    return Task(settings(case.given).policy(StageKind.PROCESS))


def check_reported(case: Case) -> None:
    task, failures = task_of(case), case.given["failures"]
    outcomes = [task.operate(["other"]) for _ in range(failures)]
    assert (outcomes[-1] == "task_killed") is case.expect["task_killed"]
    reported = (task.errors, task.counters.failures_logged) == (failures, failures)
    assert reported is case.expect["reported"]


def check_failures(case: Case) -> None:
    check_times(case, [1000 + number for number in range(case.given["failures"])])


def check_failure_times(case: Case) -> None:
    check_times(case, case.given["failure_times_ms"])


def check_times(case: Case, times: list[int]) -> None:
    task, expect = task_of(case), case.expect
    killed_by: int | str | None = None
    for number, now_ms in enumerate(times, start=1):
        task.now_ms = now_ms
        if task.operate(["other"]) == "task_killed":
            killed_by = number
            break
    wanted = expect["killed_by_failure_number"]
    assert killed_by == (None if wanted == "never" else wanted)
    if "by" in expect:
        by = BY.get(task.last.reason) if isinstance(task.last, Decided) else None
        assert by == expect["by"]
    if "skipped" in expect:
        assert task.counters.records_skipped == expect["skipped"]


def check_records(case: Case) -> None:
    task, given, expect = task_of(case), case.given, case.expect
    assert [task.operate(outcomes) for outcomes in given["records"]] == expect["outcomes"]
    assert task.counters.record_failures == expect["failed_attempts"]
    assert task.counters.total_retries == expect["retries"]
    assert task.run.tally.total == expect["failures_counted_against_tolerance"]


def check_defaults(case: Case) -> None:
    expect = case.expect
    found = ErrorSettings.read(case.given["config"])
    values: Json = {
        "retries.limit": found.retry.limit,
        "retries.delay.max.ms": found.retry.delay_max_ms,
        "tolerance.rate.duration": found.tolerance.window,
    }
    assert all(values[name] == expect[name] for name in values if name in expect)
    assert tolerated(Task(policy())) == expect["tolerated_without_handler_or_limit"]
    handled = ErrorSettings.read({"processing.exception.handler": "my.Handler"})
    asked = Task(handled.policy(StageKind.PROCESS), answer=Response.CONTINUE)
    assert tolerated(asked) == expect["tolerated_of_1000_with_a_handler"]


def tolerated(task: Task) -> int:
    return sum(task.operate(["other"]) == "skipped" for _ in range(1000))


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.records",): check_records,
    ("given.config",): check_defaults,
    ("expect.reported",): check_reported,
    ("given.failure_times_ms",): check_failure_times,
    ("given.failures",): check_failures,
}
