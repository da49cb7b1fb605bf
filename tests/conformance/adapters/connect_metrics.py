"""Counters after given sequences."""

from __future__ import annotations

from itertools import count

from msgspec.structs import fields

from arrester.controlplane.domain.error_policy.settings import ErrorSettings
from arrester.controlplane.domain.state.states import Counters
from tests.conformance.adapters.connect_retry_loop_shipped import COUNTED_ONCE
from tests.conformance.cases import Case, Json
from tests.conformance.simulation import STAGES, Task, once, policy

NEEDS_SPARK = {
    "dlq-(?!empty).*": "dead-letter writes, and those that fail after they were accepted"
}
FLAKY = "fails retriably on calls 1 and 2 of every 3"


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "steps" in given:
        check_steps(given, expect)
    elif given.get("transformation") == FLAKY:
        check_flaky(given, expect)
    elif "context_failed" in given:
        check_logged(given, expect)
    elif given.get("dlq_topic") == "":
        letters = ErrorSettings.read({"errors.deadletterqueue.topic.name": ""}).dead_letters
        assert not letters.enable
        assert set(expect.values()) == {0}
    else:
        names = {field.name.replace("_", "-") for field in fields(Counters)}
        assert set(expect["seed_to_shipped"]) == names


def task_of(given: Json) -> Task:
    keys = {"errors_tolerance": given["tolerance"]}
    keys["errors_retry_timeout"] = given.get("retry_timeout_ms", 60_000)
    if "delay_max_ms" in given:
        keys["errors_retries_delay_max_ms"] = given["delay_max_ms"]
    task = Task(policy(**keys))
    task.logged = given.get("errors.log.enable", given.get("log_enabled", False))
    return task


def check_steps(given: Json, expect: Json) -> None:
    task, outcomes = task_of(given), []
    for step in given["steps"]:
        task.stage = STAGES[step.get("stage", "TASK_PUT")]
        # What a sink reports about a record is a failure of the record, whatever its class.
        attempts = step.get("attempt_outcomes", ["retriable"])
        outcomes.append(task.operate(once(attempts)))
    if given["dlq_configured"]:
        task.dead_letter()
    assert outcomes == expect["step_outcomes"]
    wanted = dict(expect["metrics"])
    if COUNTED_ONCE in expect:
        wanted["total-record-failures"] = expect[COUNTED_ONCE]
    assert task.connect_counters() == wanted


def check_flaky(given: Json, expect: Json) -> None:
    """A stage, or two, that fail on two of three calls; and perhaps one record nobody can read."""
    records = given["records"]
    kinds = ["valid"] * records if isinstance(records, int) else records
    task, sent, calls = task_of(given), 0, count(1)
    flaky_stages = 1 + (given.get("value_converter") == FLAKY)
    for kind in kinds:
        if kind != "valid":
            assert task.operate(["other"]) == "skipped"
            continue
        for _ in range(flaky_stages):
            outcomes = ("ok" if next(calls) % 3 == 0 else "retriable" for _ in range(9))
            assert task.operate(outcomes) == "success"
        sent += 1
    counted = task.connect_counters() | {
        "sink-record-read-total": len(kinds),
        "source-record-poll-total": len(kinds),
        "sink-record-send-total": sent,
    }
    assert {name: counted[name] for name in expect} == expect


def check_logged(given: Json, expect: Json) -> None:
    task = Task(policy(errors_tolerance="all"), logged=given["errors.log.enable"])
    for _ in range(given["reports"]):
        task.operate(["other" if given["context_failed"] else "ok"])
    assert task.counters.failures_logged == expect["total-errors-logged"]
