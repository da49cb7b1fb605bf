"""Every case that states a behaviour we have, run against our real code.

A case is run, or listed with its reason as having no meaning on Spark; what needs a running agent
is named by its suite's adapter and run by `effects`. Anything else is a failure.
"""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.agents.engine.bench import Bench
from tests.conformance import effects
from tests.conformance.cases import (
    FOLDER,
    OURS,
    Case,
    Entry,
    as_decided,
    decided,
    has_meaning,
    not_applicable,
    read,
)

CASES = [as_decided(case) for case in read(FOLDER) if has_meaning(case)]


def on_spark(case: Case) -> str | None:
    """Return what has to be seen on Spark, or None for what the rules alone decide."""
    found: dict[str, str] = import_module(f"tests.conformance.adapters.{case.suite}").NEEDS_SPARK
    return next((what for ids, what in found.items() if re.fullmatch(ids, case.id)), None)


PURE = [case for case in CASES if on_spark(case) is None]
SEEN = [case for case in CASES if on_spark(case) is not None]


def test_there_are_cases() -> None:
    assert CASES


@pytest.mark.parametrize("case", PURE, ids=lambda case: case.name)
def test_the_rules_decide_as_the_case_says(case: Case) -> None:
    import_module(f"tests.conformance.adapters.{case.suite}").check(case)


@pytest.mark.spark
@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.name)
def test_the_agent_does_as_the_case_says(case: Case, bench: Bench) -> None:
    check = effects.runner(case)
    assert check is not None, "nobody has a runner for the case"
    check(case, bench)


@pytest.mark.parametrize(
    "entry",
    [*not_applicable(), *decided()],
    ids=lambda entry: f"{entry.suite}/{entry.id}",
)
def test_every_entry_of_our_lists_is_about_a_case_and_has_a_reason(entry: Entry) -> None:
    assert entry.why.strip()
    assert any(entry.fits(case) for case in read(OURS))


def test_no_case_is_in_both_lists() -> None:
    twice = [
        case.name
        for case in read(OURS)
        if not has_meaning(case) and any(entry.fits(case) for entry in decided())
    ]
    assert twice == []
