"""The cases that need an agent on Spark.

`tests.conformance.effects_<suite>.CHECKS` has the checks of a suite by the forms of its cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case, Form

Check = Callable[[Case, Bench], None]


def runner(case: Case) -> Check | None:
    """Return the check that runs the case on Spark, None for a case of the rules alone."""
    name = f"tests.conformance.effects_{case.suite}"
    if find_spec(name) is None:
        return None
    checks: Mapping[Form, Check] = import_module(name).CHECKS
    return next((check for form, check in checks.items() if case.has(form)), None)
