"""Dead letters of Streams: KIP-1034."""

from __future__ import annotations

from collections.abc import Callable

from arrester.domain.error_policy.policy import StageKind
from arrester.domain.state.states import InstanceStatus
from arrester.domain.state.uncaught_policy import Replacements, uncaught
from tests.conformance.adapters.streams_deserialization_and_processing import BUILT_IN, task_of
from tests.conformance.cases import Case, Form

IGNORED = {
    "dlq": "the name of the topic",
    "dlq_headers": "an executor writes them: see the case with all headers",
    "value_type": "a description; the check compares the texts",
    "producer": "the producer of Streams' thread",
    "with_at_least_once_and_FAIL": "decided: no dead letter for a record that is answered FAIL",
    "custom_handler_must": "a description of Streams' interface",
}
BAD = ("KABOOM", "undecodable")


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_records(case: Case) -> None:
    """Run the records until one ends the run, and let the default handler end the instance."""
    given, expect = case.given, case.expect
    stage = StageKind.DESERIALIZE if "deserialization" in case.id else StageKind.PROCESS
    default = "log-and-fail" if case.id.endswith("fail") else "log-and-continue"
    task, output = task_of(stage, BUILT_IN[given.get("handler", default)]), []
    state = InstanceStatus.RUNNING
    for record in given["records"]:
        outcome = task.operate(["other" if record in BAD else "ok"])
        if outcome == "success":
            output.append(record)
        elif outcome == "task_killed":
            no_replacements = Replacements(())
            end = uncaught(
                None, instance=state, global_task=False, replacements=no_replacements, now_ms=0
            )
            state = end.instance_path[-1]
            break
    assert output == expect["output"]
    assert task.dead_letters == expect["dlq"]
    assert state == expect["client_state"]


def check_custom_handler(case: Case) -> None:
    """A handler of the user's own answers CONTINUE."""
    assert case.given["custom_handler"]
    task = task_of(StageKind.PROCESS, BUILT_IN["log-and-continue"])
    assert task.operate(["other"]) == "skipped"
    assert (task.dead_letters == 0) is case.expect["config_ignored_for_it"]


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.records",): check_records,
    ("given.custom_handler",): check_custom_handler,
}
