"""A chunk of held rows has a bounded number of folders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.held.schema import HeldRowsMissing, RowSchemas
from arrester.agents.held.store import CHUNK_FOLDERS, HeldStore, is_needed
from arrester.agents.journal.entries import (
    Chunk,
    Cursor,
    DeadLetters,
    Entry,
    EntryKind,
    HeldCount,
    UnstoredDeadLetters,
)
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.agents.journal.ledger import Ledger
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.worker.columns import ENTRY, POSITION, ROW, TASK

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FOLDERS = CHUNK_FOLDERS + 44


def store_of(spark: SparkSession, root: Path, counts: Sequence[int]) -> tuple[HeldStore, Ledger]:
    """Return the held rows of task `a`, one entry and folder for each count."""
    schema = T.StructType([T.StructField("value", T.StringType())])
    kind = RowSchemas(LocalStorage(str(root))).save(schema)
    ledger = Ledger(application="flights", pipeline="delays", checkpoint="c1")
    for number, count in enumerate(counts, start=1):
        name = f"{number:020d}-0a1b2c3d-{kind}"
        rows = [
            {TASK: "a", POSITION: position, "__arrester_hold": True, ROW: {"value": "x"}}
            for position in reversed(range(count))
        ]
        place = root / ROWS_FOLDER / name
        place.mkdir(parents=True)
        entries = pa.array([number] * count, pa.int32())
        table = pa.Table.from_pylist(rows).append_column(ENTRY, entries)
        pq.write_table(table, place / "part-0.parquet")
        held = (HeldCount(task="a", count=count),)
        ledger.apply(
            Entry(kind=EntryKind.BATCH, at=NOW, epoch=1, number=number, row_folder=name, held=held)
        )
    # A new run: it has read none of them.
    schemas = RowSchemas(LocalStorage(str(root)))
    return HeldStore(spark=spark, root=str(root), schema=schema, schemas=schemas), ledger


@pytest.mark.spark
def test_a_chunk_has_a_bounded_number_of_folders_and_the_next_chunk_has_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task was paused overnight: each micro-batch has held one row."""
    held_store, ledger = store_of(spark, tmp_path, [1] * FOLDERS)

    first = held_store.next_chunk(ledger, "a", limit=10_000)
    assert first.taken == CHUNK_FOLDERS
    assert held_store.rows(ledger, first).count() == CHUNK_FOLDERS
    assert held_store.first_position(ledger, "a") == 0
    ledger.apply(Entry(kind=EntryKind.RESUME, at=NOW, epoch=1, number=FOLDERS + 1, chunk=first))
    assert held_store.next_chunk(ledger, "a", limit=10_000).taken == FOLDERS - CHUNK_FOLDERS


@pytest.mark.spark
@example(counts=[1, 6], limits=[0, 2])
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    # 0: the first record only, as a skip takes it.
    limits=st.lists(st.integers(0, 12), min_size=1),
)
@settings(max_examples=12, deadline=None)
def test_chunks_of_any_size_divide_the_held_rows_in_their_order(
    spark: SparkSession, counts: list[int], limits: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        held_store, ledger = store_of(spark, Path(folder), counts)
        places, number = [], len(counts)
        for limit in cycle(limits):
            if not ledger.task("a").held:
                break
            number += 1
            if limit:
                chunk = held_store.next_chunk(ledger, "a", limit=limit)
            else:
                chunk = held_store.first_record(ledger, "a")
            rows = held_store.rows(ledger, chunk).select(ENTRY, POSITION).collect()
            assert len(rows) == chunk.taken <= max(limit, 1)
            places += [(row[ENTRY], row[POSITION]) for row in rows]
            ledger.apply(Entry(kind=EntryKind.RESUME, at=NOW, epoch=1, number=number, chunk=chunk))
    assert places == [
        (entry, position)
        for entry, count in enumerate(counts, start=1)
        for position in range(count)
    ]


def test_skipped_rows_are_needed_until_their_dead_letters_are_stored() -> None:
    ledger = Ledger(application="flights", pipeline="delays", checkpoint="c1")
    for number in (1, 2):
        held = (HeldCount(task="a", count=1),)
        ledger.apply(
            Entry(
                kind=EntryKind.BATCH,
                at=NOW,
                epoch=1,
                number=number,
                batch=number,
                row_folder=f"rows-{number}",
                held=held,
            )
        )
    chunk = Chunk(task="a", start=Cursor(entry=1), end=Cursor(entry=1, position=8), taken=1)
    unstored = UnstoredDeadLetters(name="c1-3-1", chunk=chunk, at=NOW)
    skip = Entry(kind=EntryKind.RESUME, at=NOW, epoch=1, number=3, chunk=chunk, unstored=unstored)
    ledger.apply(skip)
    rest = Chunk(task="a", start=chunk.end, end=Cursor(entry=3), taken=1)
    ledger.apply(Entry(kind=EntryKind.DRAIN, at=NOW, epoch=1, number=4, chunk=rest))
    ledger.apply(Entry(kind=EntryKind.DRAINED, at=NOW, epoch=1, number=5))

    needed = [is_needed(ledger, saved, committed=2) for saved in ledger.saved_rows]
    assert needed == [True, False]
    assert next(name for _, name, _ in ledger.held_folders("a", start=chunk.start)) == "rows-1"

    stored = DeadLetters(name="c1-3-1", day="2026-11-20", folder="c1-3-1.2")
    ledger.apply(Entry(kind=EntryKind.DEAD_LETTERS, at=NOW, epoch=2, number=6, dead_letters=stored))
    assert not any(is_needed(ledger, saved, committed=2) for saved in ledger.saved_rows)
    assert (ledger.unstored_dead_letters, ledger.pending_dead_letters) == ({}, {"c1-3-1": stored})


@pytest.mark.spark
def test_missing_rows_are_detected_before_their_chunk_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    held_store, ledger = store_of(spark, tmp_path, [2, 3])
    chunk = held_store.next_chunk(ledger, "a", limit=10)
    held_store.check_rows(ledger, chunk)
    [part] = tmp_path.glob(f"{ROWS_FOLDER}/{1:020d}*/part-0.parquet")
    pq.write_table(pq.read_table(part).slice(1), part)
    with pytest.raises(HeldRowsMissing, match="1 of 5 rows of task 'a' are not in"):
        held_store.check_rows(ledger, chunk)
