"""What flows through a pipeline is counted once for each record, also if its run is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.run.micro_batch.flow_meter import FlowMeter
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.transport.spool import Spool
from arrester.domain.durations import Phase, buckets
from arrester.domain.events import ResumeHow
from tests.agents.measured_flow import counts_of, flow_in
from tests.agents.pipeline_bench import Bench, Row, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark


def checking(repaired: Path) -> Callable[[Row], Row]:
    """Return a step that fails on `skip`, and on `bad` until the file `repaired` exists."""
    flag = str(repaired)

    def check(row: Row) -> Row:
        import os

        if row["value"] == "skip" or (row["value"] == "bad" and not os.path.exists(flag)):
            raise ValueError(row["value"])
        return row

    return check


def healthy(bench: Bench, sink: Any = None, *, atomic: bool = True) -> Any:
    builder = bench.define().process("check", checking(bench.folder / "repaired"))
    return builder.write(sink or sink_to(bench.folder / "out"), atomic=atomic)


def run_all(bench: Bench, pipeline: Any) -> None:
    """Run the pipeline over all files, and stop it."""
    bench.start(pipeline)
    bench.wait_for_input()
    bench.stop()
    assert not bench.ends


@pytest.mark.smoke
@pytest.mark.parametrize("atomic", [True, False])
def test_healthy_records_are_counted_on_both_paths(
    bench: Bench, spool: Spool, atomic: bool
) -> None:
    bench.add(("a", 0, "x"), ("b", 0, "x"))
    bench.add(("a", 1, "x"))
    run_all(bench, healthy(bench, atomic=atomic))

    assert counts_of(spool) == {"micro_batches": 2, "records_in": 3, "records_out": 3}
    durations = flow_in(spool).durations
    assert sum(count for _, count in buckets(durations, Phase.WRITE)) == 2
    assert bool(buckets(durations, Phase.EVALUATE)) is not atomic
    for phase in (Phase.TOTAL, Phase.SOURCE):
        assert sum(count for _, count in buckets(durations, phase)) == 2
    assert (flow_in(spool).backlog, flow_in(spool).watermark) == (None, None)


def in_two_places(df: DataFrame, folder: str) -> None:
    df.write.json(f"{folder}/one")
    df.write.json(f"{folder}/two")


def cached(df: DataFrame, folder: str) -> None:
    df.persist()
    df.count()
    df.write.json(folder)
    df.unpersist()


def looked_at_first(df: DataFrame, folder: str) -> None:
    if not df.isEmpty():
        df.show(1)
        df.write.json(folder)


def shuffled(df: DataFrame, folder: str) -> None:
    df.repartition(3, "position").write.json(folder)


@pytest.mark.parametrize("write", [in_two_places, cached, looked_at_first, shuffled])
def test_records_that_a_sink_reads_more_than_once_are_counted_once(
    bench: Bench, spool: Spool, write: Callable[[DataFrame, str], None]
) -> None:
    bench.add(*[("a", position, "x") for position in range(20)])
    bench.add(("a", 20, "x"))
    folder = str(bench.folder / "out")
    run_all(bench, healthy(bench, lambda df, number: write(df, f"{folder}/{number}")))

    assert counts_of(spool) == {"micro_batches": 2, "records_in": 21, "records_out": 21}


def test_failed_held_and_drained_records_are_counted(bench: Bench, spool: Spool) -> None:
    repaired = bench.folder / "repaired"
    bench.add(("a", 0, "x"), ("a", 1, "skip"), ("b", 0, "x"))
    bench.add(("a", 2, "x"), ("b", 1, "bad"), ("b", 2, "x"))
    bench.add(("b", 3, "x"), ("b", 4, "skip"), ("a", 3, "x"))
    check = checking(repaired)

    def step(row: Row) -> Row:
        return check(row) if row["value"] == "skip" else row

    builder = bench.define().process("skips", step, on_error=LogAndContinue())
    builder = builder.process("pauses", check, on_error=LogAndPause())
    thread = bench.start(builder.write(sink_to(bench.folder / "out"), atomic=True))
    bench.wait_for_input()
    repaired.touch()
    thread.apply(TaskCommand("b", how=ResumeHow.RETRY))
    wait_until(lambda: bench.positions("b") == [0, 1, 2, 3], what="drained records")
    bench.stop()

    assert counts_of(spool) == {
        "micro_batches": 3,
        "records_in": 9,
        # Of micro-batches 4, and 3 that were held.
        "records_out": 7,
        "failed": 3,
        "skipped": 2,
        "held": 4,
        "drained": 4,
    }


def test_records_that_a_command_skips_are_drained_and_skipped(bench: Bench, spool: Spool) -> None:
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("a", 2, "x"))
    thread = bench.start(bench.checking(checking(bench.folder / "repaired")))
    bench.wait_for_input()
    thread.apply(TaskCommand("a", how=ResumeHow.SKIP, reason="known"))
    wait_until(lambda: bench.positions("a") == [0, 2], what="drained records")
    bench.stop()

    assert counts_of(spool) == {
        "micro_batches": 1,
        "records_in": 3,
        "records_out": 2,
        "failed": 1,
        "skipped": 1,
        "held": 2,
        "drained": 2,
    }


def test_a_repeated_micro_batch_is_counted_once(bench: Bench, spool: Spool) -> None:
    """As after a kill between the sink and Spark's commit."""
    bench.add(("a", 0, "x"), ("a", 1, "bad"), ("b", 0, "skip"))
    settle = FlowMeter.settle

    builder = bench.define().process(
        "check", checking(bench.folder / "repaired"), on_error=LogAndPause()
    )
    pipeline = builder.write(sink_to(bench.folder / "out"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlowMeter, "settle", lambda self, committed: None)
        run_all(bench, pipeline)
    assert FlowMeter.settle is settle
    assert counts_of(spool) == {}
    bench.uncommit(0)
    run_all(bench, pipeline)

    first = counts_of(spool)
    assert first["records_in"] == 3
    assert first["micro_batches"] == 1


def test_a_committed_micro_batch_of_a_killed_run_is_counted_by_the_next(
    bench: Bench, spool: Spool
) -> None:
    bench.add(("a", 0, "x"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlowMeter, "settle", lambda self, committed: None)
        run_all(bench, healthy(bench))
    assert counts_of(spool) == {}
    bench.add(("a", 1, "x"))
    run_all(bench, healthy(bench))

    assert counts_of(spool) == {"micro_batches": 2, "records_in": 2, "records_out": 2}


def test_a_static_source_is_counted_with_its_duration(
    bench: Bench, spool: Spool, spark: SparkSession
) -> None:
    rows = spark.range(7).selectExpr("'a' AS task", "id AS position", "'x' AS value")
    pipeline = bench.define_over(rows).write(sink_to(bench.folder / "out"), atomic=True)
    bench.start(pipeline)
    wait_until(lambda: bool(bench.ends), what="the end")

    assert counts_of(spool) == {"micro_batches": 1, "records_in": 7, "records_out": 7}
    assert buckets(flow_in(spool).durations, Phase.TOTAL)


def test_a_disk_that_fails_breaks_no_pipeline(
    bench: Bench, spool: Spool, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(("a", 0, "x"))
    bench.add(("a", 1, "x"))
    spool._database.execute("DROP TABLE flow_pending")
    run_all(bench, healthy(bench))

    assert bench.positions("a") == [0, 1]
    assert spool.flow.write_failures > 1
    logged = [each for each in caplog.records if "what flows" in each.getMessage()]
    assert len(logged) == 1
    spool._database.execute("CREATE TABLE flow_pending (checkpoint, epoch, kind, number)")


def test_without_a_server_nothing_is_stored(bench: Bench) -> None:
    bench.add(("a", 0, "x"))
    run_all(bench, healthy(bench))

    assert bench.positions("a") == [0]
