"""The states of a thread. Those of Streams' tasks are about state stores."""

from __future__ import annotations

from arrester.controlplane.domain.state.states import ThreadStatus
from arrester.controlplane.domain.state.transitions import Move, move_thread
from tests.conformance.cases import Case

IGNORED: dict[str, str] = {}
RESULTS = {Move.DONE: "ok", Move.REFUSED: "refused", Move.ILLEGAL: "illegal"}


def check(case: Case) -> None:
    assert case.given["machine"] == "thread", "only the states of threads have a counterpart"
    move = move_thread(ThreadStatus(case.given["from"]), ThreadStatus(case.given["to"]))
    assert RESULTS[move] == case.expect["result"]
