"""Run every conformance case against the real code.

A case runs by the rules of the domain or by an agent on Spark (`effects`), or it is listed with the
reason why it has no meaning on Spark. A case in an unknown form fails.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import pytest

from tests.agents.pipeline_bench import Bench
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


#: They count a million failures.
LONG = {"connect_tolerance_shipped/all-many-failures"}
RULES = [case for case in CASES if effects.runner(case) is None]
ON_SPARK = [case for case in CASES if effects.runner(case) is not None]


def adapter(case: Case) -> Any:
    return import_module(f"tests.conformance.adapters.{case.suite}")


def test_there_are_cases() -> None:
    assert CASES


def marked(case: Case) -> Any:
    return pytest.param(case, marks=[pytest.mark.long] if case.name in LONG else [], id=case.name)


@pytest.mark.parametrize("case", [marked(case) for case in RULES])
def test_the_rules_conform_to_the_case(case: Case) -> None:
    ours = adapter(case)
    case.run(lambda: ours.check(case), ours.IGNORED)


@pytest.mark.spark
@pytest.mark.parametrize("case", ON_SPARK, ids=lambda case: case.name)
def test_the_agent_conforms_to_the_case(case: Case, bench: Bench) -> None:
    check = effects.runner(case)
    assert check is not None
    case.run(partial(check, case, bench), adapter(case).IGNORED)


@pytest.mark.parametrize(
    "entry",
    [*not_applicable(), *decided()],
    ids=lambda entry: entry.name,
)
def test_every_listed_exception_has_a_case_and_a_reason(entry: Entry) -> None:
    assert entry.why.strip()
    assert any(entry.fits(case) for case in read(OURS))


def test_no_case_is_in_both_lists() -> None:
    twice = [
        case.name
        for case in read(OURS)
        if not has_meaning(case) and any(entry.fits(case) for entry in decided())
    ]
    assert twice == []
