"""A chunk of held rows has a bounded number of folders."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from arrester.agents.held.schema import RowSchemas
from arrester.agents.held.store import CHUNK_FOLDERS, HeldStore
from arrester.agents.journal.entries import Entry, EntryKind, HeldCount
from arrester.agents.journal.journal import ROWS_FOLDER
from arrester.agents.journal.ledger import Ledger
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.worker.columns import ENTRY, POSITION, ROW, TASK

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FOLDERS = CHUNK_FOLDERS + 44


@pytest.mark.spark
def test_a_chunk_has_a_bounded_number_of_folders_and_the_next_chunk_has_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task was paused overnight: each micro-batch has held one row."""
    schema = T.StructType([T.StructField("value", T.StringType())])
    schemas = RowSchemas(LocalStorage(str(tmp_path)))
    kind = schemas.save(schema)
    ledger = Ledger(application="flights", pipeline="delays", checkpoint="c1")
    for number in range(1, FOLDERS + 1):
        name = f"{number:020d}-0a1b2c3d-{kind}"
        row = {TASK: "a", POSITION: number, "__arrester_hold": True, ROW: {"value": "x"}}
        place = tmp_path / ROWS_FOLDER / name
        place.mkdir(parents=True)
        table = pa.Table.from_pylist([row]).append_column(ENTRY, pa.array([number], pa.int32()))
        pq.write_table(table, place / "part-0.parquet")
        held = (HeldCount(task="a", count=1),)
        ledger.apply(
            Entry(kind=EntryKind.BATCH, at=NOW, epoch=1, number=number, row_folder=name, held=held)
        )
    # A new run: it has read none of them.
    fresh = RowSchemas(LocalStorage(str(tmp_path)))
    held_store = HeldStore(spark=spark, root=str(tmp_path), schema=schema, schemas=fresh)

    first = held_store.next_chunk(ledger, "a", limit=10_000)
    assert first.taken == CHUNK_FOLDERS
    assert held_store.rows(ledger, first).count() == CHUNK_FOLDERS
    assert held_store.first_position(ledger, "a") == 1
    ledger.apply(Entry(kind=EntryKind.RESUME, at=NOW, epoch=1, number=FOLDERS + 1, chunk=first))
    assert held_store.next_chunk(ledger, "a", limit=10_000).taken == FOLDERS - CHUNK_FOLDERS
