"""Which stage's exceptions are retried, tolerated or fatal."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.retry import RetryAfter
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import CAUSES, STAGES, Task, policy

NEEDS_SPARK: dict[str, str] = {}
READ, WORK, PUT = "VALUE_CONVERTER", "TRANSFORMATION", "TASK_PUT"
RETRIED = ["retriable"]


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    rules = given["rule_set"]
    if rules == "shipped operator":
        check_operator(given, expect)
    elif rules == "accepted KIP":
        for stages, wanted in (
            ((READ, WORK), expect["transformation_and_converters"]),
            ((PUT, "KAFKA_PRODUCE"), expect["produce_and_put"]),
            (("TASK_POLL", "KAFKA_CONSUME"), expect["poll_and_consume"]),
        ):
            for stage in stages:
                assert retried(stage) == wanted["retry"]
                assert tolerated(stage) == wanted["tolerate"]
    elif "retried_and_tolerated" in expect:
        assert "retriable exceptions" in expect["retried_and_tolerated"]
        assert expect["anything_else"] == "raised at once: no retry, no tolerance"
        assert retried(given["stage"]) == tolerated(given["stage"]) == RETRIED
    else:
        assert retried(given["stage"]) == expect["retry"]
        assert tolerated(given["stage"]) == expect["tolerate"]


def check_operator(given: Json, expect: Json) -> None:
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
