"""Rows of the staged path in a Delta table; tables are read without Arrester."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.definition.stores.delta_table import (
    StagedDeltaAppend,
    checked_delta_table,
)
from arrester.agents.definition.stores.sink_store import TableReplaced
from arrester.agents.handlers import Handler, LogAndContinue
from arrester.agents.run.micro_batch.staged_writer import NotWritten
from arrester.agents.spark.jvm.stores import delta
from arrester.agents.transport.spool import Spool
from arrester.domain.events import RecordFailed
from tests import delta_lake
from tests.agents.batch.test_path_selection import reported, states_of
from tests.agents.batch.test_staged_path import Answering, Outcomes, on_slow_path, outcomes
from tests.agents.measured_flow import counts_of
from tests.agents.pipeline_bench import Bench
from tests.agents.sink.runs_that_end import end_before_entry_and_publication
from tests.agents.sink.test_delta_table import Table, table
from tests.parameters import long_for

__all__ = ["outcomes", "table"]

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.spark,
    pytest.mark.skipif(not delta_lake.archives(), reason="there is no Delta Lake for this Spark"),
]


def parsing(bench: Bench, table: Table, handler: Handler) -> Pipeline:
    """Return a pipeline whose native step fails at each value that is no number."""
    code = F.col("value").cast("int").cast("string")
    builder = bench.define(on_error=LogAndContinue()).deserialize("code", code, on_error=handler)
    return builder.write_delta(table.path, on_error=LogAndContinue())


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
    found = sorted(map(tuple, spark.table(table.name).collect()))
    assert data_files(table) == named_files(table)
    return bench, found


def data_files(table: Table) -> list[str]:
    """Return the names of the data files in the folder of the table."""
    return sorted(each.name for each in Path(table.path).rglob("*.parquet"))


def named_files(table: Table) -> list[str]:
    """Return the names of the data files of the current version."""
    return sorted(Path(each).name for each in table.spark.table(table.name).inputFiles())


def test_the_staged_path_has_the_result_of_the_slow_path_in_a_delta_table(
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


#: Columns and properties of tables, and options of the writer.
KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "texts": ("id BIGINT NOT NULL, half BIGINT, text VARCHAR(9), short CHAR(3)", "", {}),
    "partitions, and a new column": (
        "id BIGINT, half BIGINT, text STRING) USING delta PARTITIONED BY (half",
        "",
        {"mergeSchema": "true"},
    ),
    "columns mapped, changes fed, rows tracked": (
        "id BIGINT, half BIGINT, text STRING, short STRING",
        "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.enableInCommitTimestamps' = 'true'",
        {"userMetadata": "a"},
    ),
    "columns filled in": (
        "id BIGINT, half BIGINT, text STRING, short STRING, more INT, seven INT",
        "'delta.feature.allowColumnDefaults' = 'supported'",
        {},
    ),
    # The checksum has no numbers then.
    "files of the best size, numbers kept for a time": (
        "id BIGINT, half BIGINT, text STRING, short STRING",
        "'delta.autoOptimize.optimizeWrite' = 'true', 'delta.autoOptimize.autoCompact' = 'true', "
        "'delta.dataSkippingNumIndexedCols' = '1', "
        "'delta.setTransactionRetentionDuration' = 'interval 365 days'",
        {},
    ),
}


def create(spark: SparkSession, table: str, folder: Path, kind: str) -> None:
    """Create a table without rows."""
    columns, properties, _ = KINDS[kind]
    given = ", ".join(filter(None, (properties, "'delta.checkpointInterval' = '2'")))
    using = "" if "USING" in columns else "USING delta"
    place = f"LOCATION '{folder}' TBLPROPERTIES ({given})"
    if kind != "columns filled in":
        spark.sql(f"CREATE TABLE {table} ({columns}) {using} {place}")
        return
    # Delta's SQL has no such columns.
    jvm: Any = spark._jvm
    tables = jvm.io.delta.tables.DeltaTable
    made = tables.columnBuilder(spark._jsparkSession, "made").dataType("BIGINT")
    own = tables.columnBuilder(spark._jsparkSession, "own").dataType("BIGINT")
    schema = spark._jsparkSession.sessionState().sqlParser().parseTableSchema(columns)
    builder = tables.create(spark._jsparkSession).tableName(table).location(str(folder))
    builder = builder.addColumns(schema).addColumn(made.generatedAlwaysAs("id * 2").build())
    builder = builder.addColumn(own.generatedAlwaysAsIdentity(1, 1).build())
    builder.property("delta.checkpointInterval", "2").execute()
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN seven SET DEFAULT 7")


@pytest.mark.parametrize(
    "kind", long_for(KINDS, ["texts", "files of the best size, numbers kept for a time"])
)
def test_a_staged_append_is_the_same_as_one_of_delta(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Files with their statistics, the information of the commit, checkpoints, and checksums."""
    options = KINDS[kind][2]
    frame = spark.range(6, numPartitions=2).selectExpr(
        "id", "id % 2 AS half", "string(id) AS text", "'a' AS short"
    )
    tables = [f"default.appends_{uuid4().hex}" for _ in range(2)]
    for name in tables:
        create(spark, name, tmp_path / name, kind)
        store = checked_delta_table(frame.schema, table=name, options=options).at("c1")
        assert store.can_stage(spark)
        for number in range(3):
            if name == tables[0]:
                numbered = {"txnAppId": "arrester-c1", "txnVersion": str(number)}
                frame.writeTo(name).options(**options, **numbered).append()
                continue
            with store.open_staged_write(spark) as write:
                write.stage(frame, number)
                assert spark.table(name).count() == 6 * number
                write.publish(number)
    plain, staged = (contents(spark, name, tmp_path / name / "_delta_log") for name in tables)
    for name in tables:
        spark.sql(f"DROP TABLE {name}")
    assert plain == staged
    assert len(plain["rows"]) == 18
    assert "00000000000000000002.checkpoint.parquet" in plain["files of the log"]


