"""Rows of the staged path in an Iceberg table; tables are read without Arrester."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.iceberg_table import (
    IcebergTable,
    StagedAppend,
    checked_iceberg_table,
)
from arrester.agents.definition.stores.sink_store import TableReplaced
from arrester.agents.handlers import Handler, LogAndContinue
from arrester.agents.run.micro_batch.staged_writer import NotWritten
from arrester.agents.spark.jvm.stores.iceberg import spark_table
from arrester.agents.transport.spool import Spool
from arrester.domain.events import RecordFailed
from tests import iceberg
from tests.agents.batch.test_path_selection import reported, states_of
from tests.agents.batch.test_staged_path import Answering, Outcomes, on_slow_path, outcomes
from tests.agents.measured_flow import counts_of
from tests.agents.pipeline_bench import Bench
from tests.agents.sink.runs_that_end import end_before_entry_and_publication
from tests.agents.sink.test_iceberg_table import Table

__all__ = ["outcomes"]

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.spark,
    pytest.mark.skipif(not iceberg.archives(), reason="there is no Iceberg for this Spark"),
]


@pytest.fixture
def table(bench: Bench) -> Iterator[Table]:
    made = Table(bench)
    yield made
    made.close()


def parsing(bench: Bench, table: Table, handler: Handler) -> Pipeline:
    """Return a pipeline whose native step fails at each value that is no number."""
    builder = bench.define(on_error=LogAndContinue())
    builder = builder.deserialize("code", F.col("value").cast("int"), on_error=handler)
    return builder.write_iceberg(table.name, on_error=LogAndContinue())


def scene(spark: SparkSession, folder: Path) -> tuple[Bench, list[tuple[Any, ...]]]:
    """Return the bench and the rows of micro-batches with skips, a pause and refused rows."""
    folder.mkdir()
    bench = Bench(spark, folder)
    table = Table(bench)
    bench.add(("a", 0, "0"), ("b", 0, "0"))
    bench.add(("a", 1, "x"), ("a", 2, "2"), ("b", 1, "1"), ("c", None, "5"))
    bench.add(("a", 3, "3"), ("b", 2, "2"), ("b", 3, "x"), ("b", 4, "4"))
    bench.add(("a", 4, "4"), ("b", 5, "5"), ("b", 6, "x"), ("a", 5, "x"), ("a", 6, "6"))
    bench.start(parsing(bench, table, Answering("b")))
    bench.wait_for_input()
    bench.stop()
    table.refresh()
    found = sorted(map(tuple, spark.table(table.name).collect()))
    assert sorted(data_files(bench)) == named_files(table)
    table.close()
    return bench, found


def data_files(bench: Bench) -> list[str]:
    """Return the names of the data files in the folder of the table."""
    return [each.name for each in (bench.folder / "warehouse/db/lines/data").rglob("*.parquet")]


def named_files(table: Table) -> list[str]:
    """Return the names of the data files of the current snapshot."""
    table.refresh()
    files = table.spark.table(f"{table.name}.files").collect()
    return sorted(Path(each.file_path).name for each in files)


def test_the_staged_path_has_the_result_of_the_slow_path_in_an_iceberg_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcomes: Outcomes
) -> None:
    staged, found = scene(spark, tmp_path / "staged")
    assert outcomes == [None, None, NotWritten.STOPS_TASKS, None]
    on_slow_path(monkeypatch)
    slow, expected = scene(spark, tmp_path / "slow")
    assert len(outcomes) == 4

    assert found == expected
    assert [(task, at) for task, at, *_ in found] == [
        *(("a", at) for at in (0, 2, 3, 4, 6)),
        *(("b", at) for at in (0, 1, 2)),
    ]
    assert reported(staged) == reported(slow)
    assert states_of(staged) == states_of(slow)
    dead_letters = [
        sorted((str(row["task"]), str(row["position"])) for row in bench.dead_letters())
        for bench in (staged, slow)
    ]
    assert dead_letters[0] == dead_letters[1] == [("a", "1"), ("a", "5"), ("c", "None")]


@pytest.mark.parametrize(
    ("version", "partitions"), [(1, ""), (2, "bucket(2, id), day(at)"), (3, ""), (3, "half")]
)
def test_a_staged_append_is_the_same_as_one_of_iceberg(
    spark: SparkSession, table: Table, version: int, partitions: str
) -> None:
    """Files with their statistics, the summary of the snapshot, and the lineage of rows."""
    frame = spark.range(6).selectExpr(
        "id", "id % 2 AS half", "timestamp_micros(id * 40000000000) AS at", "id AS small"
    )
    names = [f"{table.name}_{kind}" for kind in ("plain", "staged")]
    for name in names:
        partitioned = f"PARTITIONED BY ({partitions})" if partitions else ""
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT NOT NULL, half BIGINT, at TIMESTAMP, small INT) USING "
            f"iceberg {partitioned} TBLPROPERTIES ('format-version' = '{version}')"
        )
        store = checked_iceberg_table(
            frame.schema, table=name, options={"snapshot-property.team": "a"}
        ).at("c1")
        assert store.can_stage(spark)
        store(frame, 1)
        if name == names[0]:
            store(frame, 2)
            continue
        with store.open_staged_write(spark) as write:
            write.stage(frame, 2)
            assert spark.table(name).count() == 6
            write.publish(2)
        # Also without REFRESH TABLE, in the session that wrote them.
        assert spark.table(name).count() == 12
    plain, staged = (contents(spark, name, has_lineage=version == 3) for name in names)
    assert plain == staged
    assert plain["summary"]["arrester-number"] == "2"


def contents(spark: SparkSession, name: str, *, has_lineage: bool) -> dict[str, Any]:
    snapshots = spark.table(f"{name}.snapshots").orderBy(F.desc("committed_at"))
    newest = snapshots.select("operation", "summary").first()
    assert newest is not None
    lineage = ("_row_id", "_last_updated_sequence_number") if has_lineage else ()
    files = spark.table(f"{name}.files").drop("file_path", "readable_metrics")
    return {
        "rows": sorted(map(tuple, spark.table(name).select("*", *lineage).collect())),
        "files": sorted(str(each) for each in files.collect()),
        "operation": newest.operation,
        "summary": newest.summary,
    }


def write_of(spark: SparkSession, table: Table, *, number: int) -> tuple[StagedAppend, DataFrame]:
    """Return a staged write of three rows, with them."""
    rows = spark.range(3).selectExpr("'a' AS task", "id AS position", "'x' AS value", "1 AS code")
    store = checked_iceberg_table(rows.schema, table=table.name, options=None).at("c1")
    write = store.open_staged_write(spark)
    write.stage(rows, number)
    return write, rows


def test_other_writers_between_stage_and_publication_keep_their_rows(
    spark: SparkSession, bench: Bench, table: Table
) -> None:
    write, _ = write_of(spark, table, number=1)
    table.sql(f"INSERT INTO {table.name} VALUES ('b', 9, 'x', 1)")
    table.sql(f"ALTER TABLE {table.name} ADD COLUMN more INT")
    assert table.positions() == [9]
    write.publish(1)
    write.discard()
    assert table.positions() == [0, 1, 2, 9]
    assert sorted(data_files(bench)) == named_files(table)


def test_a_number_that_is_stored_meanwhile_is_published_once(
    spark: SparkSession, bench: Bench, table: Table
) -> None:
    write, rows = write_of(spark, table, number=1)
    write.table(rows, 1)
    files = len(list((bench.folder / "warehouse").rglob("*.avro")))
    write.publish(1)
    write.discard()
    assert table.positions() == [0, 1, 2]
    assert table.snapshots == 1
    assert sorted(data_files(bench)) == named_files(table)
    # The list of manifests, and a manifest.
    assert len(list((bench.folder / "warehouse").rglob("*.avro"))) == files - 2


def test_a_table_that_is_created_again_meanwhile_gets_no_rows(
    spark: SparkSession, table: Table
) -> None:
    write, _ = write_of(spark, table, number=1)
    table.sql(f"DROP TABLE {table.name}")
    table.create()
    with write, pytest.raises(TableReplaced):
        write.publish(1)
    assert table.positions() == []


def test_nothing_of_an_iceberg_table_is_visible_before_the_decision(
    bench: Bench, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_before_entry_and_publication(
        bench,
        monkeypatch,
        StagedAppend,
        pipeline=lambda: parsing(bench, table, LogAndContinue()),
        visible=lambda: (table.positions(), table.snapshots),
        data_files=lambda: data_files(bench),
    )


def test_refused_rows_beside_a_failed_record_are_found_by_the_slow_path(
    bench: Bench, table: Table, outcomes: Outcomes
) -> None:
    bench.add(("a", 0, "0"), ("a", 1, "x"), ("a", 2, "2"))
    builder = bench.define(on_error=LogAndContinue())
    builder = builder.deserialize("code", F.col("value").cast("int"), on_error=LogAndContinue())
    builder = builder.columns("row", position=F.when(F.col("code") != 2, F.col("position")))
    bench.start(builder.write_iceberg(table.name, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert outcomes == [NotWritten.RAISED]
    assert table.positions() == [0]
    failed = sorted((each.position, each.failure.stage) for each in bench.outbox.of(RecordFailed))
    assert failed == [(1, "deserialize"), (2, "produce")]


def test_records_of_a_sorted_table_are_counted_once(
    bench: Bench, spool: Spool, table: Table, outcomes: Outcomes
) -> None:
    """Spark reads the rows of an append twice, so that they cannot be staged."""
    jvm: Any = bench.spark._jvm
    order = spark_table(bench.spark, table.name).table().replaceSortOrder()
    api = jvm.org.apache.iceberg
    order.asc(api.expressions.Expressions.ref("position"), api.NullOrder.NULLS_FIRST).commit()
    bench.add(("a", 0, "0"), ("a", 1, "1"))
    bench.add(("a", 2, "x"), ("a", 3, "3"), ("a", 4, "4"))
    bench.start(parsing(bench, table, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert (outcomes, table.positions()) == ([], [0, 1, 3, 4])
    counts = counts_of(spool)
    assert (counts["records_in"], counts["records_out"], counts["failed"]) == (5, 4, 1)


def test_a_table_that_cannot_be_read_is_not_staged(spark: SparkSession, table: Table) -> None:
    store = IcebergTable(table=f"{table.name}_none", schema=spark.range(0).schema)
    assert not store.can_stage(spark)
