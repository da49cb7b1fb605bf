"""The states of an instance."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from arrester.domain.events import ThreadDied
from arrester.domain.state.evolve import At, evolve_thread
from arrester.domain.state.states import InstanceStatus, ThreadState, ThreadStatus
from arrester.domain.state.transitions import (
    Transition,
    instance_transition,
    may_start_thread,
)
from tests.conformance.cases import Case, Form, Known

IGNORED = {"steps": "a description of the order of the steps"}
RESULTS = {Transition.DONE: "ok", Transition.REFUSED: "refused", Transition.ILLEGAL: "illegal"}
CLOSE = (InstanceStatus.PENDING_SHUTDOWN, InstanceStatus.NOT_RUNNING)


def close(state: InstanceStatus) -> tuple[InstanceStatus, int]:
    """Move through the states of closing; return the last state and the number of moves."""
    moves = 0
    for to in CLOSE:
        move = instance_transition(state, to)
        assert move is not Transition.ILLEGAL
        if move is Transition.DONE:
            state, moves = to, moves + 1
    return state, moves


STEPS = Known[Callable[[InstanceStatus], InstanceStatus]](
    create=lambda _: InstanceStatus.CREATED,
    start=lambda _: InstanceStatus.RUNNING,
    close=lambda state: close(state)[0],
)


def check(case: Case) -> None:
    case.choose(FORMS)(case)


def check_move(case: Case) -> None:
    given = case.given
    move = instance_transition(InstanceStatus(given["from"]), InstanceStatus(given["to"]))
    assert RESULTS[move] == case.expect["result"]


def check_steps(case: Case) -> None:
    state = InstanceStatus.CREATED
    for step in case.given["steps"]:
        state = STEPS[step](state)
    assert state == case.expect["state"]


def check_add(case: Case) -> None:
    states = case.given["states"]
    found = [may_start_thread(InstanceStatus(state)) for state in states]
    assert found == case.expect["added"]


def check_closes(case: Case) -> None:
    given, expect = case.given, case.expect
    state, moves = InstanceStatus.RUNNING, 0
    for _ in range(given["close_calls"]):
        state, made = close(state)
        moves += made
    assert moves == expect["effects"] * len(CLOSE)


def check_dead_threads(case: Case) -> None:
    """The death of a thread does not change its instance: the two are folded separately."""
    given, expect = case.given, case.expect
    instance = InstanceStatus.RUNNING
    at = At(sequence=1, occurred_at=datetime(2026, 1, 1, tzinfo=UTC), instance=UUID(int=1))
    for number in range(given["threads"]):
        thread = ThreadState(application="a", pipeline=f"p{number}", checkpoint="c")
        died = evolve_thread(thread, ThreadDied(reason="shut down"), at)
        assert died.status is ThreadStatus.DEAD
    assert expect["after_threads_dead"] == "no automatic ERROR"
    assert close(instance)[0] == expect["after_close"]


FORMS: dict[Form, Callable[[Case], None]] = {
    ("given.from",): check_move,
    ("given.close_calls",): check_closes,
    ("expect.after_threads_dead",): check_dead_threads,
    ("expect.added",): check_add,
    ("given.steps", "expect.state"): check_steps,
}
