"""A chunk of held rows has a bounded number of folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from arrester.agents.held.journal_counts import needed_by
from arrester.agents.held.next_chunks import (
    CHUNK_FOLDERS,
    first_position,
    first_record,
    next_chunks,
)
from arrester.agents.held.records_before import PositionNotHeld, records_before
from arrester.agents.held.schema import HeldRowsMissing, RowSchemas
from arrester.agents.held.store import HeldStore
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
from arrester.agents.journal.ledger import Ledger, SavedRows
from arrester.agents.journal.storage import LocalStorage
from arrester.agents.spark.session_conf import conf
from arrester.agents.worker.columns import ENTRY, HELD, ORDINAL, OUTCOME, POSITION, ROW, TASK
from tests.agents.batch.test_job_counts import jobs_of

NOW = datetime(2026, 11, 20, tzinfo=UTC)
FOLDERS = CHUNK_FOLDERS + 44


def store_of(
    spark: SparkSession,
    root: Path,
    counts: Sequence[Mapping[str, int]],
    *,
    first: Callable[[int], int] = lambda number: 0,
) -> tuple[HeldStore, Ledger]:
    """Return held rows, one entry and folder for each item: the number of rows by task.

    `first` returns the first position in an entry.
    """
    schema = T.StructType([T.StructField("value", T.StringType())])
    kind = RowSchemas(LocalStorage(str(root))).save(schema)
    ledger = Ledger(application="flights", pipeline="delays", checkpoint="c1")
    for number, by_task in enumerate(counts, start=1):
        name = f"{number:020d}-0a1b2c3d-{kind}"
        rows = [
            {TASK: task, POSITION: position, "__arrester_hold": True, ROW: {"value": task}}
            for task, count in by_task.items()
            for position in reversed(range(first(number), first(number) + count))
        ]
        place = root / ROWS_FOLDER / name
        place.mkdir(parents=True)
        entries = pa.array([number] * len(rows), pa.int32())
        table = pa.Table.from_pylist(rows).append_column(ENTRY, entries)
        pq.write_table(table, place / "part-0.parquet")
        held = tuple(
            HeldCount(task=task, count=count, first=first(number), last=first(number) + count - 1)
            for task, count in by_task.items()
        )
        ledger.apply(
            Entry(kind=EntryKind.BATCH, at=NOW, epoch=1, number=number, row_folder=name, held=held)
        )
    # A new run: it has read none of them.
    schemas = RowSchemas(LocalStorage(str(root)))
    return HeldStore(spark=spark, root=str(root), schema=schema, schemas=schemas), ledger


def drained(ledger: Ledger, chunks: Sequence[Chunk]) -> None:
    """Fold the entries of chunks that are written."""
    for kind, of_entry in ((EntryKind.DRAIN, tuple(chunks)), (EntryKind.DRAINED, ())):
        number = ledger.number + 1
        ledger.apply(Entry(kind=kind, at=NOW, epoch=1, number=number, chunks=of_entry))


@pytest.mark.spark
@pytest.mark.parametrize(
    "counts",
    [
        [("a", 3, 1, 4, 6)],
        [("a", 2, None, None, None)],
        [(None, 1, None, 0, 0)],
        [("a", 2, 1, 4, 5), ("b", 1, None, 7, 7)],
        [("a", 1, 1, 4, 4), (None, 1, None, 0, 0)],
        [],
    ],
    ids=["one task", "no position", "no task", "two tasks", "a task and none", "none"],
)
def test_the_held_records_of_a_micro_batch_are_counted_by_task(
    spark: SparkSession,
    tmp_path: Path,
    counts: list[tuple[str | None, int, int | None, int | None, int | None]],
) -> None:
    """A skipped record and one that passed are beside them."""
    store, _ = store_of(spark, tmp_path, [])
    offsets = {"a": Cursor(entry=0, position=4)}
    rows: list[tuple[str | None, int | None, int | None]] = [("b", 1, 2), ("b", 2, None)]
    for task, count, _, first, _ in counts:
        outcome = None if task == "a" and first is not None else HELD
        rows += [(task, None if first is None else first + n, outcome) for n in range(count)]
    schema = f"{TASK} STRING, {POSITION} BIGINT, {OUTCOME} INT"
    frame = spark.createDataFrame(rows, schema).selectExpr(
        "*", f"0 AS {ENTRY}", f"0 AS {ORDINAL}", f"struct({TASK} AS value) AS {ROW}"
    )

    name, found, values = store.save(
        frame, offsets, order=9, aggregates=[F.count(F.lit(1)).alias("rows")]
    )

    expected = [
        HeldCount(task=task, count=count, stopping=stopping, first=first, last=last)
        for task, count, stopping, first, last in counts
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    number = sum(each.count for each in expected)
    assert values["rows"] == number + 1
    saved = spark.read.parquet(str(tmp_path / "arrester" / "held" / name)).where("__arrester_hold")
    held = saved.select(ENTRY, f"{ROW}.value", TASK).collect()
    assert len(held) == number
    assert all(row[ENTRY] == 9 and row["value"] == row[TASK] for row in held)


@pytest.mark.spark
def test_a_chunk_has_a_bounded_number_of_folders_and_the_next_chunk_has_the_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task was paused overnight: each micro-batch has held one row."""
    held_store, ledger = store_of(spark, tmp_path, [{"a": 1}] * FOLDERS)

    [first] = next_chunks(held_store, ledger, limit=10_000)
    assert first.taken == CHUNK_FOLDERS
    assert held_store.rows(ledger, [first]).count() == CHUNK_FOLDERS
    assert first_position(held_store, ledger, "a") == 0
    drained(ledger, [first])
    [rest] = next_chunks(held_store, ledger, limit=10_000)
    assert rest.taken == FOLDERS - CHUNK_FOLDERS


