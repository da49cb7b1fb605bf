"""Dead letters that are read back from a topic of a real broker, and redriven."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from arrester import dead_letters_from_kafka
from arrester.agents.dead_letters.configured_destination import destination_of
from arrester.agents.dead_letters.kafka import TopicDestination
from arrester.agents.dead_letters.read_back import DeadLetterRequest, DeadLettersUnreadable
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.handlers import LogAndContinue
from arrester.agents.run.thread import PipelineThread
from arrester.agents.runtime.redrive_result import Redriven
from arrester.agents.runtime.thread_protocol import RedriveCommand
from arrester.agents.spark.frames.local_checkpoint import releasing
from arrester.controlplane.dead_letter_records.files import RecordUnavailable
from arrester.controlplane.dead_letter_records.topics import read_row
from arrester.domain.errors import InvalidValue
from arrester.domain.events import ChosenDeadLetters
from tests.agents.dead_letters.test_kafka_broker import secured
from tests.agents.kafka_cluster import headers_of
from tests.agents.kafka_records import KAFKA_SCHEMA, KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import APPLICATION, Bench
from tests.agents.test_examples_of_the_docs import examples
from tests.agents.test_kafka_pipeline import HOW_TO, connected, settings, topic
from tests.kafka_broker import PASSWORD, KafkaBroker
from tests.patience import wait_until

__all__ = ["connected", "topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

HEADERS = [("trace", b"\x00\xff"), ("empty", None), ("__arrester.at", b"not ours")]
BAD = [
    KafkaRecord(key=b"\xff\x01", value=b'{"delay": "\xfe', partition=2, offset=8, headers=HEADERS),
    KafkaRecord(key=None, value="é no number".encode(), offset=9, timestamp_ms=0),
]


def mendable(bench: Bench, mended: Path) -> Pipeline:
    """Return a pipeline that refuses its records until a file exists."""
    out, marker = str(bench.folder / "out"), str(mended)

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if not Path(marker).exists():
            raise ValueError("no delay")
        return row

    return (
        define("flights", kafka_source(bench))
        .process("check", check, on_error=LogAndContinue())
        .write(lambda df, number: df.write.mode("overwrite").parquet(f"{out}/batch={number}"))
    )


@dataclass
class FakeAgent:
    """An agent with one thread."""

    thread: PipelineThread

    def redrive(self, pipeline: str, frame: DataFrame, *, reason: str, actor: str) -> Redriven:
        assert pipeline == self.thread.pipeline_name
        return self.thread.redrive(frame, actor=actor, reason=reason)


def request(*ids: str) -> DeadLetterRequest:
    now = datetime.now(UTC)
    return DeadLetterRequest(
        checkpoint="", ids=ids, since=now - timedelta(days=1), until=now + timedelta(days=1)
    )


def written(bench: Bench) -> list[Row]:
    """Return the rows of the sink by offset."""
    complete = [str(mark.parent) for mark in (bench.folder / "out").glob("batch=*/_SUCCESS")]
    if not complete:
        return []
    return (
        bench.spark.read.parquet(*complete).select(*KAFKA_SCHEMA.names).orderBy("offset").collect()
    )


def destination(bench: Bench, pipeline: Pipeline, **keys: Any) -> TopicDestination:
    made = destination_of(pipeline, bench.config(**keys))
    assert isinstance(made, TopicDestination)
    return made


def test_dead_letters_of_a_topic_are_redriven_exactly(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic, 3)
    mended = bench.folder / "mended"
    pipeline, keys = mendable(bench, mended), settings(topic, kafka_broker)
    add_records(bench, *BAD)
    thread = bench.start(pipeline, **keys)
    bench.wait_for_input()
    messages = kafka_broker.messages(topic)
    names = [str(headers_of(each)["__arrester.record.id"]) for each in messages]

    place = destination(bench, pipeline, **keys)
    with releasing() as checkpoints:
        found = place.read(request(*names, "0" * 32), checkpoints)
        assert found.unreadable == ()
        rows = found.rows.withColumn("source", F.from_json("row", KAFKA_SCHEMA)).collect()
    assert sorted(row["id"] for row in rows) == sorted(names)
    by_offset = {row["position"]: row for row in rows}
    for record in BAD:
        row = by_offset[record.offset]
        original = bench.spark.createDataFrame([record.row()], KAFKA_SCHEMA).first()
        assert row["source"] == original
        assert (row["task"], row["stage"]) == (f"flights-{record.partition}", "process:check")
        assert abs(row["at"].astimezone(UTC) - datetime.now(UTC)) < timedelta(minutes=5)

    # By a worker of the server, for a page.
    permitted = {topic: {"bootstrap.servers": kafka_broker.servers}}
    shown = read_row(f"topic {topic}", application=APPLICATION, id=names[0], topics=permitted)
    assert shown in {row["row"] for row in rows}

    # By a command of the server.
    mended.touch()
    [first] = [row["id"] for row in rows if row["position"] == 9]
    command = RedriveCommand(
        dead_letters=ChosenDeadLetters(
            ids=b"".join(map(bytes.fromhex, [first, "0" * 32])),
            since=datetime.now(UTC) - timedelta(hours=1),
            until=datetime.now(UTC),
            patch='[{"op": "replace", "path": "/value", "value": "T0s="}]',
        ),
        redrive=None,
        command=uuid.uuid4(),
        actor="ana",
        reason="mended",
    )
    answer = thread.apply(command)
    assert answer.applied
    assert "1 of 2 redriven; 1 not found" in str(answer.reason)
    wait_until(lambda: len(written(bench)) == 1, what="the redriven record")

    # By the author, who reads the topic with Spark.
    [example] = [each for each in examples(HOW_TO) if "dead_letters_from_kafka" in each]
    example = example.replace("kafka:9092", kafka_broker.servers)
    example = example.replace("flights-dead-letters", topic)
    given: dict[str, Any] = {"spark": connected, "agent": FakeAgent(thread)}
    exec(example, given)
    result = given["result"]
    assert (result.redriven, result.taken_before, result.invalid) == (1, 1, 0)
    wait_until(lambda: len(written(bench)) == 2, what="the redriven records")
    expected = [BAD[0], replace(BAD[1], value=b"OK")]
    assert written(bench) == (
        bench.spark.createDataFrame([each.row() for each in expected], KAFKA_SCHEMA).collect()
    )


def test_messages_without_the_headers_are_named(
    spark: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic)
    producer = Producer({"bootstrap.servers": kafka_broker.servers})
    old, other = uuid.uuid4().hex, uuid.uuid4().hex
    producer.produce(topic, b"x", headers=[("__arrester.record.id", old)])
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    pipeline = mendable(bench, bench.folder / "mended")
    with releasing() as checkpoints:
        place = destination(bench, pipeline, **settings(topic, kafka_broker))
        found = place.read(request(old, other), checkpoints)
        assert found.rows.collect() == []
        [unreadable] = found.unreadable
        assert unreadable.file == f"topic {topic}, partition 0, offset 0"
        assert "has no header __arrester.checkpoint: an earlier version" in unreadable.problem
        # Retention has deleted the message.
        kafka_broker.delete_records(topic, 1)
        assert place.read(request(old), checkpoints).unreadable == ()

        permitted = {f"{topic}-missing": {"bootstrap.servers": kafka_broker.servers}}
        with pytest.raises(RecordUnavailable, match=r"UNKNOWN_TOPIC_OR_PART.*may read the topic"):
            read_row(f"topic {topic}-missing", application="tests", id=old, topics=permitted)
        missing = destination(bench, pipeline, **settings(f"{topic}-missing", kafka_broker))
        with pytest.raises(DeadLettersUnreadable, match="the topic does not exist"):
            missing.read(request(old), checkpoints)


def test_a_secured_topic_is_read_by_the_account_of_the_producer(
    bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic)
    producer, id = Producer(kafka_broker.secured_client), uuid.uuid4().hex
    producer.produce(topic, b"x", headers=[("__arrester.record.id", id)])
    assert producer.flush(30) == 0
    pipeline = mendable(bench, bench.folder / "mended")
    with releasing() as checkpoints:
        permitted = destination(bench, pipeline, **secured(topic, kafka_broker))
        assert len(permitted.read(request(id), checkpoints).unreadable) == 1
        refused = destination(
            bench, pipeline, **secured(topic, kafka_broker, sasl_password="wrong")
        )
        with pytest.raises(DeadLettersUnreadable, match="_AUTHENTICATION") as raised:
            refused.read(request(id), checkpoints)
    assert PASSWORD not in str(raised.value)


def test_other_frames_are_no_messages(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"k", "v")], "key binary, value string")
    expected = "value string, headers missing.*includeHeaders=true"
    with pytest.raises(InvalidValue, match=expected):
        dead_letters_from_kafka(frame)
