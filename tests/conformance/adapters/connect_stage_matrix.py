"""Which stage's exceptions are retried, tolerated or fatal."""

from __future__ import annotations

from collections.abc import Callable

from arrester.domain.error_policy.retry import RetryAfter
from tests.conformance.cases import Case, Form, Known
from tests.conformance.simulation import CAUSES, STAGES, Task, policy

IGNORED = {
    "rule_set": "`seed` and `WIP`: the other fields state their rules",
    "exception": "`decided.toml` states the kinds that are retried and tolerated",
}
GROUPS = Known(
    transformation_and_converters=("VALUE_CONVERTER", "TRANSFORMATION"),
    produce_and_put=("TASK_PUT", "KAFKA_PRODUCE"),
    poll_and_consume=("TASK_POLL", "KAFKA_CONSUME"),
)
KINDS = Known(
    {
        "Connect's retriable exceptions": ["retriable"],
        "Kafka clients' retriable exceptions": ["retriable"],
        "any exception": ["retriable", "other"],
    }
)


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_groups(case: Case) -> None:
    """The accepted KIP's table: groups of stages, retried and tolerated kinds."""
    for group, wanted in case.expect.items():
        for stage in GROUPS[group]:
            assert retried(stage) == wanted["retry"]
            assert tolerated(stage) == wanted["tolerate"]


def check_stage(case: Case) -> None:
    given, expect = case.given, case.expect
    assert retried(given["stage"]) == expect["retry"]
    assert tolerated(given["stage"]) == expect["tolerate"]


def check_wip(case: Case) -> None:
    """The author's draft retries and tolerates the same kinds of exceptions."""
    given, expect = case.given, case.expect
    assert expect["anything_else"] == "raised at once: no retry, no tolerance"
    kinds = KINDS[expect["retried_and_tolerated"]]
    assert retried(given["stage"]) == tolerated(given["stage"]) == kinds


def check_operator(case: Case) -> None:
    given, expect = case.given, case.expect
    stage, exception = given["stage"], given["exception"]
    assert (exception in retried(stage)) is expect["retried_if_timeout_positive"]
    task = Task(
        policy(
            stage,
            errors_tolerance=given["tolerance"],
            errors_retry_timeout=given["retry_timeout_ms"],
        ),
        stage=STAGES[stage],
    )
    assert task.ended(task.fail(CAUSES[exception])) == expect["outcome_without_retry"]
    assert task.kill_reason == expect["kill_reason"]


def retried(stage: str) -> list[str]:
    """Return the kinds of exceptions that are tried again while there is budget."""
    task = Task(policy(stage, errors_retry_timeout=1000), stage=STAGES[stage])
    kinds = ("retriable", "other")
    return [kind for kind in kinds if isinstance(task.fail(CAUSES[kind]), RetryAfter)]


def tolerated(stage: str) -> list[str]:
    """Return the kinds of exceptions after which a record may be left out, without a handler."""
    task = Task(policy(stage, errors_tolerance="all"), stage=STAGES[stage])
    kinds = ("retriable", "other")
    return [kind for kind in kinds if task.ended(task.fail(CAUSES[kind])) == "skipped"]


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.rule_set~shipped operator",): check_operator,
    ("given.rule_set~accepted KIP",): check_groups,
    ("expect.retried_and_tolerated",): check_wip,
    ("given.stage", "expect.retry", "expect.tolerate"): check_stage,
}