@pytest.mark.spark
def test_many_small_folders_are_listed_with_a_task_for_each_core(
    spark: SparkSession, tmp_path: Path
) -> None:
    held_store, ledger = store_of(spark, tmp_path, [{"a": 1}] * 40)
    chunks = next_chunks(held_store, ledger, limit=10_000)
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    context.setJobGroup(str(tmp_path), "the folders of a chunk")
    try:
        held_store.rows(ledger, chunks)
    finally:
        context._jsc.clearJobGroup()

    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(tmp_path))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert [stage.numTasks for stage in stages if stage] == [context.defaultParallelism]


@pytest.mark.spark
@example(counts=[{"a": 1}, {"a": 6, "b": 2}], limits=[0, 2])
@given(
    counts=st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1),
        min_size=1,
        max_size=4,
    ),
    # 0: the first record of a task only, as a skip takes it.
    limits=st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
@settings(max_examples=6, deadline=None)
@pytest.mark.long
def test_chunks_of_any_size_divide_the_held_rows_in_their_order(
    spark: SparkSession, counts: list[dict[str, int]], limits: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        held_store, ledger = store_of(spark, Path(folder), counts)
        places: dict[str, list[tuple[int, int]]] = {task: [] for task in "abc"}
        for limit in cycle(limits):
            tasks = ledger.drainable()
            if not tasks:
                break
            if limit:
                chunks = next_chunks(held_store, ledger, limit=limit)
            else:
                chunks = [first_record(held_store, ledger, tasks[-1].state.id.key)]
            rows = held_store.rows(ledger, chunks).select(TASK, ENTRY, POSITION).collect()
            assert len(rows) == sum(chunk.taken for chunk in chunks) <= max(limit, 1)
            for row in rows:
                places[row[TASK]].append((row[ENTRY], row[POSITION]))
            drained(ledger, chunks)
    assert places == {
        task: [
            (entry, position)
            for entry, by_task in enumerate(counts, start=1)
            for position in range(by_task.get(task, 0))
        ]
        for task in "abc"
    }


@pytest.mark.spark
def test_chunks_of_several_tasks_end_where_each_of_them_stops(
    spark: SparkSession, tmp_path: Path
) -> None:
    held_store, ledger = store_of(spark, tmp_path, [{"a": 2, "b": 2, "c": 2}, {"a": 1, "b": 1}])
    chunks = next_chunks(held_store, ledger, limit=100)
    assert [(chunk.task, chunk.taken) for chunk in chunks] == [("a", 3), ("b", 3), ("c", 2)]

    ends = {0: Cursor(entry=2, position=0), 1: Cursor(entry=1, position=0)}
    shorter = held_store.shorten(ledger, chunks, ends)

    assert [(chunk.taken, chunk.stopping) for chunk in shorter] == [(2, 1), (0, 1), (2, None)]
    rows = held_store.rows(ledger, shorter).select(TASK, ENTRY, POSITION).collect()
    assert sorted(map(tuple, rows)) == [("a", 1, 0), ("a", 1, 1), ("c", 1, 0), ("c", 1, 1)]


@pytest.mark.spark
def test_the_records_before_a_position_are_found_in_the_journal(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task holds the positions 10, 11, 20, 21, 22 and 30, and has a cursor after 10."""
    counts = [{"a": 2}, {"a": 3, "b": 1}, {"a": 1}]
    store, ledger = store_of(spark, tmp_path, counts, first=lambda number: 10 * number)
    drained(ledger, [first_record(store, ledger, "a")])
    earlier = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    earlier.saved_rows = [
        replace(
            saved, held=tuple(HeldCount(task=each.task, count=each.count) for each in saved.held)
        )
        for saved in ledger.saved_rows
    ]
    found: dict[int, Chunk] = {}

    def search(position: int) -> None:
        found[position] = records_before(store, ledger, "a", position)

    # Jobs run for a position inside of an entry only: one after a cursor in it counts as inside.
    jobs = {at: jobs_of(spark, partial(search, at)) for at in (11, 12, 20, 21, 23, 30, 31)}

    assert {at: chunk.taken for at, chunk in found.items()} == {
        **{11: 0, 12: 1, 20: 1, 21: 2, 23: 4, 30: 4, 31: 5}
    }
    assert [at for at, count in jobs.items() if count] == [11, 21]
    for at in (12, 20, 21, 30, 31):
        assert found[at] == records_before(store, earlier, "a", at)
    for of_journal in (ledger, earlier):
        with pytest.raises(PositionNotHeld, match="task 'a' holds is at position 30"):
            records_before(store, of_journal, "a", 32)
    with pytest.raises(PositionNotHeld, match="task 'c' holds no records"):
        records_before(store, ledger, "c", 1)


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
    drained(ledger, [rest])

    assert [*map(needed_by(ledger, committed=2), ledger.saved_rows)] == [True, False]

    stored = DeadLetters(name="c1-3-1", day="2026-11-20", folder="c1-3-1.2")
    ledger.apply(Entry(kind=EntryKind.DEAD_LETTERS, at=NOW, epoch=2, number=6, dead_letters=stored))
    assert not any(map(needed_by(ledger, committed=2), ledger.saved_rows))
    assert (ledger.unstored_dead_letters, ledger.pending_dead_letters) == ({}, {"c1-3-1": stored})


@pytest.mark.spark
def test_missing_rows_are_detected_before_their_chunk_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    held_store, ledger = store_of(spark, tmp_path, [{"a": 2, "b": 1}, {"a": 3}])
    first, second = next_chunks(held_store, ledger, limit=10)
    for chunks in ([first], [first, second]):
        assert held_store.check_rows(ledger, chunks, lambda rows: F.col("value"))
    assert not held_store.check_rows(ledger, [first, second], lambda rows: F.lit("a"))
    [part] = tmp_path.glob(f"{ROWS_FOLDER}/{1:020d}*/part-0.parquet")
    pq.write_table(pq.read_table(part).slice(1), part)
    for chunks, tasks in (([first], "5 rows of task 'a'"), ([first, second], "6 rows of 2 tasks")):
        with pytest.raises(HeldRowsMissing, match=f"1 of {tasks} not found in"):
            held_store.check_rows(ledger, chunks, lambda rows: F.col("value"))


@pytest.mark.smoke
def test_times_of_any_year_are_held_exactly_with_any_settings(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = {
        "spark.sql.session.timeZone": "Asia/Shanghai",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    }
    seconds = (-62_135_596_800, -12_219_500_000, -2_208_988_800, 0, 253_402_300_800)
    micros = [(number, second * 1_000_000 + 1) for number, second in enumerate(seconds)]
    with conf(spark, settings):
        made = spark.createDataFrame(micros, f"{POSITION} long, micros long").coalesce(1)
        at = F.timestamp_micros("micros")
        row = F.struct(at.alias("at"), at.cast("date").alias("day")).alias(ROW)
        rows = made.select(F.lit("a").alias(TASK), POSITION, row)
        schema = rows.schema[ROW].dataType
        assert isinstance(schema, T.StructType)
        schemas = RowSchemas(LocalStorage(str(tmp_path)))
        store = HeldStore(spark=spark, root=str(tmp_path), schema=schema, schemas=schemas)
        held = HeldCount(task="a", count=len(micros), first=0, last=len(micros) - 1)
        saved = SavedRows(entry=1, batch=None, name=store.save_again(rows, order=1), held=(held,))
        columns = (POSITION, F.unix_micros(f"{ROW}.at"), F.unix_date(f"{ROW}.day"))
        found = store.held_rows([saved]).select(*columns).orderBy(POSITION).collect()
        assert found == rows.select(*columns).orderBy(POSITION).collect()
    assert [(row[0], row[1]) for row in found] == micros
