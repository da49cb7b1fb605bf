"""Consecutive columns of failed records, joined to one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, chain
from typing import TypeVar

from arrester.controlplane.domain.events import RecordFailed
from arrester.controlplane.domain.wire.failure_columns import StoredFailures

FIRST_STEP = 2_000
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Joined:
    """Find an event by its place in the joined columns."""

    def __init__(self, some: Sequence[StoredFailures]) -> None:
        self._some = some
        self._begins = [0, *accumulate(each.failed.size for each in some)]

    def sequence(self, at: int) -> int:
        """Return the position of the event at a place."""
        number = bisect_right(self._begins, at) - 1
        return self._some[number].sequence + at - self._begins[number]

    def data(self, at: int) -> RecordFailed:
        """Return the data of the event at a place."""
        number = bisect_right(self._begins, at) - 1
        return self._some[number].failed.data(at - self._begins[number])


def joined(columns: Iterable[Iterable[T]]) -> list[T]:
    """Return columns as one."""
    return list(chain.from_iterable(columns))


def lasts(column: Sequence[K], *, different: int) -> dict[K, int]:
    """Return the last place of each value of a column with `different` distinct values.

    It searches from the end until all are found, which is soon in most long columns.
    """
    found: dict[K, int] = {}
    end, step = len(column), FIRST_STEP
    while len(found) < different:
        begin = max(0, end - step)
        # For a repeated key a dictionary keeps the last.
        found = dict(zip(column[begin:end], range(begin, end), strict=True)) | found
        # Longer each time, so that there are few parts if most values differ.
        end, step = begin, step * 2
    return found
