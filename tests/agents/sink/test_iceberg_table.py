"""`.write_iceberg` against Iceberg itself; tables are read without Arrester."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import functions as F

from arrester import Agent
from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.stores.iceberg_table import StagedAppend
from arrester.agents.definition.stores.stored_numbers import LaterNumberWritten
from arrester.agents.handlers import PAUSE, LogAndContinue, LogAndFail
from arrester.agents.lineage.datasets import outputs_of
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.spark.jvm.stores.iceberg import spark_table
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed, ResumeHow
from tests import iceberg
from tests.agents.pipeline_bench import Bench, levels_of
from tests.agents.test_examples_of_the_docs import examples, paused, run
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.spark,
    pytest.mark.skipif(not iceberg.archives(), reason="there is no Iceberg for this Spark"),
]
OVERFLOW = "CAST_OVERFLOW_IN_TABLE_INSERT"


class Table:
    """An Iceberg table in a catalog of the test."""

    def __init__(self, bench: Bench) -> None:
        self.spark = bench.spark
        self.catalog = f"lake_{uuid4().hex}"
        self.settings = iceberg.catalog(self.catalog, bench.folder / "warehouse")
        for name, value in self.settings.items():
            self.spark.conf.set(name, value)
        self.name = f"{self.catalog}.db.lines"
        self.create()

    def create(self) -> None:
        self.sql(
            f"CREATE TABLE {self.name} (task STRING, position BIGINT NOT NULL, value STRING, "
            "code INT) USING iceberg PARTITIONED BY (task)"
        )

    def close(self) -> None:
        for name in self.settings:
            self.spark.conf.unset(name)

    def sql(self, text: str) -> Any:
        return self.spark.sql(text)

    def refresh(self) -> None:
        """See what another session wrote."""
        self.sql(f"REFRESH TABLE {self.name}")

    def positions(self) -> list[int]:
        self.refresh()
        return sorted(row.position for row in self.spark.table(self.name).collect())

    @property
    def snapshots(self) -> int:
        self.refresh()
        return self.spark.table(f"{self.name}.snapshots").count()


@pytest.fixture
def table(bench: Bench) -> Iterator[Table]:
    made = Table(bench)
    yield made
    made.close()


def rows(bench: Bench) -> PipelineBuilder:
    """Return a pipeline whose rows have NULL positions and large codes for some values."""
    value = F.col("value")
    return bench.define().columns(
        "row",
        position=F.when(value != "null", F.col("position")),
        code=F.when(value == "large", F.lit(2**40)).otherwise(F.lit(1).cast("bigint")),
    )


def test_its_dataset_in_openlineage_is_its_folder(bench: Bench, table: Table) -> None:
    folder = str(bench.folder / "warehouse" / "db" / "lines")
    assert outputs_of(rows(bench).write_iceberg(table.name)) == [("file", folder)]


def test_refused_records_are_answered_and_a_repeated_number_leaves_no_snapshot(
    bench: Bench, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = rows(bench).write_iceberg(
        table.name, on_error=LogAndContinue(), on={OVERFLOW: PAUSE}
    )
    caplog.set_level("INFO", "arrester")
    thread = bench.start(pipeline)
    bench.add(("a", 1, "x"), ("a", 2, "y"))
    bench.wait_for_input()
    assert (table.positions(), levels_of("slow path", caplog)) == ([1, 2], [])
    bench.add(("a", 3, "null"), ("a", 4, "z"), ("b", 5, "large"), ("b", 6, "x"))
    bench.wait_for_input()
    assert table.positions() == [1, 2, 4]
    failed = {each.position: each for each in bench.outbox.of(RecordFailed)}
    assert {
        at: (each.failure.stage, each.failure.condition, each.response.value)
        for at, each in failed.items()
    } == {
        3: ("produce", "NOT_NULL_ASSERT_VIOLATION", "CONTINUE"),
        5: ("produce", OVERFLOW, "PAUSE"),
    }
    table.sql(f"ALTER TABLE {table.name} ALTER COLUMN code TYPE BIGINT")
    assert thread.apply(TaskCommand("b", how=ResumeHow.RETRY)).applied
    wait_until(lambda: table.positions() == [1, 2, 4, 5, 6], what="the held records")
    bench.add(("d", 8, "x"))
    bench.wait_for_input()
    bench.stop()
    # Another writer appends after the snapshot with our number.
    table.sql(f"INSERT INTO {table.name} VALUES ('e', 90, 'x', 1)")
    written = table.snapshots
    bench.uncommit(2)
    bench.start(rows(bench).write_iceberg(table.name))
    bench.wait_for_input()
    bench.add(("d", 9, "x"))
    bench.wait_for_input()
    assert table.positions() == [1, 2, 4, 5, 6, 8, 9, 90]
    assert table.snapshots == written + 1
    bench.stop()
    bench.make_older()
    thread = bench.thread(rows(bench).write_iceberg(table.name))
    with pytest.raises(LaterNumberWritten, match="has number 4 of checkpoint"):
        thread.start(bench.checkpoint, adopt=True)


def test_conflicts_and_lost_answers_are_repeated_and_no_failure_of_a_record(
    bench: Bench, table: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits without a break, and Iceberg itself does not repeat a commit. Then a
    commit succeeds, and its answer is lost."""
    table.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('commit.retry.num-retries' = '0')")
    other = spark_table(bench.spark, table.name).table()
    is_over, commits = Event(), count()

    def commit() -> None:
        while not (is_over.is_set() or levels_of("CommitFailedException", caplog)):
            with suppress(Py4JJavaError):  # a conflict with the pipeline
                other.updateProperties().set("commits", str(next(commits))).commit()

    caplog.set_level("INFO", "arrester")
    thread = Thread(target=commit)
    thread.start()
    bench.start(
        rows(bench).write_iceberg(table.name, on_error=LogAndFail()), errors_retry_timeout=60_000
    )
    added = 0
    try:
        while not levels_of("CommitFailedException", caplog):
            added += 1
            bench.add(("a", added, "x"))
            bench.wait_for_input()
    finally:
        is_over.set()
        thread.join()
    assert (table.positions(), bench.ends) == ([*range(1, added + 1)], [])
    publish, calls = StagedAppend.publish, count()

    def publish_without_answer(self: StagedAppend, number: int) -> None:
        publish(self, number)
        assert next(calls) == 0
        jvm: Any = bench.spark._jvm
        cause = jvm.java.io.IOException("the connection was lost")
        unknown = jvm.org.apache.iceberg.exceptions.CommitStateUnknownException(cause)
        raise Py4JJavaError("commit", unknown)

    monkeypatch.setattr(StagedAppend, "publish", publish_without_answer)
    bench.add(("a", 0, "x"))
    bench.wait_for_input()
    assert (table.positions(), bench.ends) == ([*range(added + 1)], [])
    assert levels_of(f"batch {added}: Py4JJavaError was raised on the fast path", caplog) == [
        "INFO"
    ]
    assert (next(calls), bench.outbox.of(RecordFailed)) == (1, [])


