"""The position of the first held record, from what the journal has about held rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arrester.agents.held.journal_counts import records_held, records_left
from arrester.agents.journal.entries import Chunk, Cursor, HeldCount
from arrester.agents.journal.ledger import SavedRows
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.domain.identity.names import TaskId
from arrester.domain.state.states import TaskState

ID = TaskId(application="flights", pipeline="delays", checkpoint="c", key="JFK")
TASK = TaskLedger(state=TaskState(id=ID, held_from=3), held=9)


def rows(entry: int, first: int | None, last: int | None) -> tuple[SavedRows, HeldCount]:
    held = HeldCount(task="JFK", count=3, first=first, last=last)
    return SavedRows(name=f"rows-{entry}", entry=entry, batch=entry, held=(held,)), held


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (Cursor(entry=2), 3),
        (Cursor(entry=3), 8),
        # Within an entry: no row is held before.
        (Cursor(entry=2, position=5), 5),
        (Cursor(entry=2, position=1), 3),
        # All of entry 2 has run.
        (Cursor(entry=2, position=7), 8),
        # Version 0.2.0 wrote no positions.
        (Cursor(entry=4), None),
        (Cursor(entry=5), None),
    ],
)
def test_the_first_position_follows_from_the_end_of_a_chunk(end: Cursor, first: int | None) -> None:
    held = [rows(4, None, None), rows(2, 3, 6), rows(3, 8, 9)]
    chunk = Chunk(task="JFK", start=Cursor(entry=0), end=end, taken=2)
    event = records_left(TASK, chunk, held)
    assert (event.held, event.first_position) == (7, first)
    assert records_left(TASK, replace(chunk, taken=9), held).first_position is None


def test_further_rows_do_not_move_the_first_position() -> None:
    more = HeldCount(task="JFK", count=2, first=10, last=11)
    event = records_held(TASK, more)
    assert (event.held, event.first_position) == (11, 3)
    event = records_held(replace(TASK, held=0), more)
    assert (event.held, event.first_position) == (2, 10)
