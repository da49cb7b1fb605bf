"""A replay whose positions have other records than before ends the run."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from arrester.agents.batch.slow_path import evaluate
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.failure_set import has_failed
from arrester.agents.failures.record_hash import RecordHash
from arrester.agents.handlers import Handler, LogAndContinue, LogAndPause
from arrester.agents.held.replay_check import PositionsChanged, ReplayCheck
from arrester.agents.run.micro_batch import processor_factory
from arrester.agents.run.thread import PipelineThread
from arrester.agents.spark.jvm.plans.determinism import repeatable_columns
from tests.agents.pipeline_bench import SCHEMA, Bench, Row, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

#: One of the two in the suite: the check has the records that were decided, with either answer.
SKIPS, PAUSES = LogAndContinue(), LogAndPause()
skipping = pytest.mark.parametrize(
    "handler", [SKIPS, pytest.param(PAUSES, marks=pytest.mark.long)], ids=["skips", "pauses"]
)
pausing = pytest.mark.parametrize(
    "handler", [pytest.param(SKIPS, marks=pytest.mark.long), PAUSES], ids=["skips", "pauses"]
)
Numbered = list[tuple[int, str]]


def rows(bench: Bench, numbered: Numbered) -> DataFrame:
    return bench.spark.createDataFrame([("a", *each) for each in numbered], SCHEMA)


def over(bench: Bench, source: DataFrame, handler: Handler, *, crashes: bool = False) -> Pipeline:
    def check(row: Row) -> Row:
        if row["value"] == "bad":
            raise ValueError("bad")
        return row

    def broken(df: DataFrame, number: int) -> None:
        raise RuntimeError("not now")

    return (
        define("lines", source, task="task", position="position")
        .process("check", check, on_error=handler)
        .write(broken if crashes else sink_to(bench.folder / "out"))
    )


def replayed(bench: Bench, first: DataFrame, second: DataFrame, handler: Handler) -> PipelineThread:
    """Decide about `first`, whose sink fails, and repeat the micro-batch with `second`."""
    crashed = bench.start(over(bench, first, handler, crashes=True))
    wait_until(lambda: not crashed.is_running)
    instance = crashed._claimed.event_factory.instance
    again = bench.start(over(bench, second, handler), instance=instance)
    wait_until(lambda: again.is_idle or not again.is_running)
    return again


@skipping
def test_another_record_at_the_position_of_a_decision_ends_the_run(
    bench: Bench, handler: Handler
) -> None:
    first, second = [(0, "x"), (1, "bad"), (2, "y")], [(0, "x"), (1, "y"), (2, "bad")]
    replayed(bench, rows(bench, first), rows(bench, second), handler)
    end = bench.ends[-1]
    assert isinstance(end.exception, PositionsChanged)
    assert end.reason.startswith(
        "micro-batch 0 is repeated, but other records than were held or skipped in it are at their "
        "tasks and positions: task= or position= does not give a record the same value again"
    )
    assert bench.written() == []


@pausing
def test_a_decision_that_finds_no_record_ends_the_run(bench: Bench, handler: Handler) -> None:
    first, second = [(0, "x"), (1, "bad")], [(0, "x"), (5, "bad")]
    replayed(bench, rows(bench, first), rows(bench, second), handler)
    assert isinstance(bench.ends[-1].exception, PositionsChanged)
    assert "but of 1 record held or skipped in it, 0 are found" in bench.ends[-1].reason
    assert bench.written() == []


@skipping
def test_columns_that_differ_in_each_evaluation_are_not_compared(
    bench: Bench, handler: Handler
) -> None:
    source = (
        rows(bench, [(0, "x"), (1, "bad")])
        .withColumn("id", F.expr("uuid()"))
        .withColumn("at", F.current_timestamp())
    )
    replayed(bench, source, source, handler)
    assert bench.written() == [("a", 0)]


def test_a_replay_after_a_change_of_columns_counts_the_records(bench: Bench) -> None:
    first, second = rows(bench, [(0, "x"), (1, "bad")]), rows(bench, [(0, "x"), (1, "bad")])
    crashed = bench.start(over(bench, first, LogAndContinue(), crashes=True))
    wait_until(lambda: not crashed.is_running)
    # As a stream does: a static source with other columns is refused.
    (bench.folder / "checkpoint/arrester/batch/offsets/0").write_bytes(b"static\n")
    again = bench.start(over(bench, second.withColumn("more", F.lit("z")), LogAndContinue()))
    wait_until(lambda: not again.is_running)
    assert bench.written() == [("a", 0)]


@pytest.mark.parametrize(("left", "is_accepted"), [("y", True), ("z", False)])
def test_a_source_that_lost_records_has_to_have_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, left: str, is_accepted: bool
) -> None:
    monkeypatch.setattr(processor_factory, "may_lose_records", lambda source: True)
    first, second = [(0, "x"), (1, "bad"), (2, "y")], [(0, "x"), (2, left)]
    crashed = bench.start(over(bench, rows(bench, first), LogAndPause(), crashes=True))
    wait_until(lambda: not crashed.is_running)
    # As a stream does: a static source with other rows is refused.
    (bench.folder / "checkpoint/arrester/batch/offsets/0").write_bytes(b"static\n")
    bench.ends.clear()
    again = bench.start(over(bench, rows(bench, second), LogAndPause()))
    wait_until(lambda: again.is_idle or not again.is_running)
    if is_accepted:
        assert [(each.position, each.held) for each in again.paused_tasks()] == [(1, 2)]
        assert bench.written() == [("a", 0)]
    else:
        assert isinstance(bench.ends[-1].exception, PositionsChanged)
        assert bench.written() == []


@pytest.mark.parametrize("expects_failures", [False, True])
def test_collected_hashes_give_the_same_checksum_as_a_job(
    bench: Bench, expects_failures: bool
) -> None:
    numbered = [(n, "bad" if n % 3 else "x") for n in range(20)]
    source = rows(bench, numbered).withColumns({"a b`c": F.lit(1.5), "none": F.lit(None)})
    pipeline = over(bench, source, LogAndContinue())
    record_hash = RecordHash(source)
    check = ReplayCheck(record_hash)
    evaluated = evaluate(
        source, pipeline, expects_failures=expects_failures, record_hash=record_hash
    )
    hashes = evaluated.failures.record_hashes
    assert hashes is not None
    assert len(set(hashes)) == 13
    assert check.of_hashes(hashes, count=evaluated.failed) == check.of(
        evaluated.frame, has_failed()
    )
    evaluated.release()


def test_repeatable_columns_are_those_that_each_evaluation_gives_again(spark: SparkSession) -> None:
    source = spark.range(3).selectExpr("id", "cast(id AS string) AS text", "map(id, id) AS nested")
    udf = F.udf(lambda number: number, "bigint")
    columns = source.withColumns(
        {
            "random": F.rand(),
            "at": F.current_timestamp(),
            "python": udf("id"),
            "order": F.row_number().over(Window.orderBy("text")),
            "both": F.col("id") + 1,
        }
    ).withColumn("of_random", F.col("random") * 2)
    assert repeatable_columns(columns) == ("id", "text", "both")
    assert repeatable_columns(source.groupBy("text").agg(F.sum("id").alias("sum"))) == ("text",)
    opaque = source.select("id").mapInPandas(lambda frames: frames, "id BIGINT")
    assert repeatable_columns(opaque) == ()
