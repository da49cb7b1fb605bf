"""The states of an instance."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from arrester.controlplane.domain.events import ThreadDied
from arrester.controlplane.domain.state.evolve import At, evolve_thread
from arrester.controlplane.domain.state.states import InstanceStatus, ThreadState, ThreadStatus
from arrester.controlplane.domain.state.transitions import Move, may_start_thread, move_instance
from tests.conformance.cases import Case, Json

NEEDS_SPARK = {
    "close-races-with-error": "concurrent closes of one agent",
    "remove-thread-by-state": "stopping a pipeline, by the agent's state",
}
RESULTS = {Move.DONE: "ok", Move.REFUSED: "refused", Move.ILLEGAL: "illegal"}
CLOSE = (InstanceStatus.PENDING_SHUTDOWN, InstanceStatus.NOT_RUNNING)


def close(state: InstanceStatus) -> tuple[InstanceStatus, int]:
    """Ask for the states of closing, and return where that led and how many moves it took."""
    moves = 0
    for to in CLOSE:
        move = move_instance(state, to)
        assert move is not Move.ILLEGAL
        if move is Move.DONE:
            state, moves = to, moves + 1
    return state, moves


def check(case: Case) -> None:
    given, expect = case.given, case.expect
    if "from" in given:
        move = move_instance(InstanceStatus(given["from"]), InstanceStatus(given["to"]))
        assert RESULTS[move] == expect["result"]
    elif given.get("steps") == ["create", "close"]:
        assert close(InstanceStatus.CREATED)[0] == expect["state"]
    elif "close_calls" in given:
        check_closes(given, expect)
    elif "after_threads_dead" in expect:
        check_dead_threads(given, expect)
    else:
        found = [may_start_thread(InstanceStatus(state)) for state in given["states"]]
        assert found == expect["added"]


def check_closes(given: Json, expect: Json) -> None:
    state, moves = InstanceStatus.RUNNING, 0
    for _ in range(given["close_calls"]):
        state, made = close(state)
        moves += made
    assert moves == expect["effects"] * len(CLOSE)


def check_dead_threads(given: Json, expect: Json) -> None:
    """The death of a thread says nothing of its instance: the two are folded apart."""
    instance = InstanceStatus.RUNNING
    at = At(sequence=1, occurred_at=datetime(2026, 1, 1, tzinfo=UTC), instance=UUID(int=1))
    for number in range(given["threads"]):
        thread = ThreadState(application="a", pipeline=f"p{number}", checkpoint="c")
        died = evolve_thread(thread, ThreadDied(reason="shut down"), at)
        assert died.status is ThreadStatus.DEAD
    assert expect["after_threads_dead"] == "no automatic ERROR"
    assert close(instance)[0] == expect["after_close"]
