"""Dead letters as Connect writes them: headers, payload, configuration."""

from __future__ import annotations

from tests.conformance.cases import Case

NEEDS_SPARK = {
    "(all-headers|null-message|headers-appended.*)": "the headers that an executor writes",
    "topic-auto-created": "the request that creates the topic",
    "dlq-topic-matches-regex": "the refusal of a dead-letter topic that the pipeline reads",
    "integration-.*": "records, retries and dead letters of a running pipeline",
}


def check(case: Case) -> None:
    raise AssertionError(f"{case.name}: no rule here reads this form")
