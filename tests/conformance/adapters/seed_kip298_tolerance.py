"""Total and rate limits of the seed draft."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from arrester.controlplane.domain.error_policy.respond import Because, Decided
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import Task, policy

NEEDS_SPARK: dict[str, str] = {}
BY = {Because.TOLERANCE_EXCEEDED: "overall", Because.RATE_EXCEEDED: "rate"}


def settings(given: Json) -> ErrorSettings:
    keys = {
        name if name.startswith("errors.") else f"errors.{name}": value
        for name, value in given.items()
        if "tolerance." in name or "retries." in name
    }
    return ErrorSettings.read(keys)


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    task = Task(settings(given).policy(StageKind.PROCESS))
    if "records" in given:
        check_records(task, given, expect)
    elif "config" in given:
        check_defaults(expect)
    elif expect.get("reported"):
        assert task.operate(["other"]) == "task_killed"
        assert expect["task_killed"]
        assert (task.errors, task.counters.failures_logged) == (1, 1)
    else:
        times = given.get("failure_times_ms") or [1000 + n for n in range(given["failures"])]
        check_times(task, times, expect)


def check_times(task: Task, times: list[int], expect: Json) -> None:
    killed_by: int | str | None = None
    for number, now_ms in enumerate(times, start=1):
        task.now_ms = now_ms
        if task.operate(["other"]) == "task_killed":
            killed_by = number
            break
    wanted = expect["killed_by_failure_number"]
    assert killed_by == (None if wanted == "never" else wanted)
    if "by" in expect:
        by = BY.get(task.last.because) if isinstance(task.last, Decided) else None
        assert by == expect["by"]
    if "skipped" in expect:
        assert task.counters.records_skipped == expect["skipped"]


def check_records(task: Task, given: Json, expect: Json) -> None:
    assert [task.operate(outcomes) for outcomes in given["records"]] == expect["outcomes"]
    assert task.counters.record_failures == expect["failed_attempts"]
    assert task.counters.total_retries == expect["retries"]
    assert task.run.tally.total == expect["failures_counted_against_tolerance"]


def check_defaults(expect: Json) -> None:
    found = ErrorSettings.read({})
    values: Json = {
        "retries.limit": found.retry.limit,
        "retries.delay.max.ms": found.retry.delay_max_ms,
        "tolerance.rate.duration": found.tolerance.window,
    }
    wanted = {name: value for name, value in expect.items() if name in values}
    assert {name: values[name] for name in wanted} == wanted
    assert tolerated(Task(policy())) == expect["tolerated_without_handler_or_limit"]
    handled = ErrorSettings.read({"processing.exception.handler": "my.Handler"})
    asked = Task(handled.policy(StageKind.PROCESS), answer=Answer.CONTINUE)
    assert tolerated(asked) == expect["tolerated_of_1000_with_a_handler"]


def tolerated(task: Task) -> int:
    return sum(task.operate(["other"]) == "skipped" for _ in range(1000))
