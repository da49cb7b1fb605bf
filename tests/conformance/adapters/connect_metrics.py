"""Counters after given sequences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from msgspec.structs import fields

from arrester.domain.state.states import Counters
from tests.conformance.adapters.connect_retry_loop_shipped import COUNTED_ONCE
from tests.conformance.cases import Case, Form, Json, Known
from tests.conformance.simulation import AT, STAGES, Task, once, policy

IGNORED = {
    "mbean": "the name of a JMX bean",
    "group": "the group of a JMX bean",
    "shipped_but_not_in_seed": "errors are records here: `connect_counters` counts them",
}
KINDS = Known({"valid": True, "undecodable value": False, "undecodable key": False})
FLAKY = "fails retriably on calls 1 and 2 of every 3"


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_seed_names(case: Case) -> None:
    names = {field.name.replace("_", "-") for field in fields(Counters)}
    assert set(case.expect["seed_to_shipped"]) == names


def check_names(case: Case) -> None:
    """Each name is a counter that only rises, or the time of the last failure."""
    gauges = {"last-error-timestamp": Task.last_failure_ms}
    task = Task(policy(errors_tolerance="all"))
    assert set(case.expect["names"]) == {*task.connect_counters(), *gauges}
    types = dict(case.expect["type"])
    assert types.pop("others") == "cumulative sums per task instance"
    assert set(types) == set(gauges)
    for name, read in gauges.items():
        assert types[name] == "epoch ms gauge, 0 until the first failure"
        assert read(task) == 0
        task.operate(["other"])
        assert read(task) == AT.occurred_at.timestamp() * 1000
    before = task.connect_counters()
    task.operate(["other"])
    assert all(value >= before[name] for name, value in task.connect_counters().items())


def task_of(given: Json) -> Task:
    keys = {"errors_tolerance": given["tolerance"]}
    keys["errors_retry_timeout"] = given.get("retry_timeout_ms", 60_000)
    if "delay_max_ms" in given:
        keys["errors_retries_delay_max_ms"] = given["delay_max_ms"]
    task = Task(policy(**keys))
    task.logged = given.get("errors.log.enable", given.get("log_enabled", False))
    return task


def check_steps(case: Case) -> None:
    given, expect = case.given, case.expect
    task, outcomes = task_of(given), []
    for step in given["steps"]:
        task.stage = STAGES[step.get("stage", "TASK_PUT")]
        # A failure that a sink reports is a failure of its record, with any exception.
        attempts = step.get("attempt_outcomes", ["retriable"])
        outcomes.append(task.operate(once(attempts)))
    if given["dlq_configured"]:
        task.dead_letter()
    wanted = dict(expect["metrics"])
    # Decided: reported records are counted the same on every path, so a tolerated one is skipped.
    tolerated = expect["step_outcomes"].count("tolerated")
    wanted["total-record-errors"] += tolerated
    wanted["total-records-skipped"] += tolerated
    names = {"tolerated": "skipped"}
    assert outcomes == [names.get(each, each) for each in expect["step_outcomes"]]
    if COUNTED_ONCE in expect:
        wanted["total-record-failures"] = expect[COUNTED_ONCE]
    assert task.connect_counters() == wanted


def check_flaky(case: Case) -> None:
    """One or two stages fail on two of three calls; other records are undecodable."""
    given, expect = case.given, case.expect
    records = given["records"]
    kinds = ["valid"] * records if isinstance(records, int) else records
    task, sent, calls = task_of(given), 0, count(1)
    flaky_stages = sum(given.get(each) == FLAKY for each in ("transformation", "value_converter"))
    for kind in kinds:
        if not KINDS[kind]:
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
    assert expect == {name: counted[name] for name in expect}


def check_logged(case: Case) -> None:
    given, expect = case.given, case.expect
    task = Task(policy(errors_tolerance="all"), logged=given["errors.log.enable"])
    for _ in range(given["reports"]):
        task.operate(["other" if given["context_failed"] else "ok"])
    assert task.counters.failures_logged == expect["total-errors-logged"]


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.steps",): check_steps,
    ("given.transformation", "given.records"): check_flaky,
    ("given.context_failed",): check_logged,
    ("expect.seed_to_shipped",): check_seed_names,
    ("expect.names",): check_names,
}
