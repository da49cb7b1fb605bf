"""Waits of a schedule, checked one by one against the real formula."""

from __future__ import annotations

from arrester.domain.error_policy.retry import Attempts, RetryPolicy, wait_ms
from tests.conformance.cases import Json


def check_schedule(policy: RetryPolicy, schedule: list[Json]) -> None:
    """Check each wait: exact, or a draw below an exclusive maximum and nothing else."""
    for step in schedule:
        drawn: list[int] = []

        def draw(below: int, drawn: list[int] = drawn) -> int:
            drawn.append(below)
            return below - 1

        attempts = Attempts(made=step["attempt"], now_ms=step.get("now_ms", 0))
        wait = wait_ms(policy, attempts, chance=draw)
        if step["kind"] == "exact":
            assert (wait, drawn) == (step["wait_ms"], []), step
        else:
            assert step["kind"] == "uniform_integer"
            assert step["min_ms_inclusive"] == 0
            assert drawn == [step["max_ms_exclusive"]], step
            assert wait == drawn[0] - 1


def schedule_of(first_wait_ms: int, longest_ms: int, attempts: int) -> list[Json]:
    """Return the schedule of a first wait that doubles up to a maximum, in the form of cases."""
    raw = [(n, first_wait_ms * 2 ** (n - 1)) for n in range(1, attempts + 1)]
    return [
        {"attempt": n, "kind": "exact", "wait_ms": wait}
        if wait <= longest_ms
        else {
            "attempt": n,
            "kind": "uniform_integer",
            "min_ms_inclusive": 0,
            "max_ms_exclusive": longest_ms,
        }
        for n, wait in raw
    ]
