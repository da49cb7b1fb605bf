"""Parameters of tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def long_for(values: Iterable[Any], long: Collection[Any]) -> list[Any]:
    """Return the values as parameters; those in `long` run by `make test-long` only."""
    return [pytest.param(each, marks=pytest.mark.long) if each in long else each for each in values]
