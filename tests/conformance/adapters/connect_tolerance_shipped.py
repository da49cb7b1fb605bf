"""errors.tolerance as Connect shipped it."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.policy import StageKind
from arrester.controlplane.domain.error_policy.retry import Attempts, deadline_ms
from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from arrester.controlplane.domain.errors import InvalidConfiguration
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import CAUSES, STAGES, Task, policy

NEEDS_SPARK: dict[str, str] = {}


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "rejected" in expect:
        assert [is_rejected(config) for config in given["config_each"]] == expect["rejected"]
    elif "config" in given:
        check_defaults(given["config"], expect)
    elif "config_each" in given:
        assert [read_back(config) for config in given["config_each"]] == expect["read_back"]
    elif "errors.retry.timeout" in given:
        assert [is_infinite(value) for value in given["errors.retry.timeout"]] == expect["infinite"]
    elif "records" in given:
        check_records(given, expect)
    elif "raises" in expect:
        task = Task(policy(given["stage"], errors_tolerance=given["tolerance"]))
        task.stage = STAGES[given["stage"]]
        assert (task.ended(task.fail(CAUSES["retriable"])) == "task_killed") is expect["raises"]
    else:
        check_failures(given, expect)


def check_failures(given: Json, expect: Json) -> None:
    def fail(task: Task, failures: int) -> bool:
        return all(task.operate(["other"]) == "skipped" for _ in range(failures))

    settings = policy(errors_tolerance=given["tolerance"])
    if "first_run_failures" in given:
        assert not fail(Task(settings), given["first_run_failures"])
        # The next run begins with an empty tally.
        assert (Task(settings).operate(["ok"]) == "success") is expect[
            "within_limits_after_restart"
        ]
    else:
        assert fail(Task(settings), given["failures"]) is expect["within_limits"]


def check_records(given: Json, expect: Json) -> None:
    task = Task(policy(given["stage"], errors_tolerance=given["tolerance"]))
    skipped = []
    killed_at = None
    for number, record in enumerate(given["records"], start=1):
        outcome = task.operate([record])
        if outcome == "task_killed":
            killed_at = number
            break
        if outcome == "skipped":
            skipped.append(number)
    assert killed_at == expect["killed_at_record"]
    assert skipped == expect["skipped_records"]


def check_defaults(config: Json, expect: Json) -> None:
    """Without a word nothing is retried, as with a time budget of 0, and nothing is tolerated."""
    settings = ErrorSettings.read(config)
    task = Task(settings.policy(StageKind.PROCESS))
    found = {
        "errors.retry.timeout": 0 if settings.retry.limit == 0 else settings.retry.timeout_ms,
        "errors.retry.delay.max.ms": settings.retry.delay_max_ms,
        "errors.tolerance": "none" if task.operate(["other"]) == "task_killed" else "all",
    }
    assert {name: found[name] for name in expect} == expect


def is_rejected(config: Json) -> bool:
    try:
        ErrorSettings.read(config)
    except InvalidConfiguration as refused:
        return all(name in str(refused) for name in config)
    return False


def read_back(config: Json) -> int | str:
    settings = ErrorSettings.read(config)
    match list(config):
        case ["errors.retry.timeout"]:
            return settings.retry.timeout_ms
        case ["errors.retry.delay.max.ms"]:
            return settings.retry.delay_max_ms
        case _:
            limit = settings.policy(StageKind.PROCESS).tolerance.limit
            return {0: "none", -1: "all"}[limit if limit is not None else 1]


def is_infinite(value: int) -> bool:
    retry = ErrorSettings.read({"errors.retry.timeout": value}).retry
    return retry.limit < 0 and deadline_ms(retry, Attempts()) is None