def test_a_table_that_is_dropped_or_created_again_ends_the_run(bench: Bench, table: Table) -> None:
    bench.add(("a", 1, "x"))
    bench.start(rows(bench).write_iceberg(table.name, on_error=LogAndContinue()))
    bench.wait_for_input()
    table.sql(f"DROP TABLE {table.name}")
    table.create()
    bench.add(("a", 2, "x"))
    wait_until(lambda: bench.ends != [], what="the end of the run")
    assert "was dropped and created again while the pipeline ran" in str(bench.ends[0].exception)
    assert (table.positions(), bench.outbox.of(RecordFailed)) == ([], [])
    bench.start(rows(bench).write_iceberg(table.name))
    wait_until(lambda: table.positions() == [2], what="the row in the new table")
    table.sql(f"DROP TABLE {table.name}")
    bench.add(("a", 3, "x"))
    wait_until(lambda: len(bench.ends) == 2, what="the end of the run")
    assert "TABLE_OR_VIEW_NOT_FOUND" in str(bench.ends[1].exception)
    assert bench.outbox.of(RecordFailed) == []


def test_a_value_that_only_the_writer_refuses_is_found_in_an_empty_copy(
    bench: Bench, table: Table
) -> None:
    """Spark sees the type UUID as text."""
    columns = spark_table(bench.spark, table.name).table().updateSchema()
    jvm: Any = bench.spark._jvm
    kind = jvm.org.apache.iceberg.types.Types.UUIDType.get()
    columns.addColumn("id", kind).commit()
    good = str(uuid4())
    builder = rows(bench).columns("id", id=F.when(F.col("value") == "bad", "x").otherwise(good))
    bench.add(("a", 1, "x"), ("a", 2, "bad"), ("b", 3, "x"))
    bench.start(builder.write_iceberg(table.name, on_error=LogAndContinue()))
    bench.wait_for_input()
    assert table.positions() == [1, 3]
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.position, failed.failure.exception_class) == (
        2,
        "java.lang.IllegalArgumentException",
    )


