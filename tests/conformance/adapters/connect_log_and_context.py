"""The content of an error report, and its log level."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.log_levels import LEVELS, Saying
from tests.conformance.cases import Case, Known

IGNORED = {"extra_stage_types": "stages of Connect's life cycle, which have no counterpart"}
SAYINGS = Known(
    {
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
)


#: Additions that no rule decides. Tests of the agent check the trace and that each line is logged;
#: the suite about dead letters checks the topic.
ADDITIONS = {"error reported": " with stack trace", "DLQ topic missing at start": " then created"}


def check(case: Case) -> None:
    found = {name: LEVELS[SAYINGS[name]].name + ADDITIONS.get(name, "") for name in case.expect}
    assert case.expect == found
