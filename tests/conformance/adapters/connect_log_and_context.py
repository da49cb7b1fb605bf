"""The content of an error report, and its log level."""

from __future__ import annotations

from arrester.domain.error_policy.log_levels import LEVELS, LogMessage
from tests.conformance.cases import Case, Known

IGNORED = {"extra_stage_types": "stages of Connect's life cycle, which have no counterpart"}
SAYINGS = Known(
    {
        "error reported": LogMessage.FAILURE_REPORTED,
        "each retry": LogMessage.RETRYING,
        "backoff sleep": LogMessage.WAITING,
        "task killed": LogMessage.TASK_KILLED,
        "task fails while stopping": LogMessage.KILLED_WHILE_STOPPING,
        "sink put retriable": LogMessage.SINK_RETRYING,
        "source poll retriable": LogMessage.SOURCE_RETRYING,
        "DLQ write failed": LogMessage.DEAD_LETTER_FAILED,
        "DLQ topic missing at start": LogMessage.DEAD_LETTER_TOPIC_MISSING,
    }
)


#: Additions that no rule decides. Tests of the agent check the trace and that each line is logged;
#: the suite about dead letters checks the topic.
ADDITIONS = {"error reported": " with stack trace", "DLQ topic missing at start": " then created"}


def check(case: Case) -> None:
    found = {name: LEVELS[SAYINGS[name]].name + ADDITIONS.get(name, "") for name in case.expect}
    assert case.expect == found
