"""Connect's REST plane: the behaviour that a task or a sink has here, too."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.cases import Case, Form
from tests.conformance.simulation import STAGES, Task, policy

IGNORED = {
    "exception": "a rebalance restarts Connect's tasks; Spark has none",
    "cleared_by": "a description; the check runs the task again",
    "trace": "a description; the check reads the stack trace",
    "listener": "the name of a callback of Connect",
    "poll": "a description: the source raises",
}
RECORD = ("the failed record", "next record")


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_producer_error(case: Case) -> None:
    """Find the record with which a sink's error ends the run."""
    given = case.given
    assert given["first"] == "producer callback error"
    stage = "KAFKA_PRODUCE"
    task = Task(policy(stage, errors_tolerance=given["tolerance"]), stage=STAGES[stage])
    outcomes = [task.operate([each]) for each in ["retriable"] + ["ok"] * (given["records"] - 1)]
    killed = "task_killed" in outcomes
    found = RECORD[outcomes.index("task_killed")] if killed else None
    assert found == case.expect["raises_on"]


FORMS: dict[Form, Callable[[Case], None]] = {("expect.raises_on",): check_producer_error}
