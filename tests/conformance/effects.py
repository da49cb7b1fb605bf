"""Cases whose outcome is an effect: run by an agent on real Spark.

A suite's runners are `tests.conformance.effects_<suite>.CHECKS`, by patterns of ids. A case
without a runner fails: what is not run is not claimed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec

from tests.agents.engine.bench import Bench
from tests.conformance.cases import Case

Check = Callable[[Case, Bench], None]


def runner(case: Case) -> Check | None:
    """Return what runs the case on Spark, or None where nobody has built it."""
    name = f"tests.conformance.effects_{case.suite}"
    if find_spec(name) is None:
        return None
    checks: Mapping[str, Check] = import_module(name).CHECKS
    return next((check for ids, check in checks.items() if re.fullmatch(ids, case.id)), None)
