"""The states of a thread. Those of Streams' tasks are about state stores."""

from __future__ import annotations

from arrester.domain.state.states import ThreadStatus
from arrester.domain.state.transitions import Transition, thread_transition
from tests.conformance.cases import Case

IGNORED: dict[str, str] = {}
RESULTS = {Transition.DONE: "ok", Transition.REFUSED: "refused", Transition.ILLEGAL: "illegal"}


def check(case: Case) -> None:
    assert case.given["machine"] == "thread", "only the states of threads have a counterpart"
    move = thread_transition(ThreadStatus(case.given["from"]), ThreadStatus(case.given["to"]))
    assert RESULTS[move] == case.expect["result"]
