"""Choose the chunks of held records that run next."""

from __future__ import annotations

from pyspark.sql import functions as F

from arrester.agents.failures.pause_offsets import FIRST_POSITION, cursor_after, place
from arrester.agents.held.chunk_bounds import is_from
from arrester.agents.held.journal_counts import counts_by_entry
from arrester.agents.held.schema import HeldRowsMissing
from arrester.agents.held.store import HeldStore
from arrester.agents.journal.entries import Chunk, Cursor
from arrester.agents.journal.ledger import Ledger
from arrester.agents.worker.columns import POSITION
from arrester.domain.plural import plural

#: At most this many folders for each call of the sink: a micro-batch may have left one row in each.
CHUNK_FOLDERS = 256
#: At most this many tasks for each call of the sink: their chunks are in one journal entry.
CHUNK_TASKS = 1_000


def next_chunks(store: HeldStore, ledger: Ledger, *, limit: int) -> list[Chunk]:
    """Return the next held rows of the RUNNING tasks, one chunk for each, about `limit` rows.

    Micro-batches that fit are taken as a whole, from what the journal has about them. Only to
    divide a larger one, its rows are read; then it is the only chunk.
    """
    tasks = ledger.drainable()[:CHUNK_TASKS]
    held_rows = ledger.held_rows([task.state.id.key for task in tasks])
    chunks: list[Chunk] = []
    folders: set[str | None] = set()
    for task in tasks:
        key, end, taken = task.state.id.key, Cursor(entry=0), 0
        for entry, (count, names) in counts_by_entry(task, held_rows[key]).items():
            if taken + count > limit or len(folders | names) > CHUNK_FOLDERS:
                break
            folders |= names
            end, taken = Cursor(entry=entry + 1), taken + count
        if taken:
            chunks.append(task.chunk(end, taken))
            limit -= taken
        elif not chunks:
            return [_first_rows(store, ledger, key, limit=limit)]
        if limit <= 0:
            break
    return chunks


def first_record(store: HeldStore, ledger: Ledger, key: str | None) -> Chunk:
    """Return the chunk of the next held record only: all rows at its position.

    The journal has the record that stopped a task. Rows are read for another one, and if 0.2.0
    wrote the entry.
    """
    task = ledger.task(key)
    if task.stopped_by is None or task.stopping is None or task.cursor is None:
        return _first_rows(store, ledger, key, limit=1)
    end = cursor_after(task.cursor.entry, task.stopped_by.position)
    return task.chunk(end, task.stopping)


def first_position(store: HeldStore, ledger: Ledger, key: str | None) -> int | None:
    """Return the position of the next held record of a task."""
    end = first_record(store, ledger, key).end.position
    return None if end is None or end == FIRST_POSITION else end - 1


def _first_rows(store: HeldStore, ledger: Ledger, key: str | None, *, limit: int) -> Chunk:
    """Return at least one and about `limit` of the first rows of a task, of one entry.

    Rows with the same position stay together.
    """
    task = ledger.task(key)
    by_entry = counts_by_entry(task, ledger.held_rows([key])[key])
    first = next(iter(by_entry), None)
    if first is None:
        raise HeldRowsMissing(f"the journal has no folder of the rows of task {key!r}")
    of_entry = task.chunk(Cursor(entry=first + 1), by_entry[first][0])
    remaining = store.coordinates(ledger, [of_entry])
    ordered = remaining.orderBy(F.col(POSITION).asc_nulls_first()).limit(limit)
    last = ordered.agg(F.max(place()).alias("place")).collect()[0]["place"]
    if last is None:
        raise HeldRowsMissing(
            f"{plural(task.held, 'row')} of task {key!r} not found in {store.root}"
        )
    end = cursor_after(last["entry"], last["position"])
    taken = remaining.where(~is_from(F.lit(end.entry), F.lit(end.position))).count()
    return task.chunk(end, taken)
