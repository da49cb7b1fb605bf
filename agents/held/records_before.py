"""The held records of a task before a position, at which it is to resume."""

from __future__ import annotations

from msgspec.structs import replace
from pyspark.sql import functions as F

from arrester.agents.failures.pause_offsets import cursor_after, place
from arrester.agents.held.chunk_bounds import is_from
from arrester.agents.held.journal_counts import counts_by_entry, positions_by_entry
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Chunk, Cursor
from arrester.agents.journal.ledger import Ledger
from arrester.agents.worker.columns import POSITION
from arrester.domain.errors import ArresterError


class PositionNotHeld(ArresterError):
    """A task cannot resume at a position that it does not hold. Give one that it holds."""


def records_before(store: HeldStore, ledger: Ledger, key: str | None, position: int) -> Chunk:
    """Return the chunk of a task's next held records up to, not including, `position`.

    The journal has the positions of each entry. Rows are read if `position` is between those of one
    entry, or if 0.2.0 wrote it. Raises PositionNotHeld if `position` is more than one after the
    last of them: records before it may still arrive.
    """
    task = ledger.task(key)
    start = task.cursor or Cursor(entry=0)
    held_rows = ledger.held_rows([key])[key]
    positions = positions_by_entry(held_rows)
    end, taken, last = start, 0, None
    for entry, (count, _) in counts_by_entry(task, held_rows).items():
        of_entry = positions[entry]
        if of_entry is None:
            rest = task.chunk(Cursor(entry=ledger.number + 1), task.held)
            return _read_before(store, ledger, rest, position)
        first, last = of_entry
        is_whole = start.entry < entry or start.position is None
        if first >= position and is_whole:
            end = Cursor(entry=entry, position=first)
            return task.chunk(end, taken)
        if last >= position:
            begin = Cursor(entry=entry) if is_whole else start
            divided = replace(task.chunk(Cursor(entry=entry + 1), count), start=begin)
            within = _read_before(store, ledger, divided, position)
            return replace(within, start=start, taken=taken + within.taken)
        end, taken = cursor_after(entry, last), taken + count
    if last is None:
        raise PositionNotHeld(f"task {key!r} holds no records to go on at")
    _check_held(key, last, position)
    return task.chunk(end, taken)


def _read_before(store: HeldStore, ledger: Ledger, rows: Chunk, position: int) -> Chunk:
    """Return the part of some held rows before `position`."""
    remaining = store.coordinates(ledger, [rows])
    from_position = remaining.where(F.col(POSITION) >= position)
    first = from_position.agg(F.min(place()).alias("place")).collect()[0]["place"]
    if first is not None:
        end = Cursor(**first.asDict())
        taken = remaining.where(~is_from(F.lit(end.entry), F.lit(end.position))).count()
        return replace(rows, end=end, taken=taken)
    last = remaining.agg(F.max(place()).alias("place")).collect()[0]["place"]
    if last is None:
        raise PositionNotHeld(f"the held records of task {rows.task!r} are not in {store.root}")
    _check_held(rows.task, last["position"], position)
    return replace(rows, end=cursor_after(last["entry"], last["position"]))


def _check_held(key: str | None, last: int | None, position: int) -> None:
    """Raise PositionNotHeld unless `position` is at most one after the last held one."""
    if position > (last or 0) + 1:
        raise PositionNotHeld(f"the last record that task {key!r} holds is at position {last}")
