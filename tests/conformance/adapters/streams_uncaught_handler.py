"""The uncaught exception handler: KIP-671, its first draft, and what was shipped."""

from __future__ import annotations

from arrester.controlplane.domain.state.states import InstanceStatus
from arrester.controlplane.domain.state.uncaught_policy import (
    Consequence,
    Replacements,
    UncaughtAnswer,
    uncaught,
)
from tests.conformance.cases import Case, Json

NEEDS_SPARK = {
    "replace-does-not-reach-.*": "no exception leaves the replaced thread",
    "replace-(?!thread-effects).*": "the records that are processed again by the new thread",
    "shutdown-application-(single|multi).*": "several driver processes, all ending in ERROR",
    "shutdown-application-receiver": "an instance that hears of it",
}


def react(answer: object, *, instance: str = "RUNNING", times: int = 0) -> Consequence:
    return uncaught(
        answer,
        instance=InstanceStatus(instance),
        global_task=False,
        replacements=Replacements(tuple(range(times))),
        now_ms=times,
    )


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "draft_values" in expect:
        check_names(expect)
    elif "default" in expect:
        assert react(None).answer == expect["default"]
    elif "handler" in given:
        # What stands for a handler that raised is no answer either.
        assert react(given["handler"]).answer == expect["response"]
    elif UncaughtAnswer[given["response"]] is UncaughtAnswer.REPLACE_THREAD:
        check_replacement(expect)
    else:
        check_shutdown(UncaughtAnswer[given["response"]], expect)


def check_names(expect: Json) -> None:
    names = [*expect["draft_values"], *(name.split()[0] for name in expect["shipped_values"])]
    assert {UncaughtAnswer[name] for name in names} == set(UncaughtAnswer)


def check_shutdown(answer: UncaughtAnswer, expect: Json) -> None:
    found = react(answer)
    states = [state.value for state in found.instance_path]
    finals = ("client_final_state", "all_clients_final_state", "client")
    path = expect.get("instance_path", expect.get("client_path"))
    final = next((expect[name] for name in finals if name in expect), None)
    assert path is not None or final is not None
    assert states == path or path is None
    assert final is None or states[-1:] == [final]
    application = answer is UncaughtAnswer.SHUTDOWN_APPLICATION
    assert found.shuts_application is expect.get("shuts_application", application)
    assert found.replace_after_ms is None


def check_replacement(expect: Json) -> None:
    answer = UncaughtAnswer.REPLACE_THREAD
    waits = [react(answer, times=n).replace_after_ms for n in range(expect["budget_per_hour"])]
    assert waits[: len(expect["first_waits_ms"])] == expect["first_waits_ms"]
    assert max(wait or 0 for wait in waits) == expect["longest_wait_ms"]
    spent = react(answer, times=expect["budget_per_hour"])
    assert spent.answer == expect["after_the_budget"]
    allowed = [
        state.value
        for state in InstanceStatus
        if react(answer, instance=state).replace_after_ms is not None
    ]
    assert allowed == expect["new_thread_started_only_if_instance"]
