"""A Kafka source whose broker, topics and records come and go."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from arrester.agents.definition.sinks import Sink
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.domain.events import RecordsDeadLettered, ResumeHow
from arrester.domain.state.states import TaskState
from tests.agents.kafka_cluster import headers_of
from tests.agents.pipeline_bench import Bench, levels_of
from tests.agents.test_kafka_pipeline import (
    as_written,
    connected,
    flight,
    guarded,
    settings,
    topic,
    wait_for_rows,
    written,
)
from tests.kafka_broker import KafkaBroker, Sent
from tests.patience import PATIENCE_SECONDS, wait_until

__all__ = ["connected", "topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

#: So that Spark's attempts end within seconds.
FAST = {"kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "1500"}
ORIGINS = ("JFK", "EWR", "LGA")


def source_of(spark: SparkSession, broker: KafkaBroker, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    named = {"startingOffsets": "earliest", "includeHeaders": "true", **options}
    return reader.options(**named).load()


def skip(bench: Bench) -> TaskState:
    """Skip the failed record of the only stopped task."""
    [task] = bench.threads[-1].paused_tasks()
    command = TaskCommand(task.id.key, how=ResumeHow.SKIP, position=task.position, reason="known")
    assert bench.threads[-1].apply(command).applied
    return task


def planned(bench: Bench) -> dict[str, dict[str, int]]:
    """Return the offsets by topic and partition at which the next micro-batch begins."""
    folder = Path(bench.checkpoint) / "offsets"
    numbers = [int(each.name) for each in folder.glob("[0-9]*")] if folder.exists() else []
    if not numbers:
        return {}
    found: dict[str, dict[str, int]] = json.loads(
        (folder / str(max(numbers))).read_text().splitlines()[-1]
    )
    return found


def values(spark: SparkSession, folder: Path) -> Counter[tuple[int, bytes]]:
    """Return offset and value of the rows in the sink, with their numbers."""
    return Counter((row[2], row[4]) for row in written(spark, folder))


@pytest.mark.long
def test_expired_offsets_and_a_topic_made_again_keep_held_records(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    target, out = f"{topic}-dead-letters", bench.folder / "out"
    kafka_broker.make(topic)
    keys = settings(target, kafka_broker, errors_dlq_topic_replication_factor=1)
    sent = [flight(ORIGINS[n % 3], key=b"%d" % n) for n in range(12)]
    sent[2] = flight("XXX")

    def start(fail_on_loss: str, *, breaks: bool = False) -> None:
        source = source_of(connected, kafka_broker, subscribe=topic, failOnDataLoss=fail_on_loss)
        pipeline = guarded(bench, source)
        bench.start(replace(pipeline, sink=Sink(function=broken)) if breaks else pipeline, **keys)

    def fails_with(message: str) -> None:
        start("true")
        wait_until(lambda: bool(bench.ends), what="the end of the run")
        [end] = bench.ends
        assert end.reason.startswith("Some data may have been lost") or ".Kafka" in end.reason
        assert message in str(end.exception)
        bench.ends.clear()

    def broken(df: DataFrame, number: int) -> None:
        raise RuntimeError("not now")

    def wait_for_held(number: int) -> None:
        def held() -> list[int]:
            return [each.held for each in bench.threads[-1].paused_tasks()]

        wait_until(lambda: bench.ends or held() == [number], what="held records")
        assert bench.ends == []

    kafka_broker.send(topic, *sent[:5])
    # The run ends after its decision. As retention does, the broker then deletes all records.
    start("true", breaks=True)
    wait_until(lambda: bool(bench.ends), what="the end of the run")
    bench.ends.clear()
    kafka_broker.send(topic, *sent[5:8])
    kafka_broker.delete_records(topic, 7)
    fails_with("failOnDataLoss")
    start("false")
    wait_for_held(4)
    wait_until(lambda: bench.committed() >= 1, what="the second micro-batch")
    bench.stop()

    # Spark continues behind the last offset, so the records 8 and 9 are not read.
    kafka_broker.delete(topic)
    kafka_broker.make(topic)
    kafka_broker.send(topic, *sent[8:10])
    fails_with("offset was changed from 8 to 2")
    start("false")
    wait_until(lambda: planned(bench) == {topic: {"0": 2}}, what="the offsets of the new topic")
    kafka_broker.send(topic, *sent[10:])
    wait_for_held(6)
    skip(bench)
    expected = Counter((n, sent[n].value) for n in (3, 4, 7))
    expected.update([(2, sent[10].value), (3, sent[11].value)])
    wait_until(lambda: values(connected, out).total() >= expected.total(), what="rows in the sink")
    bench.stop()
    assert values(connected, out) == expected
    assert bench.ends == []
    assert [each.value() for each in kafka_broker.messages(target)] == [sent[2].value]


@pytest.mark.long
@pytest.mark.parametrize("seconds", [3, 60])
def test_a_broker_that_is_killed_while_a_task_is_paused(
    connected: SparkSession,
    bench: Bench,
    kafka_broker: KafkaBroker,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    seconds: int,
) -> None:
    target, out = f"{topic}-dead-letters", bench.folder / "out"
    kafka_broker.make(topic)
    kafka_broker.make(target)
    sent = [flight(ORIGINS[n % 3]) for n in range(8)]
    sent[1] = flight("XXX")
    options = {"fetchOffset.numRetries": "1", "kafkaConsumer.pollTimeoutMs": "2000", **FAST}
    source = source_of(connected, kafka_broker, subscribe=topic, **options)
    keys = settings(target, kafka_broker, errors_dlq_producer_message_timeout_ms=1_000)
    retries: dict[str, Any] = {"errors_retries_limit": -1, "errors_retries_delay_max_ms": 500}
    kafka_broker.send(topic, *sent[:4])
    bench.start(guarded(bench, source), **keys, **retries)
    wait_for_rows(connected, out, as_written(topic, 0, sent[0]))

    kafka_broker.kill()
    try:
        # The dead letter of the skipped record waits for the broker too.
        skipper = InheritableThread(target=skip, args=[bench], daemon=True)
        skipper.start()
        wait_until(lambda: not bench.threads[-1]._query_loop.query.isActive, what="a failed query")
        time.sleep(seconds)
    finally:
        kafka_broker.start()
    kafka_broker.send(topic, *sent[4:])
    skipper.join(PATIENCE_SECONDS)
    wait_for_rows(connected, out, *(as_written(topic, n, sent[n]) for n in (0, 2, 3, 4, 5, 6, 7)))
    bench.stop()
    assert bench.ends == []
    messages = kafka_broker.messages(target)
    assert {each.value() for each in messages} == {sent[1].value}
    [reported] = bench.outbox.of(RecordsDeadLettered)
    assert {headers_of(each)["__arrester.record.id"] for each in messages} == set(reported.ids)
    assert set(levels_of("the source of flights failed", caplog)) == {"WARNING"}


@pytest.mark.long
def test_a_pattern_with_a_new_topic_a_compacted_one_and_records_of_ten_megabytes(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    plain, compacted, target = f"{topic}-a", f"{topic}-b", f"dead-{topic}"
    out, size = bench.folder / "out", 10_000_000
    for each in (plain, target):
        kafka_broker.make(each)
        kafka_broker.configure(each, "max.message.bytes", "12000000")
    large = [
        Sent(value=json.dumps({"origin": origin, "pad": "x" * size}).encode())
        for origin in ("JFK", "XXX", "EWR")
    ]
    invalid = Sent(value=b"{" * size)
    kafka_broker.send(plain, large[0], invalid, *large[1:])
    source = source_of(
        connected, kafka_broker, subscribePattern=f"{topic}-.*", maxOffsetsPerTrigger="2"
    )
    keys = settings(target, kafka_broker, errors_dlq_producer_message_max_bytes=12_000_000)
    bench.start(guarded(bench, source), **keys)
    rows = [as_written(plain, 0, large[0])]
    wait_for_rows(connected, out, *rows)
    wait_until(lambda: [each.held for each in bench.threads[-1].paused_tasks()] == [2])

    # Each record has its own segment; the newest one is not compacted.
    kafka_broker.make(compacted)
    for name, value in (("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.01")):
        kafka_broker.configure(compacted, name, value)
    bench.stop()
    sent = [
        flight(ORIGINS[n % 3], key=b"%d" % (n % 2), at=1_700_000_000_000 + n * 1_000)
        for n in range(8)
    ]
    for record in sent:
        kafka_broker.send(compacted, record)
    kafka_broker.configure(compacted, "cleanup.policy", "compact")

    def left() -> list[int | None]:
        return [each.offset() for each in kafka_broker.messages(compacted)]

    wait_until(lambda: len(left()) <= 3, what="a compacted topic")
    bench.start(guarded(bench, source), **keys)
    rows += [as_written(compacted, n, sent[n]) for n in left() if n is not None]
    wait_for_rows(connected, out, *rows)
    skip(bench)
    wait_for_rows(connected, out, *rows, as_written(plain, 3, large[2]))
    bench.stop()
    assert bench.ends == []
    values = [each.value() for each in kafka_broker.messages(target)]
    assert sorted(map(hash, values)) == sorted(map(hash, (invalid.value, large[1].value)))
