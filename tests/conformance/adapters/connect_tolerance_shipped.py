"""errors.tolerance as Connect shipped it."""

from __future__ import annotations

from collections.abc import Callable

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.error_policy.retry import Attempts, deadline_ms
from arrester.domain.errors import InvalidConfiguration
from tests.conformance.cases import Case, Form, Json
from tests.conformance.simulation import CAUSES, STAGES, Task, policy

IGNORED = {
    "entry": "an external failure; ours are counted the same on every path",
    "then": "a description: the task is restarted",
}


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_rejected(case: Case) -> None:
    configs = case.given["config_each"]
    assert [is_rejected(config) for config in configs] == case.expect["rejected"]


def check_domain(case: Case) -> None:
    """Each setting is given with a list of values."""
    for name, values in case.given.items():
        assert [not is_rejected({name: value}) for value in values] == case.expect["valid"]


def check_read_back(case: Case) -> None:
    configs = case.given["config_each"]
    assert [read_back(config) for config in configs] == case.expect["read_back"]


def check_infinite(case: Case) -> None:
    values = case.given["errors.retry.timeout"]
    assert [is_infinite(value) for value in values] == case.expect["infinite"]


def check_external(case: Case) -> None:
    given = case.given
    task = Task(policy(given["stage"], errors_tolerance=given["tolerance"]))
    task.stage = STAGES[given["stage"]]
    killed = task.ended(task.fail(CAUSES["retriable"])) == "task_killed"
    assert killed is case.expect["raises"]


def check_failures(case: Case) -> None:
    given, expect = case.given, case.expect

    def fail(task: Task, failures: int) -> bool:
        return all(task.operate(["other"]) == "skipped" for _ in range(failures))

    settings = policy(errors_tolerance=given["tolerance"])
    if "first_run_failures" in given:
        assert not fail(Task(settings), given["first_run_failures"])
        # The next run starts with an empty tally.
        assert (Task(settings).operate(["ok"]) == "success") is expect[
            "within_limits_after_restart"
        ]
    else:
        assert fail(Task(settings), given["failures"]) is expect["within_limits"]


def check_records(case: Case) -> None:
    given, expect = case.given, case.expect
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


def check_defaults(case: Case) -> None:
    """By default nothing is retried, as with a time budget of 0, and nothing is tolerated."""
    expect = case.expect
    settings = ErrorSettings.read(case.given["config"])
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
    except InvalidConfiguration as error:
        return all(name in str(error) for name in config)
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


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.config_each", "expect.rejected"): check_rejected,
    ("given.config_each", "expect.read_back"): check_read_back,
    ("expect.valid",): check_domain,
    ("given.config",): check_defaults,
    ("expect.infinite",): check_infinite,
    ("given.records",): check_records,
    ("expect.raises",): check_external,
    ("expect.within_limits_after_restart",): check_failures,
    ("expect.within_limits",): check_failures,
}
