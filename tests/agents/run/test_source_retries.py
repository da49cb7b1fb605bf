"""A failed source restarts its query within the retry budgets, and isolates no record."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from arrester.agents.definition.builder import define
from arrester.agents.journal.entries import Entry, EntryKind
from arrester.agents.journal.journal import Journal
from arrester.agents.run.open_run import OpenRun
from arrester.agents.run.query_loop import QueryLoop
from arrester.agents.run.run_lock import RunLock
from arrester.agents.run.source_retries import SourceRetries
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.stop_signal import StopSignal
from arrester.domain.events import RecordFailed, ResumeHow, TaskDied, ThreadStarted
from tests.agents.pipeline_bench import Bench, levels_of, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark
# Spark has Python data sources since 4.0.
pytest.importorskip("pyspark.sql.datasource")
from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)


class Flaky(DataSource):
    """A Python source that raises while a file exists, on the driver or on an executor."""

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
def test_a_recovered_source_continues_in_the_same_run(
    bench: Bench, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    (bench.folder / part).touch()
    with caplog.at_level(logging.WARNING, logger="arrester.failures"):
        thread = begun(bench, errors_retries_limit=50, errors_retries_delay_max_ms=1)
        wait_until(lambda: attempts(bench) >= 2)
        (bench.folder / part).unlink()
        wait_until(lambda: bench.positions("a") == [0, 1, 2])
    assert thread.is_running
    assert bench.ends == []
    assert len(bench.outbox.of(ThreadStarted)) == 1
    assert set(levels_of("the source of lines failed (attempt 1)", caplog)) == {"WARNING"}


def test_after_the_retry_budget_the_uncaught_exception_handler_is_called(bench: Bench) -> None:
    (bench.folder / "rows").touch()
    begun(
        bench,
        errors_retries_limit=1,
        errors_retries_delay_max_ms=1,
        errors_tolerance="all",
    )
    wait_until(lambda: bool(bench.ends))
    assert attempts(bench) == 2
    [end] = bench.ends
    assert "reset by peer" in str(end.exception)
    assert end.failure is not None
    assert end.failure.stage == "source"
    assert (bench.outbox.of(RecordFailed), bench.outbox.of(TaskDied)) == ([], [])


@pytest.mark.long
def test_a_permanent_failure_is_not_retried_and_a_stop_ends_the_wait(bench: Bench) -> None:
    (bench.folder / "rows").touch()
    begun(bench)
    wait_until(lambda: bool(bench.ends))
    assert attempts(bench) == 1
    thread = begun(bench, errors_retries_limit=-1)
    wait_until(lambda: attempts(bench) >= 4)
    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    assert len(bench.ends) == 1


@pytest.mark.long
def test_successful_held_records_reset_the_retry_budget(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk, of one record and of two, fails once, without a micro-batch in between."""
    append, places = Journal.append, set()

    def losing(self: Journal, entry: Entry) -> Entry:
        starts = tuple(each.start for each in entry.chunks)
        if entry.kind is EntryKind.DRAIN and starts not in places:
            places.add(starts)
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
    assert thread.apply(TaskCommand("a", how=ResumeHow.RETRY)).applied
    wait_until(lambda: bench.positions("a") == [0, 1, 2] or bool(bench.ends))
    assert (bench.ends, len(places)) == ([], 2)


def test_a_chunk_of_held_records_begins_a_new_retry_budget() -> None:
    resets: list[bool] = []
    opened = SimpleNamespace(
        claimed=SimpleNamespace(meter=None),
        end_pause=lambda lock: None,
        drain=lambda lock: True,
        publish=lambda lock: False,
    )
    loop = QueryLoop(
        cast(OpenRun, opened),
        lock=RunLock(),
        stop_signal=StopSignal("lines"),
        retries=cast(SourceRetries, SimpleNamespace(reset=lambda: resets.append(True))),
        trigger=None,
    )
    assert loop._tick()
    assert resets == [True]
