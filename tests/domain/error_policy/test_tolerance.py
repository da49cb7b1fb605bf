from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.error_policy.tolerance import (
    Counted,
    Exceeded,
    Tally,
    Tolerance,
    Window,
    count,
)

limits = st.none() | st.integers(-1, 20)
tolerances = st.builds(
    Tolerance, limit=limits, rate_limit=limits, window=st.sampled_from(list(Window))
)
tallies = st.builds(
    lambda total, in_window: Tally(total=total + in_window, in_window=in_window),
    st.integers(0, 20),
    st.integers(0, 20),
)


@given(tolerances, tallies, st.integers(0, 10**13), st.integers(1, 60))
def test_counting_many_records_equals_counting_each(
    tolerance: Tolerance, tally: Tally, now_ms: int, records: int
) -> None:
    step = Counted(tally=tally, tolerated=0)
    tolerated = 0
    for _ in range(records):
        step = count(tolerance, step.tally, now_ms=now_ms)
        tolerated += step.tolerated
        if step.exceeded is not None:
            break
    assert count(tolerance, tally, now_ms=now_ms, records=records) == Counted(
        tally=step.tally, tolerated=tolerated, exceeded=step.exceeded
    )


@given(st.integers(0, 1000), st.integers(1, 3000))
def test_the_record_after_the_limit_is_fail(limit: int, records: int) -> None:
    counted = count(Tolerance(limit=limit), Tally(), now_ms=0, records=records)
    assert counted.tolerated == min(limit, records)
    assert (counted.exceeded is Exceeded.TOTAL) is (records > limit)


@pytest.mark.parametrize("limit", [None, -1])
def test_no_limit_and_an_infinite_one_tolerate_a_million_at_once(limit: int | None) -> None:
    tolerance = Tolerance(limit=limit, rate_limit=limit)
    counted = count(tolerance, Tally(), now_ms=7, records=1_000_000)
    assert (counted.tolerated, counted.exceeded) == (1_000_000, None)


@pytest.mark.parametrize(
    ("window", "length"),
    [(Window.MINUTE, 60_000), (Window.HOUR, 3_600_000), (Window.DAY, 86_400_000)],
)
def test_windows_tumble_and_are_aligned_to_the_epoch(window: Window, length: int) -> None:
    tolerance = Tolerance(rate_limit=1, window=window)
    last = count(tolerance, Tally(), now_ms=4 * length)
    assert last.tolerated == 1
    assert count(tolerance, last.tally, now_ms=5 * length - 1).exceeded is Exceeded.RATE
    assert count(tolerance, last.tally, now_ms=5 * length).exceeded is None


def test_the_end_of_a_window_keeps_the_total() -> None:
    tolerance = Tolerance(limit=2, rate_limit=1)
    tally = count(tolerance, Tally(), now_ms=0).tally
    tally = count(tolerance, tally, now_ms=60_000).tally
    assert count(tolerance, tally, now_ms=120_000).exceeded is Exceeded.TOTAL


def test_the_first_exceeded_limit_is_named() -> None:
    rate = count(Tolerance(limit=5, rate_limit=3), Tally(), now_ms=0, records=9)
    assert (rate.tolerated, rate.exceeded) == (3, Exceeded.RATE)
    both = count(Tolerance(limit=3, rate_limit=3), Tally(), now_ms=0, records=9)
    assert (both.tolerated, both.exceeded) == (3, Exceeded.TOTAL)
