"""The uncaught exception handler: KIP-671, its first draft, and what was shipped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from arrester.domain.events import ThreadDied
from arrester.domain.state.evolve import At, evolve_thread
from arrester.domain.state.states import InstanceStatus, ThreadState
from arrester.domain.state.uncaught_policy import (
    Consequence,
    Replacements,
    UncaughtAnswer,
    uncaught,
)
from tests.conformance.cases import Case, Form
from tests.conformance.simulation import UNCAUGHT_ANSWERS

IGNORED = {
    "shipped_final_state": "decided: as KIP-671 defines it",
    "within_s": "a time limit of a test",
    "records": "a record fails; the state of the instance does not depend on the others",
    "threads": "a thread here is the run of a pipeline: one task runs in one of them",
    "caching": "Streams' record cache",
    "all_stream_threads": "the threads end with their instance",
    "group_membership": "consumer groups are Kafka's own",
    "state_dir_cleaner": "state stores are Kafka's own",
    "rocksdb_metrics_thread": "state stores are Kafka's own",
    "global_thread": "read where a response to its failure is expected",
    "blocking": "a property of Streams' close()",
    "log_level": "the suite about logs has the levels",
    "dropped": "the names that were dropped; the shipped ones are compared",
    "old_handler_only": "Streams' older interface",
    "both_set": "Streams' older interface",
}


def react(
    answer: object, *, instance: str = "RUNNING", times: int = 0, global_task: bool = False
) -> Consequence:
    return uncaught(
        answer,
        instance=InstanceStatus(instance),
        global_task=global_task,
        replacements=Replacements(tuple(range(times))),
        now_ms=times,
    )


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_default(case: Case) -> None:
    assert react(None).answer == case.expect["default"]


def check_answer(case: Case) -> None:
    """A handler that raises or returns another value gives no answer."""
    assert react(case.given["handler"]).answer == case.expect["response"]


def check_names(case: Case) -> None:
    expect = case.expect
    names = [*expect["draft_values"], *(name.split()[0] for name in expect["shipped_values"])]
    assert {UNCAUGHT_ANSWERS[name] for name in names} == set(UncaughtAnswer)


def check_shutdown(case: Case) -> None:
    answer, expect = UNCAUGHT_ANSWERS[case.given["response"]], case.expect
    found = react(answer)
    states = [state.value for state in found.instance_path]
    finals = ("client_final_state", "all_clients_final_state", "client", "seed_final_state")
    path = expect.get("instance_path", expect.get("client_path"))
    final = next((expect[name] for name in finals if name in expect), None)
    assert path is not None or final is not None
    assert states == path or path is None
    assert final is None or states[-1:] == [final]
    application = answer is UncaughtAnswer.SHUTDOWN_APPLICATION
    assert found.shuts_application is expect.get("shuts_application", application)
    assert found.replace_after_ms is None


def check_replacement(case: Case) -> None:
    answer, expect = UNCAUGHT_ANSWERS[case.given["response"]], case.expect
    waits = [react(answer, times=n).replace_after_ms for n in range(expect["budget_per_hour"])]
    assert waits[: len(expect["first_waits_ms"])] == expect["first_waits_ms"]
    assert max(wait or 0 for wait in waits) == expect["longest_wait_ms"]
    exhausted = react(answer, times=expect["budget_per_hour"])
    assert exhausted.answer == expect["after_the_budget"]
    assert replacing_states(answer) == expect["new_thread_started_only_if_instance"]


def replacing_states(answer: UncaughtAnswer) -> list[str]:
    return [
        state.value
        for state in InstanceStatus
        if react(answer, instance=state).replace_after_ms is not None
    ]


def check_seed_replacement(case: Case) -> None:
    answer, expect = UNCAUGHT_ANSWERS[case.given["response"]], case.expect
    at = At(sequence=1, occurred_at=datetime(2026, 1, 1, tzinfo=UTC), instance=UUID(int=1))
    old = evolve_thread(
        ThreadState(application="a", pipeline="p", checkpoint="c"), ThreadDied(reason="x"), at
    )
    assert old.status == expect["old_thread"]
    # There are no rebalances on Spark.
    states = [each for each in expect["new_thread_if_client_in"] if each != "REBALANCING"]
    assert replacing_states(answer) == states
    assert expect["global_thread"] == "log ERROR, shut the client down"
    assert react(answer, global_task=True).answer is UncaughtAnswer.SHUTDOWN_CLIENT


FORMS: dict[Form, Callable[[Case], None]] = {
    ("expect.draft_values",): check_names,
    ("expect.default",): check_default,
    ("given.handler",): check_answer,
    ("expect.budget_per_hour",): check_replacement,
    ("expect.new_thread_if_client_in",): check_seed_replacement,
    ("given.response",): check_shutdown,
}
