"""A static pipeline that runs again: its source is the same, or the run is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from arrester import Agent, Ending
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndPause
from arrester.agents.journal.storage import CheckpointUnusable
from arrester.agents.spark.sources.source_identity import identity_of
from arrester.domain.events import ThreadStarted
from tests.agents.pipeline_bench import SCHEMA, Bench, Row, levels_of, sink_to
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark


def files(bench: Bench) -> DataFrame:
    return bench.spark.read.schema(SCHEMA).json(str(bench.folder / "in"))


def rows(bench: Bench, *values: str) -> DataFrame:
    made = [("a", position, value) for position, value in enumerate(values)]
    return bench.spark.createDataFrame(made, SCHEMA)


def over(bench: Bench, source: DataFrame, *, runner: Any = None, broken: bool = False) -> Pipeline:
    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    def broken_sink(df: DataFrame, number: int) -> None:
        raise RuntimeError("not now")

    return (
        define("lines", source, task="task", position="position", runner=runner)
        .process("check", check, on_error=LogAndPause())
        .write(broken_sink if broken else sink_to(bench.folder / "out"))
    )


def crashed(bench: Bench, source: DataFrame) -> None:
    """Begin a pass whose sink fails."""
    thread = bench.start(over(bench, source, broken=True))
    wait_until(lambda: not thread.is_running)


def refused(bench: Bench, source: DataFrame) -> str:
    """Return why a run over `source` is refused, before anything runs."""
    started, written = len(bench.outbox.of(ThreadStarted)), bench.written()
    with pytest.raises(CheckpointUnusable) as caught:
        bench.start(over(bench, source))
    bench.threads.pop()
    assert (len(bench.outbox.of(ThreadStarted)), bench.written()) == (started, written)
    return str(caught.value)


def test_another_source_after_a_crash_is_refused_and_the_same_one_continues(bench: Bench) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"))
    crashed(bench, files(bench))
    bench.add(("a", 2, "x"))
    message = refused(bench, files(bench))
    assert f"{bench.checkpoint} is the checkpoint of a run that began over another" in message
    assert message.endswith("Restore the source, or start again at a new checkpoint")
    assert "000002.json is new" in message
    (bench.folder / "in" / "000002.json").rename(bench.folder / "two")

    renamed = files(bench).withColumnRenamed("value", "text").selectExpr("*", "text AS value")
    assert "its columns were struct<task:string,position:bigint,value:string>" in refused(
        bench, renamed
    )

    thread = bench.start(over(bench, files(bench)))
    wait_until(lambda: thread.is_idle)
    assert bench.written() == [("a", 0)]


def test_a_changed_and_a_missing_file_are_named(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    bench.add(("a", 1, "x"))
    before = identity_of(files(bench))
    path = bench.folder / "in" / "000001.json"
    path.write_text(path.read_text() + "\n")
    (bench.folder / "in" / "000002.json").unlink()

    difference = before.difference(identity_of(files(bench)))
    assert difference is not None
    assert difference.count("file:") == 2
    assert "000002.json is missing; " in difference
    assert difference.endswith("000001.json is changed")


def test_partitions_that_a_filter_excludes_are_not_part_of_the_source(bench: Bench) -> None:
    place = str(bench.folder / "table")
    rows(bench, "x", "y").write.partitionBy("task").parquet(place)
    before = identity_of(bench.spark.read.parquet(place).where("task = 'a'"))
    assert (len(before.files), before.rows) == (2, None)
    rows(bench, "z").selectExpr("'b' AS task", "position", "value").write.mode(
        "append"
    ).partitionBy("task").parquet(place)
    of_a = bench.spark.read.parquet(place).where("task = 'a'")
    assert before.difference(identity_of(of_a)) is None
    assert before.difference(identity_of(bench.spark.read.parquet(place))) is not None


def test_a_source_without_files_is_recognized_by_its_number_of_rows(bench: Bench) -> None:
    crashed(bench, rows(bench, "x", "y"))
    assert "it had 2 rows and has 3. Restore" in refused(bench, rows(bench, "x", "y", "z"))
    thread = bench.start(over(bench, rows(bench, "x", "y")))
    wait_until(lambda: not thread.is_running)
    assert bench.written() == [("a", 0), ("a", 1)]


def test_a_pass_that_0_2_0_began_is_repeated_with_any_source(bench: Bench) -> None:
    crashed(bench, rows(bench, "x"))
    (Path(bench.checkpoint) / "arrester" / "batch" / "offsets" / "0").write_bytes(b"static\n")
    thread = bench.start(over(bench, rows(bench, "x", "y")))
    wait_until(lambda: not thread.is_running)
    assert bench.written() == [("a", 0), ("a", 1)]


def test_a_finished_checkpoint_is_reported_and_refuses_new_input(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    caplog.set_level(logging.INFO)
    message = "has finished the pass over this source; no row of it is read again"
    endings: list[Ending | int | None] = []
    for _ in range(2):
        with Agent(bench.spark, application="tests") as agent:
            over(bench, rows(bench, "x", "bad"), runner=agent).run(bench.checkpoint)
            endings.append(agent.await_termination(PATIENCE_SECONDS))
            endings.append(len(levels_of(message, caplog)))
    assert endings == [Ending.FINISHED, 0, Ending.ALREADY_FINISHED, 1]
    assert levels_of(message, caplog) == ["WARNING"]
    assert levels_of("'lines': 1 record of 1 task held; when their task runs", caplog)
    with Agent(bench.spark, application="tests") as agent:
        tomorrow = over(bench, rows(bench, "x", "bad", "new"), runner=agent)
        with pytest.raises(CheckpointUnusable, match="finished over another source: it had 2 rows"):
            tomorrow.run(bench.checkpoint)
        tomorrow.run(bench.checkpoint, adopt=True)
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.ALREADY_FINISHED
        [task] = agent.paused_tasks()
        assert agent.skip(task, reason="a typing error")
        agent.await_termination(PATIENCE_SECONDS)
    assert bench.written() == [("a", 0)]


def test_one_pipeline_with_new_input_ends_as_finished(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    thread = bench.start(over(bench, rows(bench, "x")))
    wait_until(lambda: not thread.is_running)
    with Agent(bench.spark, application="tests") as agent:
        over(bench, rows(bench, "x"), runner=agent).run(bench.checkpoint)
        over(bench, rows(bench, "x"), runner=agent).run(f"{bench.checkpoint}-of-tomorrow")
        assert agent.await_termination(PATIENCE_SECONDS) is Ending.FINISHED
