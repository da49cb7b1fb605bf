"""Whole-instance pause, task time-outs and thread counts: Kafka Streams' own."""

from __future__ import annotations

from tests.conformance.cases import Case

NEEDS_SPARK: dict[str, str] = {}


def check(case: Case) -> None:
    raise AssertionError(f"{case.name}: no rule here reads this form")
