"""What a report of an error contains, and how loud it is."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.log_levels import LEVELS, Saying
from tests.conformance.cases import Case

NEEDS_SPARK = {
    "sink-record-details": "the line that the agent logs for a record",
    "context-fields.*": "the context that the agent hands to a handler and to the log",
}
SAYINGS = {
    "error reported": Saying.FAILURE_REPORTED,
    "each retry": Saying.RETRYING,
    "backoff sleep": Saying.WAITING,
    "task killed": Saying.TASK_KILLED,
    "task fails while stopping": Saying.KILLED_WHILE_STOPPING,
    "sink put retriable": Saying.SINK_RETRYING,
    "source poll retriable": Saying.SOURCE_RETRYING,
    "DLQ write failed": Saying.DEAD_LETTER_FAILED,
    "DLQ topic missing at start": Saying.DEAD_LETTER_TOPIC_MISSING,
}


#: What comes with a line, which no rule here decides: the trace is seen in `test_redaction` of the
#: agent's tests, and the topic in the suite about dead letters. That the agent says each of these
#: lines is seen in the agent's tests, too (`levels_of`).
BESIDE = {"error reported": " with stack trace", "DLQ topic missing at start": " then created"}


def check(case: Case) -> None:
    said = {name: LEVELS[SAYINGS[name]].name + BESIDE.get(name, "") for name in case.expect}
    assert said == case.expect
