"""Several topics in one source: offsets are unique within a partition of one topic."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import Handler, LogAndContinue, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import RecordFailed, ResumeHow, TaskPaused
from tests.agents.kafka_records import (
    KafkaRecord,
    add_records,
    kafka_source,
    source_with_options,
)
from tests.agents.pipeline_bench import Bench, read_sink, sink_to
from tests.patience import wait_until

pytestmark = pytest.mark.spark

BOTH = "topic-partition"


def reading(bench: Bench, handler: Handler, task: str | None = None) -> Pipeline:
    return (
        define("flights", kafka_source(bench), task=task)
        .deserialize("delay", F.col("value").cast("string").cast("int"), on_error=handler)
        .write(sink_to(bench.folder / "out"))
    )


def record(topic: str, offset: int, value: bytes = b"1") -> KafkaRecord:
    return KafkaRecord(topic=topic, offset=offset, value=value)


def written(bench: Bench) -> list[tuple[str, int]]:
    return [(row["topic"], row["offset"]) for _, row in read_sink(bench.folder / "out")]


def test_the_same_offset_of_two_topics_is_two_records(bench: Bench) -> None:
    add_records(bench, record("t1", 5, b"bad"), record("t2", 5))
    bench.start(reading(bench, LogAndContinue()))
    bench.wait_for_input()
    bench.stop()
    [failed] = bench.outbox.of(RecordFailed)
    assert (failed.task, failed.position, failed.failure.stage) == ("t1-0", 5, "deserialize")
    assert written(bench) == [("t2", 5)]
    [dead_letter] = bench.dead_letters()
    assert (dead_letter["task"], dead_letter["position"]) == ("t1-0", 5)
    assert json.loads(dead_letter["row"])["topic"] == "t1"


def test_a_pause_in_one_topic_leaves_the_same_partition_of_another_running(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    thread = bench.start(reading(bench, LogAndPause()))
    add_records(bench, record("t1", 5, b"bad"), record("t2", 5))
    bench.wait_for_input()
    add_records(bench, record("t1", 6), record("t2", 6))
    bench.wait_for_input()
    assert written(bench) == [("t2", 5), ("t2", 6)]
    assert [paused.task for paused in bench.outbox.of(TaskPaused)] == ["t1-0"]
    [line] = [message for message in caplog.messages if "PAUSED" in message]
    where = "task 't1-0', position 5 (topic t1, partition 0, offset 5)"
    assert line.startswith(f"flights: deserialize failed at {where}: ")
    assert "CAST_INVALID_INPUT" in line and "'bad'" in line and "\n" not in line
    assert thread.apply(TaskCommand("t1-0", how=ResumeHow.SKIP)).applied
    wait_until(lambda: ("t1", 6) in written(bench))


@pytest.mark.long
def test_records_held_under_a_former_key_run_after_the_change(bench: Bench) -> None:
    bench.start(reading(bench, LogAndPause(), task="partition"))
    add_records(bench, record("t1", 5, b"bad"), record("t1", 6))
    bench.wait_for_input()
    bench.stop()
    assert [paused.task for paused in bench.outbox.of(TaskPaused)] == ["0"]
    add_records(bench, record("t1", 7, b"bad"), record("t1", 8))
    bench.start(reading(bench, LogAndContinue()))
    bench.wait_for_input()
    wait_until(lambda: {("t1", 6), ("t1", 8)} == set(written(bench)))
    # A drain reports its failures once it is committed, after its rows are written.
    wait_until(lambda: len(bench.outbox.of(RecordFailed)) == 3)
    bench.stop()
    failed_at = {(failed.task, failed.position) for failed in bench.outbox.of(RecordFailed)[1:]}
    assert failed_at == {("t1-0", 5), ("t1-0", 7)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "flights"}, "partition"),
        ({"subscribe": "flights,"}, "partition"),
        ({"subscribe": "flights, delays"}, BOTH),
        ({"subscribePattern": "flights"}, BOTH),
        ({"assign": '{"flights": [0, 1]}'}, "partition"),
        ({"assign": '{"flights": [0], "delays": [0]}'}, BOTH),
        ({"assign": "what Spark will refuse"}, BOTH),
    ],
)
def test_the_task_is_the_partition_if_one_topic_is_read(
    spark: SparkSession, options: dict[str, str], expected: str
) -> None:
    assert task_of(source_with_options(spark, **options)) == expected


def test_other_parts_of_a_source_determine_the_task(spark: SparkSession) -> None:
    flights = source_with_options(spark, subscribe="flights")
    table = spark.createDataFrame([], flights.schema)
    airports = spark.createDataFrame([], "code STRING, airport STRING")
    assert task_of(flights.where("offset > 3").withColumn("more", F.lit(1))) == "partition"
    assert task_of(flights.join(airports, F.lit(True))) == "partition"
    assert task_of(flights.union(source_with_options(spark, subscribe="delays"))) == BOTH
    # Its content is unknown.
    assert task_of(table) == task_of(flights.union(table)) == BOTH
    assert task_of(flights.union(table), "partition") == "partition"


def task_of(source: DataFrame, task: str | None = None) -> str:
    """Return the columns of the task, which are read without a guard."""
    pipeline = define("flights", source, task=task).write(lambda df, number: None)
    assert pipeline.source_coordinates is not None
    return "-".join(pipeline.source_coordinates.task)
