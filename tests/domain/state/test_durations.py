"""Histograms of durations: sparse, additive, with percentiles exact to a tenth."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrester.domain import durations
from arrester.domain.durations import KEYS, MOST, Phase

_ms = st.floats(0.1, 100 * 86_400_000)


@given(st.lists(_ms, min_size=1), st.lists(_ms), st.sampled_from([0.5, 0.95, 1.0]))
def test_percentiles_of_a_sum_are_those_of_all_durations(
    some: list[float], others: list[float], share: float
) -> None:
    parts = [
        Counter(durations.key_of(Phase.WRITE, each) for each in part) for part in (some, others)
    ]
    everything = sorted([*some, *others])
    exact = everything[-(-len(everything) * round(share * 100) // 100) - 1]
    found = durations.percentile(durations.added(parts), Phase.WRITE, share)
    assert found is not None
    assert found == pytest.approx(max(exact, 1), rel=0.1)


def test_another_phase_and_unknown_keys_are_not_counted() -> None:
    counted = {"write:3": 1, "total:10": 2, "total": 1, "total:x": 4, "other:1": 7}
    assert durations.buckets(counted, Phase.TOTAL) == [(10, 2)]
    assert durations.percentile({}, Phase.TOTAL, 0.5) is None


@pytest.mark.parametrize(("ms", "bucket"), [(0, 0), (1, 0), (1.05, 1), (1.2, 1), (1.21, 2)])
def test_a_bucket_contains_its_upper_bound(ms: float, bucket: int) -> None:
    assert durations.bucket_of(ms) == bucket


@given(
    st.dictionaries(
        st.builds(durations.key_of, st.sampled_from(Phase), _ms), st.integers(1, 2**63 - 1)
    )
)
def test_a_packed_histogram_has_the_same_counts(counted: dict[str, int]) -> None:
    packed = durations.packed(counted | {"other:1": 7, "total:127": 1})
    assert {durations.key_of_packed(each % KEYS): each // KEYS for each in packed} == {
        key: min(count, MOST) for key, count in counted.items()
    }
    assert all(each < 2**63 for each in packed)