def contents(spark: SparkSession, table: str, log: Path) -> dict[str, Any]:
    commits = sorted(log.glob("0*.json"))
    checksums = sorted(log.glob("0*.crc"))
    return {
        "rows": sorted(map(str, spark.table(table).collect())),
        "commits": [sorted(map(masked, each.read_text().splitlines())) for each in commits],
        # The files of a table are in any order there.
        "checksums": [
            sorted(re.split(r"[\[\]]|(?<=}),", masked(each.read_text()))) for each in checksums
        ],
        "files of the log": sorted(each.name for each in log.glob("0*")),
    }


def masked(text: str) -> str:
    """Return JSON without times, and the random parts of names."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r'("[a-zA-Z]*([tT]ime|[tT]imestamp|lastUpdated)"): ?\d+', r"\1:0", text)
    return re.sub(r"\b1[78]\d{11}\b", "0", text)


def write_of(table: Table, *, number: int) -> tuple[StagedDeltaAppend, DataFrame]:
    """Return a staged write of three rows, with them."""
    rows = table.spark.range(3).selectExpr(
        "'a' AS task", "id AS position", "'x' AS value", "'1' AS code"
    )
    store = checked_delta_table(rows.schema, table=table.path, options=None).at("c1")
    write = store.open_staged_write(table.spark)
    write.stage(rows, number)
    return write, rows


def test_a_write_runs_one_job_of_spark(bench: Bench, table: Table) -> None:
    """Also after commits of other writers."""
    write, rows = write_of(table, number=1)
    write.publish(1)
    context: Any = table.spark.sparkContext
    for number in (2, 3):
        table.sql(f"INSERT INTO {table.name} VALUES ('b', 9, 'x', '1')")
        context.setJobGroup(f"{bench.folder} {number}", "one append")
        write.table(rows, number)
        jobs = context.statusTracker().getJobIdsForGroup(f"{bench.folder} {number}")
        context.setLocalProperty("spark.jobGroup.id", None)
        assert len(jobs) == 1


def test_rows_that_are_read_from_the_same_delta_table_depend_on_it(table: Table) -> None:
    """Delta refuses the commit if another writer has deleted some of them."""
    write, _ = write_of(table, number=1)
    write.publish(1)
    write.stage(table.spark.table(table.name), 2)
    table.sql(f"DELETE FROM {table.name} WHERE position = 0")
    with write, pytest.raises(Py4JJavaError, match="ConcurrentDeleteReadException"):
        write.publish(2)
    assert table.positions() == [1, 2]


def test_a_session_that_has_a_delta_table_in_memory_sees_published_rows(table: Table) -> None:
    write, _ = write_of(table, number=1)
    read = table.spark.table(table.name).cache()
    assert read.count() == 0
    write.publish(1)
    assert table.spark.table(table.name).count() == 3
    read.unpersist()


def test_other_writers_between_stage_and_publication_keep_their_rows_in_a_delta_table(
    table: Table,
) -> None:
    write, _ = write_of(table, number=1)
    table.sql(f"INSERT INTO {table.name} VALUES ('b', 9, 'x', '1')")
    table.sql(f"DELETE FROM {table.name} WHERE position = 9")
    table.sql(f"INSERT INTO {table.name} VALUES ('b', 10, 'x', '1')")
    assert table.positions() == [10]
    write.publish(1)
    write.discard()
    assert table.positions() == [0, 1, 2, 10]


def test_a_number_that_another_driver_stores_meanwhile_is_a_conflict(table: Table) -> None:
    write, rows = write_of(table, number=1)
    write.table(rows, 1)
    with write, pytest.raises(Py4JJavaError, match="ConcurrentTransactionException"):
        write.publish(1)
    write.table(rows, 1)
    assert (table.positions(), table.versions) == ([0, 1, 2], 1)


def test_a_number_that_a_delta_table_has_is_not_published_again(table: Table) -> None:
    write, rows = write_of(table, number=2)
    write.publish(2)
    for number in (2, 1):
        again, _ = write_of(table, number=number)
        assert len(data_files(table)) == 4
        with again:
            again.publish(number)
        assert data_files(table) == named_files(table)
        again.table(rows, number)
    assert (table.positions(), table.versions) == ([0, 1, 2], 1)


def test_a_delta_table_that_is_altered_meanwhile_gets_no_staged_rows(table: Table) -> None:
    write, _ = write_of(table, number=1)
    table.sql(f"ALTER TABLE {table.name} ADD CONSTRAINT few CHECK (position < 1)")
    with write, pytest.raises(Py4JJavaError, match="MetadataChangedException"):
        write.publish(1)
    assert table.positions() == []


def test_a_delta_table_that_is_created_again_meanwhile_gets_no_rows(
    bench: Bench, table: Table
) -> None:
    write, rows = write_of(table, number=1)
    shutil.rmtree(table.path)
    Table(bench)
    with write, pytest.raises(TableReplaced):
        write.publish(1)
    append = write.table.begin_append(rows, 2)
    shutil.rmtree(table.path)
    with pytest.raises(TableReplaced):
        write.table.commit(append)
    assert not Path(table.path).exists()


def test_nothing_of_a_delta_table_is_visible_before_the_decision(
    bench: Bench, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_before_entry_and_publication(
        bench,
        monkeypatch,
        StagedDeltaAppend,
        pipeline=lambda: parsing(bench, table, LogAndContinue()),
        visible=lambda: (table.positions(), table.versions),
        data_files=lambda: data_files(table),
    )


def test_refused_rows_of_a_delta_table_beside_a_failed_record_are_found_by_the_slow_path(
    bench: Bench, table: Table, outcomes: Outcomes
) -> None:
    bench.add(("a", 0, "0"), ("a", 1, "x"), ("a", 2, "2"))
    builder = bench.define(on_error=LogAndContinue())
    code = F.col("value").cast("int").cast("string")
    builder = builder.deserialize("code", code, on_error=LogAndContinue())
    builder = builder.columns("row", position=F.when(F.col("code") != "2", F.col("position")))
    bench.start(builder.write_delta(table.path, on_error=LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert outcomes == [NotWritten.RAISED]
    assert table.positions() == [0]
    failed = sorted((each.position, each.failure.stage) for each in bench.outbox.of(RecordFailed))
    assert failed == [(1, "deserialize"), (2, "produce")]


def test_records_of_optimised_writes_are_counted_once(
    bench: Bench, spool: Spool, table: Table, outcomes: Outcomes
) -> None:
    optimised = "'delta.autoOptimize.optimizeWrite' = 'true'"
    table.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ({optimised})")
    bench.add(("a", 0, "0"), ("a", 1, "1"))
    bench.add(("a", 2, "x"), ("a", 3, "3"), ("a", 4, "4"))
    bench.start(parsing(bench, table, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    assert (outcomes, table.positions()) == ([None, None], [0, 1, 3, 4])
    counts = counts_of(spool)
    assert (counts["records_in"], counts["records_out"], counts["failed"]) == (5, 4, 1)


def test_other_versions_of_delta_are_written_by_their_idempotent_writes(
    bench: Bench, table: Table, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = (*delta._LATER, delta._KNOWN[0])
    monkeypatch.setattr(delta, "_LATER", later)
    bench.add(("a", 0, "0"), ("a", 1, "x"))
    bench.start(parsing(bench, table, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    bench.uncommit(0)
    bench.start(parsing(bench, table, LogAndContinue()))
    bench.wait_for_input()
    assert (outcomes, table.positions(), table.versions) == ([], [0], 1)
