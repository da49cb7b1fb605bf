"""Cases whose outcome is an effect: run by an agent on real Spark, one runner per suite.

A suite's runner is `tests.conformance.effects_<suite>.check`. Where there is none the case fails:
what is not run is not claimed.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from tests.conformance.cases import Case


def check(case: Case, *, what: str) -> None:
    """Run the case on Spark."""
    name = f"tests.conformance.effects_{case.suite}"
    if find_spec(name) is None:
        raise AssertionError(f"{case.name} has not been run on Spark: {what}")
    import_module(name).check(case)
