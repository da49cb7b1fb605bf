"""What the journal has about held rows: their number by entry, and which folders are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from arrester.agents.failures.pause_offsets import FIRST_POSITION, LAST_POSITION
from arrester.agents.journal.entries import Chunk, Cursor, HeldCount
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.journal.task_ledger import TaskLedger
from arrester.domain.events import RecordsHeld


def counts_by_entry(
    task: TaskLedger, held_rows: Sequence[tuple[SavedRows, HeldCount]]
) -> dict[int, tuple[int, set[str | None]]]:
    """Return the entries with rows that a task holds, in order: their number and their folders."""
    cursor = task.cursor or Cursor(entry=0)
    by_entry: dict[int, tuple[int, set[str | None]]] = {}
    for saved, held in sorted(held_rows, key=lambda each: each[0].entry):
        if saved.entry >= cursor.entry:
            before, names = by_entry.get(saved.entry, (0, set()))
            by_entry[saved.entry] = (before + held.count, {*names, saved.name})
    for first in list(by_entry)[:1]:
        # Some of its rows may precede the cursor, or all of them.
        rest = sum(count for count, _ in by_entry.values()) - by_entry[first][0]
        by_entry[first] = (task.held - rest, by_entry[first][1])
    return {entry: counted for entry, counted in by_entry.items() if counted[0]}


def positions_by_entry(
    held_rows: Sequence[tuple[SavedRows, HeldCount]],
) -> dict[int, tuple[int, int] | None]:
    """Return the lowest and the highest position of a task's rows in each entry; None: unknown."""
    by_entry: dict[int, tuple[int, int] | None] = {}
    for saved, held in held_rows:
        if held.first is None or held.last is None:
            by_entry[saved.entry] = None
        elif before := by_entry.get(saved.entry, (held.first, held.last)):
            by_entry[saved.entry] = (min(before[0], held.first), max(before[1], held.last))
    return by_entry


def _first_position_after(
    task: TaskLedger, chunk: Chunk, held_rows: Sequence[tuple[SavedRows, HeldCount]]
) -> int | None:
    """Return the position from which a task holds rows after a chunk of them; None: it is unknown,
    or the task holds none.

    If the chunk ends within an entry, no row is held before this position; reading the first one
    would take a job.
    """
    if task.held <= chunk.taken:
        return None
    for entry, positions in sorted(positions_by_entry(held_rows).items()):
        if entry < chunk.end.entry:
            continue
        if positions is None or entry > chunk.end.entry or chunk.end.position is None:
            return None if positions is None else positions[0]
        first, last = positions
        if chunk.end.position <= last:
            return max(first, chunk.end.position)
    return None


def records_held(task: TaskLedger, held: HeldCount) -> RecordsHeld:
    """Return the event of rows that an entry adds to those that a task holds."""
    first = task.state.held_from if task.held else held.first
    return RecordsHeld(task=held.task, held=task.held + held.count, first_position=first)


def records_left(
    task: TaskLedger,
    chunk: Chunk,
    held_rows: Sequence[tuple[SavedRows, HeldCount]],
    *,
    redrives: Collection[int] = (),
) -> RecordsHeld:
    """Return the event of the rows that a task holds after a chunk of them.

    `redrives` are the entries of redrives, whose records of the chunk are processed.
    """
    return RecordsHeld(
        task=chunk.task,
        held=task.held - chunk.taken,
        first_position=_first_position_after(task, chunk, held_rows),
        processed_until=processed_until(chunk, held_rows, redrives),
    )


def processed_until(
    chunk: Chunk, held_rows: Sequence[tuple[SavedRows, HeldCount]], redrives: Collection[int]
) -> int | None:
    """Return the position up to which the redriven records of a task are processed after a chunk.

    `held_rows` are the rows that the task holds before it, `redrives` the entries of redrives.
    None: the chunk has no redriven records, or a position is not known.
    """
    end, first_left = chunk.end, LAST_POSITION + 1
    counts = [(saved.entry, held) for saved, held in held_rows if saved.entry in redrives]
    if not any(chunk.start.entry <= entry <= end.entry for entry, _ in counts):
        return None
    for entry, held in counts:
        if entry < end.entry:
            continue
        if held.first is None or held.last is None:
            return None
        if entry > end.entry or end.position is None:
            first_left = min(first_left, held.first)
        elif held.last >= end.position:
            first_left = min(first_left, max(held.first, end.position))
    return None if first_left == FIRST_POSITION else first_left - 1


def may_have_rows(chunk: Chunk, saved: SavedRows) -> bool:
    """Whether a folder with rows of the chunk's task may have rows of the chunk."""
    if saved.entry == chunk.end.entry and chunk.end.position is None:
        return False
    return chunk.start.entry <= saved.entry <= chunk.end.entry


def first_entries(ledger: Ledger) -> dict[str | None, int]:
    """Return the first entry with held rows of each task that holds some."""
    return {
        task.state.id.key: task.cursor.entry
        for task in ledger.tasks.values()
        if task.held and task.cursor is not None
    }


def needed_by(ledger: Ledger, *, committed: int) -> Callable[[SavedRows], bool]:
    """Return a function whether saved rows are still needed: for a replay, or because they are
    held."""
    first = first_entries(ledger)
    skipped: dict[str | None, list[Chunk]] = {}
    for each in ledger.unstored_dead_letters.values():
        skipped.setdefault(each.chunk.task, []).append(each.chunk)

    def is_needed(saved: SavedRows) -> bool:
        if saved.batch is not None and saved.batch > committed:
            return True
        if ledger.open_chunks and saved in ledger.open_saved_rows:
            return True
        return any(
            saved.entry >= first.get(held.task, saved.entry + 1)
            or any(may_have_rows(chunk, saved) for chunk in skipped.get(held.task, ()))
            for held in saved.held
        )

    return is_needed