def test_a_start_names_what_does_not_fit_the_iceberg_table(
    bench: Bench, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(builder: PipelineBuilder | None = None, name: str = table.name) -> str:
        pipeline = (builder or rows(bench)).write_iceberg(name)
        with pytest.raises(InvalidValue) as raised:
            bench.thread(pipeline).start(bench.checkpoint)
        [line] = str(raised.value).splitlines()
        return line

    plain = f"plain_{uuid4().hex}"
    table.sql(f"CREATE TABLE {plain} (id BIGINT) USING parquet LOCATION '{bench.folder}/plain'")
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(name=f"{table.catalog}.db.nothing")
    assert "this one is of another format" in message(name=f"spark_catalog.default.{plain}")
    assert "set spark.sql.catalog.nowhere" in message(name="nowhere.db.lines")
    assert "Cannot append to" in message(name=f"{table.name}.history")
    spark_table(bench.spark, table.name).table().manageSnapshots().createBranch("audit").commit()
    assert "without a branch" in message(name=f"{table.name}.branch_audit")
    assert message(rows(bench).columns("c", valu=F.lit(1))) == (
        "write_iceberg: column: 'valu' is not allowed; allowed: a column of the table "
        "(nearest: value)"
    )
    assert message(rows(bench).columns("c", code=F.lit("x"))) == (
        "write_iceberg: column code: 'string' is not allowed; allowed: int, the type in the table; "
        "cast it in .columns"
    )
    missing = rows(bench).transform("drop", lambda df: df.drop("code"))
    assert "'code' is not allowed; allowed: rows that have it" in message(missing)
    table.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    for setting, value, allowed in (
        ("spark.wap.id", "7", "rows would not become visible"),
        ("spark.sql.storeAssignmentPolicy", "STRICT", "ANSI with write_iceberg"),
    ):
        bench.spark.conf.set(setting, value)
        assert f"{setting}: '{value}' is not allowed; allowed: {allowed}" in message().replace(
            f"no value: {table.name} has write.wap.enabled, ", ""
        )
        bench.spark.conf.unset(setting)
    monkeypatch.setattr("arrester.agents.spark.jvm.stores.iceberg._UTIL", "org.apache.iceberg.None")
    assert "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime" in message()
    with pytest.raises(InvalidValue, match="does not support this one"):
        rows(bench).write_iceberg(table.name, options={"mergeSchema": "true"})


def test_the_script_of_the_how_to(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    page = "docs/how-to/files-to-iceberg.md"
    [script] = examples(page)
    text = (REPOSITORY / page).read_text()
    [query] = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    [[organisation, name, revision]] = re.findall(
        r'org="(.+?)" name="(.+?)" rev="(.+?)"',
        (REPOSITORY / "tests/jars/iceberg-4.0.xml").read_text(),
    )
    assert f"--packages {organisation}:{name}:{revision} " in text
    flights = [
        ("JFK", 1, "UA 1", "12"),
        ("JFK", 2, "UA 2", "5000"),
        ("JFK", 3, "UA 3", "7"),
        ("EWR", 1, None, "0"),
        ("EWR", 2, "UA 5", "late"),
        ("EWR", 3, "UA 6", None),
    ]
    names = ("airport", "number", "flight", "delay")
    lines = [json.dumps(dict(zip(names, each, strict=True))) for each in flights]
    (bench.folder / "flights").mkdir()
    (bench.folder / "flights" / "all.json").write_text("\n".join(lines))

    def counts() -> list[tuple[Any, ...]]:
        bench.spark.sql("REFRESH TABLE lake.travel.flights")
        return list(map(tuple, bench.spark.sql(query).collect()))

    def operate(agent: Agent) -> bool:
        wait_until(lambda: paused(agent) == [("JFK", 2)], what="the pause")
        [task] = agent.paused_tasks()
        assert agent.skip(task, reason="a typing error")
        wait_until(lambda: counts() == [("EWR", 1, 1, 3), ("JFK", 2, 2, 3)], what="all rows")
        return True

    run(script.replace("/data", str(bench.folder)), operate)
    complete = (bench.folder / "dead-letters").rglob("_SUCCESS")
    dead_letters = bench.spark.read.parquet(*[str(mark.parent) for mark in complete])
    found = dead_letters.select("task", "position", "stage").collect()
    assert sorted(map(tuple, found)) == [
        ("EWR", 1, "produce"),
        ("EWR", 2, "process:typed"),
        ("JFK", 2, "process:plausible"),
    ]
