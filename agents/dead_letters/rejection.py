"""Decide about dead letters that their destination rejected: call the production handler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pyspark.sql import Row

from arrester.agents.decisions.rules import FailureRules, SelfHealing, record_error
from arrester.agents.error_policy.respond import Decided
from arrester.agents.failure_log import log_failure
from arrester.agents.failures.failed_record import FailedRecord
from arrester.agents.spark.errors import Problem
from arrester.domain.error_policy.log_levels import LogMessage
from arrester.domain.error_policy.policy import StageKind
from arrester.domain.errors import ArresterError
from arrester.domain.events import FinalResponse


class DeadLettersNotWritten(ArresterError):
    """Dead letters could not be written and the handler did not answer CONTINUE: the run ends.

    They stay in the checkpoint. The next run writes them before anything else.
    """

    def __init__(self, location: str, problem: Problem) -> None:
        super().__init__(
            f"dead letters cannot be written to {location}: "
            f"{problem.exception_class}: {problem.message}"
        )
        self.problem = problem
        self.raised = record_error(problem)


def decide_rejection(
    dead_letter: Row, problem: Problem, location: str, rules: FailureRules
) -> None:
    """Call the production handler once, about the first rejected dead letter.

    Raises DeadLettersNotWritten for any response but CONTINUE.
    """
    # This is not one more failed record of its task, so the tolerance does not count it.
    rules = replace(rules, runs={})
    record = _failed_record(dead_letter, problem, number=rules.pipeline.produce_number)
    try:
        outcome = rules.respond_to_record(record, now_ms=rules.now_ms())
    except SelfHealing as exc:
        raise DeadLettersNotWritten(location, problem) from exc
    response = outcome.response if isinstance(outcome, Decided) else FinalResponse.FAIL
    if response is FinalResponse.PAUSE:
        log_failure(LogMessage.PAUSE_REFUSED, f"dead letters for {location}")
    if response is not FinalResponse.CONTINUE:
        raise DeadLettersNotWritten(location, problem)


def _failed_record(dead_letter: Row, problem: Problem, *, number: int) -> FailedRecord:
    """Return the record of a dead letter, failed at stage produce, whose step is `number`."""
    return FailedRecord(
        task=dead_letter["task"],
        position=dead_letter["position"],
        entry=0,
        number=number,
        stage=StageKind.PRODUCE,
        problem=problem,
        row=row_of(json.loads(dead_letter["row"])),
        key=None,
        value=None,
    )


def row_of(values: dict[str, Any]) -> Row:
    """Return values as a row. Its columns may have any names, also those of Row's arguments."""
    return Row(*values)(*values.values())
