"""A pipeline that reads from a Kafka broker, and dead letters in one of its topics."""

from __future__ import annotations

import json
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester import Agent
from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue, LogAndPause
from arrester.agents.runtime.thread_protocol import TaskCommand
from arrester.agents.transport.spool import Spool
from arrester.domain.events import (
    DeadLettersFailed,
    RecordsDeadLettered,
    ResumeHow,
)
from tests.agents.kafka_cluster import headers_of
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.measured_flow import counts_of, flow_in
from tests.agents.pipeline_bench import Bench, sink_to
from tests.agents.test_examples_of_the_docs import examples, paused, run
from tests.kafka_broker import KafkaBroker, Sent, connector
from tests.patience import wait_until
from tests.services import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HOW_TO = "docs/how-to/kafka.md"
INVALID = Sent(
    value=b'{"origin": "\xff',
    key=b"\xff\x00",
    headers=[("trace", b"\x00\xff"), ("empty", None), ("trace", b"")],
    at=1_700_000_000_123,
)
TOMBSTONE = Sent(value=None, key=b"UA1", at=1_700_000_000_456)
#: topic, partition, offset, key, value, timestamp, headers
Written = tuple[Any, ...]


def flight(origin: str, **more: Any) -> Sent:
    return Sent(value=json.dumps({"origin": origin, "dep_delay": 3}).encode(), **more)


@pytest.fixture
def topic() -> str:
    """Return a name that no other test uses."""
    return f"flights-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def connected(spark: SparkSession) -> SparkSession:
    """Return the session, which has the connector of its version."""
    minor = ".".join(version("pyspark").split(".")[:2])
    if not (REPOSITORY / f"tests/jars/kafka-{minor}.xml").exists():
        pytest.skip(f"tests/jars names no Kafka connector for Spark {minor}")
    assert connector(), f"no Kafka connector: run scripts/jars kafka-{minor}"
    return spark


def guarded(bench: Bench, source: DataFrame) -> Pipeline:
    """Return a pipeline over Kafka's columns with all their defaults."""
    out = str(bench.folder / "out")
    # As in a script: its functions travel to executors by value.
    script: dict[str, Any] = {"__name__": "__main__"}
    [accepting_tombstones] = [each for each in examples(HOW_TO) if "is not None" in each]
    exec(accepting_tombstones, script)
    return (
        define("flights", source)
        .deserialize(
            "flight",
            F.from_json(F.col("value").cast("string"), "origin STRING, dep_delay INT"),
            on_error=LogAndContinue(),
        )
        .process("known", script["known"], on_error=LogAndPause())
        .write(lambda df, number: df.write.mode("overwrite").parquet(f"{out}/batch={number}"))
    )


def settings(topic: str, broker: KafkaBroker, **more: Any) -> dict[str, Any]:
    servers = {"errors_dlq_producer_bootstrap_servers": broker.servers}
    return {"errors_dlq_topic_name": topic, **servers, **more}


def written(spark: SparkSession, folder: Path) -> list[Written]:
    """Return the rows of the complete micro-batches in `folder`, by topic, partition and offset."""
    complete = [str(mark.parent) for mark in folder.glob("batch=*/_SUCCESS")]
    if not complete:
        return []
    frame = spark.read.parquet(*complete).withColumn("at", F.expr("unix_millis(timestamp)"))
    rows = frame.orderBy("topic", "partition", "offset").collect()
    names = ("topic", "partition", "offset", "key", "value", "at")
    return [(*(row[name] for name in names), row["headers"] or []) for row in rows]


def as_written(topic: str, offset: int, sent: Sent) -> Written:
    key, headers = sent.key, list(sent.headers)
    return (topic, sent.partition, offset, key, sent.value, sent.at, headers)


def wait_for_rows(spark: SparkSession, folder: Path, *expected: Written) -> None:
    def are_there() -> bool:
        try:
            return len(written(spark, folder)) >= len(expected)
        except Exception as exc:
            # A repeated micro-batch replaces its folder.
            if any(name in str(exc) for name in ("FILE_NOT_EXIST", "PATH_NOT_FOUND")):
                return False
            raise

    wait_until(are_there, what="rows in the sink")
    assert written(spark, folder) == sorted(expected, key=lambda row: row[:3])


