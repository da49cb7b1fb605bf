from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.state.states import ENDED, InstanceStatus, ThreadStatus
from arrester.domain.state.transitions import (
    Transition,
    instance_transition,
    may_start_thread,
    thread_transition,
)
from arrester.domain.state.uncaught_policy import (
    TO_ERROR,
    TO_NOT_RUNNING,
    Consequence,
    OverrideReason,
    ReplacementPolicy,
    Replacements,
    UncaughtAnswer,
    backoff_ms,
    uncaught,
)

HOUR = 3_600_000
A = UncaughtAnswer


def react(
    answer: object,
    *,
    instance: InstanceStatus = InstanceStatus.RUNNING,
    global_task: bool = False,
    at_ms: tuple[int, ...] = (),
    now_ms: int = 0,
) -> Consequence:
    return uncaught(
        answer,
        instance=instance,
        global_task=global_task,
        replacements=Replacements(at_ms),
        now_ms=now_ms,
    )


@pytest.mark.parametrize(
    ("answer", "path", "application", "raises"),
    [
        (None, TO_NOT_RUNNING, False, False),
        (A.SHUTDOWN_CLIENT, TO_NOT_RUNNING, False, False),
        (A.SHUTDOWN_APPLICATION, TO_ERROR, True, False),
        (A.SHUTDOWN_THREAD, (), False, False),
        (A.DEFAULT, (), False, True),
    ],
)
def test_each_answer_has_its_effect(
    answer: object, path: tuple[InstanceStatus, ...], application: bool, raises: bool
) -> None:
    found = react(answer)
    assert (found.instance_path, found.shuts_application, found.raises) == (
        path,
        application,
        raises,
    )
    assert (found.replace_after_ms, found.reason) == (None, None)


@pytest.mark.parametrize("answer", ["REPLACE_THREAD", 0, False, object()])
def test_an_invalid_answer_shuts_the_instance_down(answer: object) -> None:
    found = react(answer)
    assert (found.answer, found.reason) == (A.SHUTDOWN_CLIENT, OverrideReason.NO_ANSWER)


def test_replacements_back_off_and_then_the_instance_shuts_down() -> None:
    waits, at_ms, now_ms = [], Replacements(), 0
    while (found := react(A.REPLACE_THREAD, at_ms=at_ms.at_ms, now_ms=now_ms)).replace_after_ms:
        waits.append(found.replace_after_ms)
        at_ms, now_ms = found.replacements, now_ms + 1
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000, 60000]
    assert (found.answer, found.reason) == (A.SHUTDOWN_CLIENT, OverrideReason.BUDGET_EXHAUSTED)


def test_replacements_before_the_window_do_not_count() -> None:
    old = tuple(range(10))
    assert (
        react(A.REPLACE_THREAD, at_ms=old, now_ms=HOUR - 1).reason
        is OverrideReason.BUDGET_EXHAUSTED
    )
    found = react(A.REPLACE_THREAD, at_ms=old, now_ms=HOUR)
    assert found.replace_after_ms == 60_000
    assert len(found.replacements.at_ms) == 10
    assert react(A.REPLACE_THREAD, at_ms=old, now_ms=2 * HOUR).replace_after_ms == 1000


@pytest.mark.parametrize("state", [s for s in InstanceStatus if s is not InstanceStatus.RUNNING])
def test_only_a_running_instance_replaces_threads(state: InstanceStatus) -> None:
    found = react(A.REPLACE_THREAD, instance=state)
    assert (found.answer, found.reason) == (A.SHUTDOWN_THREAD, OverrideReason.NOT_RUNNING)
    assert not may_start_thread(state)


def test_the_thread_of_a_global_task_is_never_replaced() -> None:
    found = react(A.REPLACE_THREAD, global_task=True)
    assert (found.answer, found.reason) == (A.SHUTDOWN_CLIENT, OverrideReason.GLOBAL_TASK)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_back_off_grows_within_its_bounds(first: int, longest: int, number: int) -> None:
    policy = ReplacementPolicy(first_wait_ms=first, longest_wait_ms=longest)
    wait = backoff_ms(number, policy)
    assert min(first, longest) <= wait <= backoff_ms(number + 1, policy) <= longest


@given(st.lists(st.sampled_from(list(InstanceStatus))))
def test_an_ended_instance_never_changes_its_status(requests: list[InstanceStatus]) -> None:
    state, seen = InstanceStatus.CREATED, [InstanceStatus.CREATED]
    for to in requests:
        if instance_transition(state, to) is Transition.DONE:
            state = to
            seen.append(to)
    for ended in ENDED:
        assert ended not in seen[:-1]


def test_a_dead_thread_stays_dead() -> None:
    assert thread_transition(ThreadStatus.RUNNING, ThreadStatus.DEAD) is Transition.DONE
    assert thread_transition(ThreadStatus.DEAD, ThreadStatus.RUNNING) is Transition.REFUSED
