from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from arrester.agents.error_policy.settings import ErrorSettings
from arrester.domain.error_policy.policy import OutagePolicy
from arrester.domain.events import FinalResponse

any_policy = st.builds(OutagePolicy, share=st.floats(0.001, 1.0), minimum=st.integers(1, 1_000))


@given(any_policy, st.integers(0, 10_000), st.integers(0, 10_000))
def test_an_outage_needs_its_minimum_and_more_than_its_share(
    policy: OutagePolicy, failed: int, passed: int
) -> None:
    records = failed + passed
    assert policy.share is not None
    expected = failed >= policy.minimum and failed > policy.share * records
    assert policy.is_outage(failed, records) is expected


@given(any_policy, st.integers(0, 10_000), st.integers(0, 10_000))
def test_one_more_failure_never_ends_an_outage(
    policy: OutagePolicy, failed: int, passed: int
) -> None:
    if policy.is_outage(failed, failed + passed):
        assert policy.is_outage(failed + 1, failed + passed + 1)


def test_without_a_share_nothing_is_an_outage() -> None:
    assert ErrorSettings.read({}).outage == OutagePolicy()
    assert not OutagePolicy().is_outage(10**9, 10**9)


def test_the_outage_settings_are_read() -> None:
    given = {"errors.outage.share": "0.5", "errors.outage.minimum": 7}
    read = ErrorSettings.read(given | {"errors.outage.response": "FAIL"})
    assert read.outage == OutagePolicy(share=0.5, minimum=7, response=FinalResponse.FAIL)
