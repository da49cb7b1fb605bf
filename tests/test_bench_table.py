"""What `make bench` makes of its rounds; the measurements themselves are run by hand."""

from __future__ import annotations

from random import Random

import msgspec

from benchmarks.events import batches
from benchmarks.table import Ratio, rates, ratios, rounds_of


def test_everything_is_measured_once_in_each_round() -> None:
    reported: list[str] = []
    measurements = {"fold": iter([1.0, 2.0, 3.0]).__next__, "limit": lambda: 2.0}

    rounds = rounds_of(measurements, rounds=3, random=Random(1), report=reported.append)

    assert rounds == {"fold": [1.0, 2.0, 3.0], "limit": [2.0, 2.0, 2.0]}
    assert len(reported) == 6


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    rounds = {"fold": [1.0, 9.0, 4.0], "limit": [1.0, 3.0, 2.0]}
    wanted = [Ratio(figure="fold", yardstick="limit", goal="≥ 1.5")]

    assert ratios(rounds, wanted).endswith("| fold ÷ limit | 2 | ≥ 1.5 |")
    assert "| fold | 4 | 1 to 9 |" in rates(rounds, "events/s")


def test_the_events_are_of_about_a_kilobyte_and_a_half() -> None:
    events = [event for _, some in batches("flights", 1000) for event in some]
    size = sum(len(msgspec.json.encode(event)) for event in events) / len(events)
    assert len(events) == 1000
    assert 1400 <= size <= 1900
