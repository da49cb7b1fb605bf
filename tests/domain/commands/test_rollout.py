"""The steps of a rollout follow from its progress."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arrester.domain.commands.rollout import (
    MAX_PER_STEP,
    STEP_SECONDS,
    Finish,
    Issue,
    Progress,
    Stop,
    Wait,
    check_rollout,
    next_step,
    wave_ends,
)
from arrester.domain.errors import InvalidValue
from arrester.domain.events import Rollout
from tests.histories import NOON

HUNDRED = Rollout(tasks=100)
AGO = {seconds: NOON - timedelta(seconds=seconds) for seconds in (5, 29, 30)}


@pytest.mark.parametrize(
    ("tasks", "waves", "ends"),
    [
        (1, True, [1]),
        (2, True, [1, 2]),
        (3, True, [1, 2, 3]),
        (20, True, [1, 3, 20]),
        (1_001, True, [1, 102, 1_001]),
        (1_001, False, [1_001]),
    ],
)
def test_waves_are_one_task_ten_percent_and_the_rest(
    tasks: int, waves: bool, ends: list[int]
) -> None:
    assert wave_ends(tasks, waves=waves) == ends


FIRST = Progress(issued=1, applied=1, waiting=99, issued_at=AGO[30], answered_at=AGO[30])


@pytest.mark.parametrize(
    ("progress", "step"),
    [
        (Progress(waiting=100), Issue(1)),
        (Progress(issued=1, open=1, waiting=99), Wait()),
        (replace(FIRST, answered_at=AGO[29]), Wait()),
        (FIRST, Issue(10)),
        # In the middle of a wave answers are not awaited.
        (Progress(issued=9, open=8, applied=1, waiting=91, issued_at=AGO[5]), Issue(2)),
        # Of the last wave, the rate allows 50 in five seconds.
        (
            Progress(issued=11, applied=11, waiting=89, issued_at=AGO[30], answered_at=AGO[30]),
            Issue(50),
        ),
        (Progress(issued=61, applied=61, waiting=39, issued_at=NOON), Wait()),
        # Another person has resumed the other tasks.
        (
            Progress(issued=50, applied=50, issued_at=AGO[30], answered_at=AGO[30]),
            Finish("50 of 50 tasks applied the command; none stopped again within 30 s"),
        ),
        (
            Progress(issued=100, applied=99, issued_at=AGO[30], answered_at=AGO[30]),
            Finish("99 of 100 tasks applied the command; none stopped again within 30 s"),
        ),
        (
            Progress(issued=11, applied=11, stopped_again=1, waiting=89),
            Stop("1 of 11 tasks stopped again; 89 tasks got no command"),
        ),
        (Progress(issued=2, applied=2, stopped_again=2), Stop("2 of 2 tasks stopped again")),
        (
            Progress(issued=1, waiting=99, answered_at=AGO[30]),
            Stop("1 of 1 task did not apply the command"),
        ),
    ],
)
def test_a_step_follows_from_the_progress(progress: Progress, step: object) -> None:
    assert next_step(HUNDRED, progress, NOON) == step


def test_a_slow_rate_is_not_rounded_to_nothing() -> None:
    slow = replace(HUNDRED, tasks_per_minute=6)
    progress = Progress(issued=20, applied=20, waiting=80, issued_at=NOON - timedelta(seconds=9))
    assert next_step(slow, progress, NOON) == Wait()
    assert next_step(slow, progress, NOON + timedelta(seconds=1)) == Issue(1)


@given(
    st.integers(1, 3_000),
    st.booleans(),
    st.integers(1, 6_000),
    st.lists(st.integers(0, 100), max_size=30),
)
def test_a_rollout_ends_and_never_issues_more_than_its_wave_and_rate(
    tasks: int, waves: bool, rate: int, answers: list[int]
) -> None:
    rollout = Rollout(tasks=tasks, waves=waves, tasks_per_minute=rate)
    progress, now = Progress(waiting=tasks), NOON
    for _ in range(100_000):
        step = next_step(rollout, progress, now)
        if isinstance(step, Finish | Stop):
            break
        if isinstance(step, Issue):
            ends = [
                end
                for end in wave_ends(rollout.tasks, waves=rollout.waves)
                if end > progress.issued
            ]
            assert 1 <= step.number <= min(MAX_PER_STEP, ends[0] - progress.issued)
            progress = replace(
                progress,
                issued=progress.issued + step.number,
                open=progress.open + step.number,
                waiting=progress.waiting - step.number,
                issued_at=now,
            )
        answered = min(progress.open, answers.pop() if answers else progress.open)
        if answered:
            progress = replace(
                progress,
                open=progress.open - answered,
                applied=progress.applied + answered,
                answered_at=now,
            )
        now += timedelta(seconds=STEP_SECONDS)
    assert isinstance(step, Finish)
    assert (progress.issued, progress.applied, progress.waiting) == (tasks, tasks, 0)


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        (Rollout(tasks=1, observe_seconds=3_601), "observe_seconds.*3,601|3601"),
        (Rollout(tasks=1, tasks_per_minute=0), "tasks_per_minute.*0"),
        (Rollout(tasks=1, tasks_per_minute=6_001), "a whole number from 1 to 6,000"),
    ],
)
def test_values_outside_their_limits_are_refused(rollout: Rollout, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        check_rollout(rollout)


def test_a_rollout_without_observation_does_not_claim_that_no_task_stopped_again() -> None:
    rollout = replace(HUNDRED, observe_seconds=0)
    progress = Progress(issued=100, applied=100, issued_at=AGO[30], answered_at=AGO[30])
    finish = next_step(rollout, progress, NOON)
    assert finish == Finish(
        "100 of 100 tasks applied the command; whether they stopped again was not observed"
    )
