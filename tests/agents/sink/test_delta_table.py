"""`.write_delta` against Delta Lake itself; tables are read without Arrester."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from arrester.agents.definition.builder import PipelineBuilder
from arrester.agents.definition.stores.delta_table import DeltaTable
from arrester.agents.definition.stores.stored_numbers import LaterNumberWritten
from arrester.agents.handlers import PAUSE, LogAndContinue, LogAndFail
from arrester.agents.lineage.datasets import outputs_of
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.errors import InvalidValue
from arrester.domain.events import RecordFailed, ResumeHow
from tests import delta_lake
from tests.agents.pipeline_bench import Bench, Row, levels_of
from tests.patience import wait_until

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.spark,
    pytest.mark.skipif(not delta_lake.archives(), reason="there is no Delta Lake for this Spark"),
]


class Table:
    """A Delta table in a folder of the test."""

    def __init__(self, bench: Bench) -> None:
        self.spark = bench.spark
        self.path = str(bench.folder / "table")
        self.sql(
            f"CREATE TABLE {self.name} (task STRING, position BIGINT NOT NULL, value STRING, "
            "code VARCHAR(3)) USING delta"
        )
        self.sql(f"ALTER TABLE {self.name} ADD CONSTRAINT known CHECK (value <> 'bad')")

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    def sql(self, text: str) -> Any:
        return self.spark.sql(text)

    def positions(self) -> list[int]:
        rows = self.spark.read.format("delta").load(self.path).select("position").collect()
        return sorted(row.position for row in rows)

    @property
    def versions(self) -> int:
        """The number of writes."""
        history = self.sql(f"DESCRIBE HISTORY {self.name}")
        return int(history.where("operation = 'WRITE'").count())


@pytest.fixture
def table(bench: Bench) -> Table:
    return Table(bench)


def rows(bench: Bench) -> PipelineBuilder:
    """Return a pipeline whose rows have NULL positions and long codes for some values."""
    value = F.col("value")
    return bench.define().columns(
        "row",
        position=F.when(value != "null", F.col("position")),
        code=F.when(value == "long", F.lit("ABCD")).otherwise(F.lit("ABC")),
    )


def test_its_dataset_in_openlineage_is_its_folder(bench: Bench, table: Table) -> None:
    assert outputs_of(rows(bench).write_delta(table.path)) == [("file", table.path)]


def test_refused_records_are_answered_and_a_repeated_number_writes_nothing(
    bench: Bench, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = rows(bench).write_delta(
        table.path, on_error=LogAndContinue(), on={"DELTA_EXCEED_CHAR_VARCHAR_LIMIT": PAUSE}
    )
    caplog.set_level("INFO", "arrester")
    thread = bench.start(pipeline)
    bench.add(("a", 1, "x"), ("a", 2, "y"))
    bench.wait_for_input()
    assert (table.positions(), levels_of("slow path", caplog)) == ([1, 2], [])
    bench.add(("a", 3, "bad"), ("a", 4, "z"), ("b", 5, "long"), ("b", 6, "x"), ("c", 7, "null"))
    bench.wait_for_input()
    assert table.positions() == [1, 2, 4]
    failed = {each.position: each for each in bench.outbox.of(RecordFailed)}
    assert {at: (each.failure.stage, each.response.value) for at, each in failed.items()} == {
        3: ("produce", "CONTINUE"),
        5: ("produce", "PAUSE"),
        7: ("produce", "CONTINUE"),
    }
    assert failed[3].failure.message == "CHECK constraint violated: value <> 'bad'"
    assert failed[7].failure.message == "NOT NULL constraint violated for column `position`"
    assert [failed[at].failure.field for at in (3, 5, 7)] == [None, "code", "position"]
    table.sql(f"ALTER TABLE {table.name} ALTER COLUMN code TYPE VARCHAR(4)")
    assert thread.apply(TaskCommand("b", how=ResumeHow.RETRY)).applied
    wait_until(lambda: table.positions() == [1, 2, 4, 5, 6], what="the held records")
    bench.add(("d", 8, "x"))
    bench.wait_for_input()
    bench.stop()
    writes = table.versions
    bench.uncommit(2)
    bench.start(rows(bench).write_delta(table.path))
    bench.wait_for_input()
    bench.add(("d", 9, "x"))
    bench.wait_for_input()
    assert table.positions() == [1, 2, 4, 5, 6, 8, 9]
    assert table.versions == writes + 1
    bench.stop()
    bench.make_older()
    thread = bench.thread(rows(bench).write_delta(table.path))
    with pytest.raises(LaterNumberWritten, match="has number 4 of checkpoint"):
        thread.start(bench.checkpoint, adopt=True)


def test_a_conflict_with_another_writer_is_repeated_and_no_failure_of_a_record(
    bench: Bench, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is altered while executors write the rows, so Delta refuses the commit."""
    begun, altered = str(bench.folder / "begun"), str(bench.folder / "altered")

    def slowly(row: Row) -> Row:
        import os
        import time

        open(begun, "w").close()
        while not os.path.exists(altered):
            time.sleep(0.05)
        return row

    caplog.set_level("INFO", "arrester")
    builder = rows(bench).process("slowly", slowly)
    bench.add(("a", 1, "x"))
    bench.start(
        builder.write_delta(table.path, on_error=LogAndFail()),
        errors_retry_timeout=60_000,
    )
    wait_until(Path(begun).exists, what="the write")
    table.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('checked' = 'yes')")
    Path(altered).touch()
    bench.wait_for_input()
    assert (table.positions(), bench.ends) == ([1], [])
    assert bench.outbox.of(RecordFailed) == []
    assert levels_of("was raised on the fast path", caplog) == ["INFO"]


