"""Time ranges in URLs: relative ones stay relative, invalid ones are named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from arrester.dashboard.components import time_range
from arrester.domain.errors import InvalidValue

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(("name", "length"), time_range.RELATIVE.items())
def test_a_relative_range_ends_now(name: str, length: timedelta) -> None:
    assert time_range.read({"range": name}, now=NOON) == (NOON - length, None, name)
    assert time_range.WORDS[name]


def test_from_and_to_are_utc_without_an_offset() -> None:
    found = time_range.read({"from": "2026-11-20T10:00", "to": "2026-11-20T13:00+02:00"}, now=NOON)
    assert found[:] == (NOON - timedelta(hours=2), NOON - timedelta(hours=1), "custom")
    assert found.words == "from 2026-11-20 10:00 until 2026-11-20 11:00"


def test_an_empty_range_is_the_default_or_all_time() -> None:
    assert time_range.read({}, now=NOON) == (None, None, "")
    assert time_range.read({"range": "", "from": " "}, now=NOON, default="1h").name == "1h"
    assert time_range.read({"range": "all"}, now=NOON, default="1h").words == "all time"
    relative = time_range.read({"range": "1h", "from": "2026-11-20T10:00"}, now=NOON)
    assert relative == (NOON - timedelta(hours=1), None, "1h")
    assert time_range.read({"range": "15m"}, now=NOON).words == "last 15 min"


@pytest.mark.parametrize(
    ("name", "value", "more"),
    [
        ("range", "2h", {}),
        ("from", "yesterday", {}),
        ("to", "2026-11-20T09:00", {"from": "2026-11-20T10:00"}),
        ("to", "0001-01-01T00:00+23:00", {}),
    ],
)
def test_an_invalid_range_is_named_with_the_allowed_ones(
    name: str, value: str, more: dict[str, str]
) -> None:
    with pytest.raises(InvalidValue) as wrong:
        time_range.read({name: value} | more, now=NOON)
    assert (wrong.value.name, wrong.value.value) == (name, value)
    assert wrong.value.allowed


def test_a_custom_range_needs_its_times() -> None:
    with pytest.raises(InvalidValue, match="from"):
        time_range.read({"range": "custom"}, now=NOON)