@pytest.mark.smoke
def test_the_pipeline_of_the_how_to(
    connected: SparkSession,
    bench: Bench,
    kafka_broker: KafkaBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARRESTER_SPOOL", str(bench.folder / "spool"))
    monkeypatch.delenv("REDIS_URL", raising=False)
    target, out = f"{topic}-dead-letters", bench.folder / "flights"
    kafka_broker.make(topic, 2)
    # One broker cannot have the three replicas that are the default.
    kafka_broker.make(target)
    example, *_ = examples(HOW_TO)
    for text, replacement in (
        ("kafka-1:9092,kafka-2:9092", kafka_broker.servers),
        ('"subscribe", "flights"', f'"subscribe", "{topic}"'),
        ("flights-dead-letters", target),
        ("/data", str(bench.folder)),
    ):
        assert text in example
        example = example.replace(text, replacement)
    first, unknown, held = flight("JFK"), flight("XXX", key=b"\x00"), flight("EWR")
    other = flight("LGA", partition=1, headers=[("trace", None)])
    invalid = Sent(
        value=INVALID.value, key=INVALID.key, headers=INVALID.headers, at=INVALID.at, partition=1
    )
    rows = [as_written(topic, 0, first), as_written(topic, 1, other)]

    def operate(agent: Agent) -> bool:
        # The query begins at the latest offsets, which this file has.
        initial = bench.folder / "checkpoints/flights/sources/0/0"
        wait_until(initial.exists)
        kafka_broker.send(topic, first, unknown, held, invalid, other)
        wait_until(lambda: [task.held for task in agent.paused_tasks()] == [2])
        assert paused(agent) == [("0", 1)]
        wait_for_rows(connected, out, *rows)
        assert agent.skip("0", reason="not an airport of ours")
        wait_for_rows(connected, out, *rows, as_written(topic, 2, held))
        return True

    run(example, operate, __file__="flights.py")

    by_offset = {
        headers_of(each)["__connect.errors.offset"]: each for each in kafka_broker.messages(target)
    }
    assert sorted(map(str, by_offset)) == ["0", "1"]
    for offset, sent, task in (("0", invalid, "1"), ("1", unknown, "0")):
        message, headers = by_offset[offset], headers_of(by_offset[offset])
        assert (message.key(), message.value()) == (sent.key, sent.value)
        assert (message.timestamp()[1], headers["__connect.errors.task.id"]) == (sent.at, task)
        assert list(message.headers() or ())[: len(sent.headers)] == list(sent.headers)
        assert headers["__connect.errors.topic"] == topic
    assert headers["__arrester.reason"] == "not an airport of ours"


@pytest.mark.long
def test_two_topics_with_a_pause_a_restart_transactions_and_a_new_partition(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    second, target, out = f"{topic}-2", f"{topic}-dead-letters", bench.folder / "out"
    kafka_broker.make(topic)
    kafka_broker.make(second)
    source = (
        connected.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka_broker.servers)
        .option("subscribe", f"{topic},{second}")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .load()
    )
    keys = settings(target, kafka_broker, errors_dlq_topic_replication_factor=1)
    kafka_broker.send(topic, flight("JFK"), TOMBSTONE, flight("XXX"), flight("EWR"), TOMBSTONE)
    kafka_broker.send(second, TOMBSTONE, INVALID, flight("LGA"))
    rows = [
        as_written(topic, 0, flight("JFK")),
        as_written(topic, 1, TOMBSTONE),
        as_written(second, 0, TOMBSTONE),
        as_written(second, 2, flight("LGA")),
    ]
    thread = bench.start(guarded(bench, source), **keys)
    wait_for_rows(connected, out, *rows)
    [task] = thread.paused_tasks()
    assert (task.id.key, task.position, task.held) == (f"{topic}-0", 2, 3)
    bench.stop()

    kafka_broker.send(topic, flight("LGA"))
    kafka_broker.send_in_transaction(second, flight("XXX"), commit=False)
    kafka_broker.send_in_transaction(second, flight("LGA"), commit=True)
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.send(topic, flight("JFK", partition=1))
    thread = bench.start(guarded(bench, source), **keys)
    rows.append(as_written(second, 5, flight("LGA")))
    rows.append(as_written(topic, 0, flight("JFK", partition=1)))
    wait_for_rows(connected, out, *rows)
    command = TaskCommand(
        f"{topic}-0", how=ResumeHow.SKIP, position=2, command=uuid.uuid4(), actor="ana", reason="x"
    )
    assert thread.apply(command).applied
    rows += [
        as_written(topic, offset, sent)
        for offset, sent in enumerate((flight("EWR"), TOMBSTONE, flight("LGA")), start=3)
    ]
    wait_for_rows(connected, out, *rows)
    bench.stop()
    assert bench.ends == []
    reported = {(each.task, each.first_position) for each in bench.outbox.of(RecordsDeadLettered)}
    assert reported == {(f"{second}-0", 1), (f"{topic}-0", 2)}
    assert kafka_broker.partitions(target) == 5
    values = [message.value() for message in kafka_broker.messages(target)]
    assert sorted(values, key=str) == sorted([INVALID.value, flight("XXX").value], key=str)


def test_a_missing_topic_of_dead_letters_is_created_as_configured(
    bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    source, target = kafka_source(bench), f"{topic}-dead-letters"
    add_records(bench, KafkaRecord(value=b"no json", key=None))
    with pytest.raises(DeadLettersUnusable, match=r"cannot be looked for, or made.*[Rr]eplication"):
        bench.start(guarded(bench, source), **settings(target, kafka_broker))
    assert kafka_broker.partitions(target) is None

    configured = {"errors_dlq_topic_partitions": 3, "errors_dlq_topic_replication_factor": 1}
    bench.start(guarded(bench, source), **settings(target, kafka_broker, **configured))
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    assert kafka_broker.partitions(target) == 3
    [message] = kafka_broker.messages(target)
    assert (message.key(), message.value()) == (None, b"no json")


@pytest.mark.long
def test_a_dead_letter_that_the_broker_refuses_is_sent_when_the_topic_accepts_it(
    bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic)
    kafka_broker.configure(topic, "max.message.bytes", "20000")
    large = KafkaRecord(value=b"x" * 30_000, offset=1)
    alone = KafkaRecord(value=b"y" * 30_000, offset=2)
    add_records(bench, KafkaRecord(value=b"small", offset=0), large)
    add_records(bench, alone)
    source, keys = kafka_source(bench), settings(topic, kafka_broker)
    handler = "arrester.agents.handlers.LogAndContinue"
    bench.start(guarded(bench, source), **keys, production_exception_handler=handler)
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    assert [message.value() for message in kafka_broker.messages(topic)] == [b"small"]
    # Each once more with shortened headers; the first one again before the second micro-batch's.
    assert [
        (failed.task, failed.failures, failed.waiting)
        for failed in bench.outbox.of(DeadLettersFailed)
    ] == [("flights-0", 2, 1)] * 3

    kafka_broker.configure(topic, "max.message.bytes", "100000")
    bench.start(guarded(bench, source), **keys)
    bench.stop()
    values = [message.value() for message in kafka_broker.messages(topic)]
    assert values == [b"small", large.value, alone.value]


def test_the_backlog_of_a_topic_is_what_is_not_read_yet(
    bench: Bench, spool: Spool, connected: SparkSession, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic, 2)
    kafka_broker.send(topic, *(flight("JFK", partition=each % 2) for each in range(6)))
    options = {
        "kafka.bootstrap.servers": kafka_broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4",
    }
    source = connected.readStream.format("kafka").options(**options).load()
    backlogs: list[tuple[int | None, str | None]] = []
    sink = sink_to(bench.folder / "out")

    def noting(df: DataFrame, number: int) -> None:
        sink(df.select("partition", "offset"), number)
        if number:
            # Spark reported the micro-batch before.
            wait_until(lambda: thread.flow is not None and thread.flow.backlog is not None)
            flow = thread.flow
            assert flow is not None
            backlogs.append((flow.backlog, flow.backlog_unit))

    thread = bench.start(define("flights", source).write(noting, atomic=True))
    wait_until(lambda: bench.committed() == 1, what="two micro-batches")
    bench.stop()

    assert backlogs == [(2, "records")]
    flow = flow_in(spool)
    assert (flow.backlog, flow.backlog_unit) == (0, "records")
    assert counts_of(spool) == {"micro_batches": 2, "records_in": 6, "records_out": 6}
