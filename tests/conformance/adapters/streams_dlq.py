"""Dead letters of Streams: KIP-1034."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.policy import Answer, StageKind
from tests.conformance.adapters.streams_deserialization_and_processing import task_of
from tests.conformance.cases import Case, Json

NEEDS_SPARK = {
    "(headers|header-names)": "the headers that an executor writes",
    "dlq-goes-through-.*": "when a dead letter of a task that then dies becomes visible",
}
BAD = ("KABOOM", "undecodable")


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "records" in given:
        stage = StageKind.DESERIALIZE if "deserialization" in case.id else StageKind.PROCESS
        check_records(stage, given, expect)
    else:
        raise AssertionError(f"{case.name}: no rule here reads this form")


def check_records(stage: StageKind, given: Json, expect: Json) -> None:
    """The rules leave out and dead-letter the bad ones; the headers are the executors' affair."""
    task = task_of(stage, Answer.CONTINUE)
    fates = [task.operate(["other" if record in BAD else "ok"]) for record in given["records"]]
    pairs = zip(given["records"], fates, strict=True)
    assert [record for record, fate in pairs if fate == "success"] == expect["output"]
    assert task.dead_letters == expect["dlq"]
    assert (expect["client_state"] == "RUNNING") is not task.run.failed
