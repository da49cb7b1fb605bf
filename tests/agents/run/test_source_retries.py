"""A source that fails blames no record: its query is started again, within the retry budgets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from arrester.agents.definition.builder import define
from arrester.agents.journal.entries import Entry, Kind
from arrester.agents.journal.journal import Journal
from arrester.controlplane.domain.events import RecordFailed, ResumeHow, TaskDied, ThreadStarted
from tests.agents.pipeline_bench import Bench, levels_of, sink_to, wait_until

pytestmark = pytest.mark.spark


class Flaky(DataSource):
    """A Python source that raises while a file is there, in the driver's or an executor's part."""

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def schema(self) -> str:
        return "task STRING, position BIGINT, value STRING"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return FlakyReader(self.options["folder"])


class FlakyReader(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _fail(self, name: str) -> None:
        if (Path(self._folder) / name).exists():
            with (Path(self._folder) / "attempts").open("a") as file:
                file.write("x")
            raise ConnectionResetError(f"{name}: reset by peer")

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # Spark's older form
        self._fail("offsets")
        return {"n": 3}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: Any) -> Any:
        self._fail("rows")
        for position in range(*partition.value):
            yield ("a", position, "x")


def source(bench: Bench) -> DataFrame:
    bench.spark.dataSource.register(Flaky)
    return bench.spark.readStream.format("flaky").option("folder", str(bench.folder)).load()


def begun(bench: Bench, **settings: Any) -> Any:
    pipeline = define("lines", source(bench), task="task", position="position")
    return bench.start(pipeline.write(sink_to(bench.folder / "out")), **settings)


def attempts(bench: Bench) -> int:
    file = bench.folder / "attempts"
    return len(file.read_text()) if file.exists() else 0


@pytest.mark.parametrize("part", ["offsets", pytest.param("rows", marks=pytest.mark.long)])
def test_a_source_that_comes_back_goes_on_in_the_same_run(
    bench: Bench, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    (bench.folder / part).touch()
    with caplog.at_level(logging.WARNING, logger="arrester.failures"):
        thread = begun(bench, errors_retries_limit=50, errors_retries_delay_max_ms=1)
        wait_until(lambda: attempts(bench) >= 2)
        (bench.folder / part).unlink()
        wait_until(lambda: bench.positions("a") == [0, 1, 2])
    assert thread.is_running
    assert bench.deaths == []
    assert len(bench.outbox.of(ThreadStarted)) == 1
    assert set(levels_of("the source of lines failed (attempt 1)", caplog)) == {"WARNING"}


def test_a_spent_budget_is_for_the_uncaught_exception_handler(bench: Bench) -> None:
    (bench.folder / "rows").touch()
    begun(
        bench,
        errors_retries_limit=1,
        errors_retries_delay_max_ms=1,
        errors_tolerance="all",
    )
    wait_until(lambda: bool(bench.deaths))
    assert attempts(bench) == 2
    [death] = bench.deaths
    assert "reset by peer" in str(death.exception)
    assert death.failure is not None
    assert death.failure.stage == "source"
    assert (bench.outbox.of(RecordFailed), bench.outbox.of(TaskDied)) == ([], [])


def test_what_no_retry_helps_is_not_tried_again_and_a_stop_ends_the_wait(bench: Bench) -> None:
    (bench.folder / "rows").touch()
    begun(bench)
    wait_until(lambda: bool(bench.deaths))
    assert attempts(bench) == 1
    thread = begun(bench, errors_retries_limit=-1)
    wait_until(lambda: attempts(bench) >= 4)
    assert thread.stop(timeout_seconds=30)
    assert len(bench.deaths) == 1


@pytest.mark.long
def test_held_records_that_go_well_spend_nothing_of_the_budget(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk fails once, and no micro-batch comes between."""
    append, places = Journal.append, set()

    def losing(self: Journal, entry: Entry) -> Entry:
        if entry.kind is Kind.DRAIN and entry.chunk is not None and entry.chunk.start not in places:
            places.add(entry.chunk.start)
            raise ConnectionResetError("the store is away")
        return append(self, entry)

    monkeypatch.setattr(Journal, "append", losing)
    repaired = str(bench.folder / "repaired")

    def check(row: dict[str, Any]) -> dict[str, Any]:
        import os

        if not os.path.exists(repaired):
            raise ValueError("bad")
        return row

    bench.add(("a", 0, "x"), ("a", 1, "x"), ("a", 2, "x"))
    thread = bench.start(
        bench.checking(check),
        held_chunk_records=1,
        errors_retries_limit=1,
        errors_retries_delay_max_ms=1,
    )
    bench.wait_for_input()
    Path(repaired).touch()
    assert thread.resume("a", how=ResumeHow.RETRY).applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2] or bool(bench.deaths))
    assert (bench.deaths, len(places)) == ([], 3)
