from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain.error_policy.retry import (
    SATURATED_MS,
    Attempts,
    RetryPolicy,
    next_attempt,
    raw_wait_ms,
    wait_ms,
)

policies = st.builds(
    RetryPolicy,
    limit=st.integers(-1, 50),
    timeout_ms=st.integers(-5, 2**63 - 1),
    delay_max_ms=st.integers(1, 2**63 - 1),
)
moments = st.integers(0, 2**50)
attempts = st.builds(
    lambda made, started, took: Attempts(made=made, started_ms=started, now_ms=started + took),
    st.integers(1, 10_000),
    moments,
    moments,
)


def lowest(below: int) -> int:
    return 0


@given(policies, attempts, st.randoms(use_true_random=False))
def test_a_wait_is_never_negative_never_past_the_deadline_and_never_above_the_maximum(
    policy: RetryPolicy, made: Attempts, chance: random.Random
) -> None:
    wait = wait_ms(policy, made, chance=chance.randrange)
    assert 0 <= wait <= policy.delay_max_ms
    if policy.timeout_ms >= 0:
        assert made.now_ms + wait <= max(made.now_ms, made.started_ms + policy.timeout_ms)


@given(policies, attempts)
def test_the_first_exhausted_budget_ends_the_retries(policy: RetryPolicy, made: Attempts) -> None:
    decision = next_attempt(policy, made, chance=lowest)
    no_retries = 0 <= policy.limit <= made.made - 1
    no_time = 0 <= policy.timeout_ms <= made.now_ms - made.started_ms
    assert (decision is None) is (no_retries or no_time)


@given(st.integers(1, 10_000))
def test_the_wait_doubles_until_it_saturates(attempt: int) -> None:
    assert raw_wait_ms(1) == 300
    assert raw_wait_ms(attempt + 1) == min(2 * raw_wait_ms(attempt), SATURATED_MS)


def test_a_wait_equal_to_the_maximum_is_not_random() -> None:
    policy = RetryPolicy(limit=-1, delay_max_ms=600)
    assert wait_ms(policy, Attempts(made=2), chance=lowest) == 600
    assert wait_ms(policy, Attempts(made=3), chance=lowest) == 0


def test_a_record_is_retried_as_often_as_the_limit_allows() -> None:
    policy = RetryPolicy(limit=2, timeout_ms=-1)
    waits = [next_attempt(policy, Attempts(made=made), chance=lowest) for made in (1, 2, 3)]
    assert [each is None for each in waits] == [False, False, True]


def test_nothing_is_retried_by_default() -> None:
    assert next_attempt(RetryPolicy(), Attempts(), chance=lowest) is None


@pytest.mark.parametrize(("limit", "timeout_ms"), [(3, 1000), (1, 2000), (-1, 0)])
def test_nothing_is_retried_after_the_time_or_the_last_retry(limit: int, timeout_ms: int) -> None:
    policy = RetryPolicy(limit=limit, timeout_ms=timeout_ms)
    assert next_attempt(policy, Attempts(made=2, now_ms=1000), chance=lowest) is None