def test_constraints_that_cannot_be_read_end_the_run_without_a_failure_of_a_record(
    bench: Bench, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(DeltaTable, "refused", unreadable)
    bench.add(("a", 1, "bad"))
    bench.start(rows(bench).write_delta(table.path, on_error=LogAndContinue()))
    wait_until(lambda: bench.ends != [], what="the end of the run")
    assert (table.positions(), bench.outbox.of(RecordFailed)) == ([], [])
    assert "CHECK constraint known" in str(bench.ends[0].exception)


def test_a_table_that_is_deleted_during_a_run_is_not_created_without_its_constraints(
    bench: Bench, table: Table
) -> None:
    bench.start(rows(bench).write_delta(table.path, on_error=LogAndContinue()))
    bench.add(("a", 1, "x"))
    bench.wait_for_input()
    shutil.rmtree(table.path)
    bench.add(("a", 2, "bad"))
    wait_until(lambda: bench.ends != [], what="the end of the run")
    assert "[PATH_NOT_FOUND]" in str(bench.ends[0].exception)
    assert (Path(table.path).exists(), bench.outbox.of(RecordFailed)) == (False, [])


def test_a_start_names_what_does_not_fit_the_table(bench: Bench, table: Table) -> None:
    def message(builder: PipelineBuilder, **given: Any) -> str:
        pipeline = builder.write_delta(**{"table": table.path} | given)
        with pytest.raises(InvalidValue) as raised:
            bench.thread(pipeline).start(bench.checkpoint)
        [line] = str(raised.value).splitlines()
        return line

    table.sql(
        f"CREATE TABLE flights_{id(bench)} (id BIGINT) USING parquet "
        f"LOCATION '{bench.folder}/parquet'"
    )
    assert "PATH_NOT_FOUND" in message(rows(bench), table=f"{table.path}-none")
    assert "TABLE_OR_VIEW_NOT_FOUND" in message(rows(bench), table="nothing")
    assert "this one has the format parquet" in message(rows(bench), table=f"flights_{id(bench)}")
    assert message(rows(bench).columns("c", valu=F.lit(1))) == (
        "write_delta: column: 'valu' is not allowed; allowed: a column of the table "
        '(nearest: value); or options={"mergeSchema": "true"}'
    )
    assert message(rows(bench).columns("c", code=F.lit(1))) == (
        "write_delta: column code: 'int' is not allowed; allowed: string, the type in the table; "
        "cast it in .columns"
    )
    missing = rows(bench).transform("drop", lambda df: df.drop("position"))
    assert "'position' is not allowed; allowed: rows that have it: it is NOT NULL" in message(
        missing
    )
    with pytest.raises(InvalidValue, match="the sink sets this one"):
        rows(bench).write_delta(table.path, options={"txnVersion": 5})
