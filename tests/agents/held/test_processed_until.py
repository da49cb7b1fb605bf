"""The position up to which redriven records are processed, from what the journal has."""

from __future__ import annotations

import pytest

from arrester.agents.held.journal_counts import processed_until
from arrester.agents.journal.entries import Chunk, Cursor, HeldCount
from arrester.agents.journal.ledger import SavedRows

HIGHEST, LOWEST = 2**63 - 1, -(2**63)


def saved(entry: int, first: int | None, last: int | None) -> tuple[SavedRows, HeldCount]:
    held = HeldCount(task="a", count=2, first=first, last=last)
    return SavedRows(name=f"{entry}", entry=entry, batch=None, held=(held,)), held


#: Live records, a redrive, more live ones, and a second redrive.
ROWS = [saved(3, 100, 110), saved(5, 10, 20), saved(6, 111, 120), saved(8, 30, 40)]
REDRIVES = {5, 8}


@pytest.mark.parametrize(
    ("start", "end", "until"),
    [
        # Nothing redriven has run.
        (Cursor(entry=3), Cursor(entry=4), None),
        (Cursor(entry=6), Cursor(entry=7), None),
        # A part of the first redrive; the bound is the next one.
        (Cursor(entry=3), Cursor(entry=5, position=16), 15),
        (Cursor(entry=5, position=16), Cursor(entry=6), 29),
        (Cursor(entry=5), Cursor(entry=5, position=21), 29),
        # All of it and a part of the second one, then all.
        (Cursor(entry=3), Cursor(entry=8, position=35), 34),
        (Cursor(entry=3), Cursor(entry=9), HIGHEST),
    ],
)
def test_the_bound_is_before_the_first_redriven_record_that_is_left(
    start: Cursor, end: Cursor, until: int | None
) -> None:
    chunk = Chunk(task="a", start=start, end=end, taken=1)
    assert processed_until(chunk, ROWS, REDRIVES) == until


def test_a_later_redrive_of_lower_positions_keeps_the_bound_low() -> None:
    rows = [saved(5, 50, 60), saved(8, 5, 7)]
    first = Chunk(task="a", start=Cursor(entry=5), end=Cursor(entry=6), taken=2)
    assert processed_until(first, rows, REDRIVES) == 4
    second = Chunk(task="a", start=Cursor(entry=6), end=Cursor(entry=9), taken=2)
    assert processed_until(second, rows, REDRIVES) == HIGHEST


def test_without_known_positions_nothing_is_reported() -> None:
    rows = [saved(5, 50, 60), saved(8, None, None)]
    first = Chunk(task="a", start=Cursor(entry=5), end=Cursor(entry=6), taken=2)
    assert processed_until(first, rows, REDRIVES) is None
    lowest = [saved(5, 50, 60), saved(8, LOWEST, 3)]
    assert processed_until(first, lowest, REDRIVES) is None
    # An entry of a version that did not name redrives.
    assert processed_until(first, lowest, ()) is None
