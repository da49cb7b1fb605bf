"""Dead letters in a Kafka topic, of records of Spark's Kafka source."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import Row
from pyspark.sql import functions as F

from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.dead_letters.kafka import TopicDestination
from arrester.agents.dead_letters.pending_files import FOLDER
from arrester.agents.dead_letters.rows import DeadLetterContext, DeadLetterRows
from arrester.agents.definition.builder import define
from arrester.agents.definition.pipeline import Pipeline
from arrester.agents.failures.payload import Redaction
from arrester.agents.handlers import LogAndContinue
from arrester.agents.spark.ship_worker_code import ship
from arrester.agents.spark.sources.kafka_source import KafkaSource, kafka_sources
from arrester.agents.stop_signal import StopRequested
from arrester.agents.worker.columns import ERROR, ERROR_TYPE, OUTCOME, POSITION, ROW, TASK
from arrester.domain.errors import InvalidValue
from arrester.domain.events import DeadLettersFailed, RecordsDeadLettered, ThreadDied
from tests.agents.kafka_cluster import (
    NOT_ENOUGH_REPLICAS,
    TOO_LARGE,
    KafkaCluster,
    headers_of,
    kafka,
)
from tests.agents.kafka_records import (
    KafkaRecord,
    add_records,
    kafka_source,
    source_with_options,
)
from tests.agents.pipeline_bench import Bench, levels_of, sink_to
from tests.agents.test_examples_of_the_docs import examples
from tests.patience import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.spark

TOPIC = "letters"
REFERENCE = "docs/reference/dead-letters.md"


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with kafka() as made:
        made.make(TOPIC)
        yield made


def keys(cluster: KafkaCluster | None = None, **more: Any) -> dict[str, Any]:
    servers = {} if cluster is None else {"errors_dlq_producer_bootstrap_servers": cluster.servers}
    timeout = {"errors_dlq_producer_message_timeout_ms": 2_000}
    return {"errors_dlq_topic_name": TOPIC, **servers, **timeout, **more}


def parsing(bench: Bench, source: Any = None) -> Pipeline:
    """Return a pipeline over Kafka's columns with all their defaults."""
    return (
        define("flights", kafka_source(bench) if source is None else source)
        .deserialize(
            "flight",
            F.from_json(F.col("value").cast("string"), "delay INT"),
            on_error=LogAndContinue(),
        )
        .write(sink_to(bench.folder / "out"))
    )


def test_a_record_of_kafka_becomes_a_dead_letter_with_its_own_bytes(
    bench: Bench, cluster: KafkaCluster
) -> None:
    good = KafkaRecord(key=b"AA1", value=b'{"delay": 3}', partition=1, offset=7)
    bad = KafkaRecord(
        key=b"\xff\x01",
        value=b'{"delay": "\xfe',
        partition=2,
        offset=8,
        timestamp_ms=1_700_000_000_123,
        headers=[("trace", b"\x00\xff"), ("empty", None)],
    )
    add_records(bench, good, bad)
    bench.start(parsing(bench), **keys(cluster, errors_dlq_include_messages=True))
    bench.wait_for_input()
    bench.stop()

    [message] = cluster.messages(TOPIC)
    assert (message.key(), message.value()) == (bad.key, bad.value)
    assert message.timestamp()[1] == bad.timestamp_ms
    assert message.headers()[:2] == list(bad.headers)  # type: ignore[index]  # there are some
    headers = headers_of(message)
    assert headers["__connect.errors.topic"] == "flights"
    assert headers["__connect.errors.partition"] == "2"
    assert headers["__connect.errors.offset"] == "8"
    assert headers["__connect.errors.task.id"] == "flights-2"
    assert headers["__connect.errors.stage"] == "VALUE_CONVERTER"
    assert (
        "BadRecord" in str(headers["__connect.errors.exception.class.name"])
        or headers["__connect.errors.exception.message"]
    )
    assert '"offset":8' in str(headers["__arrester.row"])
    [delivered] = bench.outbox.of(RecordsDeadLettered)
    assert (delivered.task, delivered.first_position) == ("flights-2", 8)
    assert delivered.ids == (headers["__arrester.record.id"],)
    assert (delivered.place, delivered.format) == (f"topic {TOPIC}", "kafka")
    assert not list((Path(bench.checkpoint) / FOLDER).glob("*"))
    assert {task.id.key for task in bench.threads[0].tasks()} == {"flights-2"}


def test_a_rejected_dead_letter_is_counted_and_stays_pending_until_the_broker_accepts_it(
    bench: Bench, cluster: KafkaCluster
) -> None:
    bad = KafkaRecord(value=b"nope", partition=0, offset=1)
    add_records(bench, bad)
    cluster.refuse(TOO_LARGE, TOO_LARGE)  # again, with its headers cut
    bench.start(
        parsing(bench),
        **keys(cluster, production_exception_handler="arrester.agents.handlers.LogAndContinue"),
    )
    wait_until(lambda: bench.committed() == 0 or bool(bench.ends))
    assert bench.ends == []
    assert len(list((Path(bench.checkpoint) / FOLDER).glob("*"))) == 1
    bench.stop()

    bench.start(parsing(bench), **keys(cluster))
    [message] = cluster.messages(TOPIC)
    bench.stop()
    assert message.value() == b"nope"
    [failed] = bench.outbox.of(DeadLettersFailed)
    assert (failed.task, failed.failures, failed.waiting) == ("flights-0", 2, 1)


def convert(row: dict[str, Any]) -> bytes:
    value = base64.b64decode(row["value"])
    if value.startswith(b"poison"):
        raise ValueError("this one never")
    return value


@pytest.mark.long
def test_a_permanently_rejected_dead_letter_ends_one_run_and_does_not_block_others(
    bench: Bench, cluster: KafkaCluster
) -> None:
    def arrived() -> list[bytes]:
        return sorted(message.value() or b"" for message in cluster.messages(TOPIC))

    def waiting() -> list[Path]:
        return list((Path(bench.checkpoint) / FOLDER).glob("*"))

    add_records(
        bench,
        KafkaRecord(value=b"poison", partition=0, offset=1),
        KafkaRecord(value=b"one", partition=0, offset=2),
        KafkaRecord(value=b"two", partition=1, offset=1),
    )
    converting = keys(cluster, errors_dlq_converter=f"{__name__}.convert")
    bench.start(parsing(bench), **converting)
    wait_until(lambda: bool(bench.ends))
    assert "this one never" in bench.ends[0].reason
    [folder] = waiting()
    assert [row["offset"] for row in bench.spark.read.parquet(str(folder)).collect()] == ["1"]
    bench.ends.clear()

    # The handler was called; accepted dead letters are not sent again, and later ones pass.
    bench.start(parsing(bench), **converting)
    add_records(bench, KafkaRecord(value=b"three", partition=0, offset=3))
    bench.wait_for_input()
    bench.stop()
    assert bench.ends == []
    assert arrived() == [b"one", b"three", b"two"]
    assert waiting() == [folder]

    bench.start(parsing(bench), **keys(cluster))
    bench.stop()
    assert arrived() == [b"one", b"poison", b"three", b"two"]
    assert waiting() == []


@pytest.mark.long
def test_a_stop_cancels_a_start_that_waits_for_the_broker(
    bench: Bench, cluster: KafkaCluster
) -> None:
    add_records(bench, KafkaRecord(value=b"nope", partition=0, offset=1))
    cluster.refuse(NOT_ENOUGH_REPLICAS)
    once = keys(cluster, errors_dlq_producer_retries=0)
    bench.start(parsing(bench), **once)
    wait_until(lambda: bool(bench.ends))

    cluster.refuse(*[NOT_ENOUGH_REPLICAS] * 10_000)
    thread = bench.thread(parsing(bench), **once, errors_retries_limit=-1)
    raised: list[BaseException] = []

    def start() -> None:
        try:
            thread.start(bench.checkpoint)
        except BaseException as exc:
            raised.append(exc)

    starter = InheritableThread(target=start, daemon=True)
    starter.start()
    wait_until(lambda: thread.is_running)
    assert thread.stop("stopped", timeout_seconds=PATIENCE_SECONDS)
    starter.join(PATIENCE_SECONDS)
    assert [type(each) for each in raised] == [StopRequested]
    assert bench.outbox.of(ThreadDied)[-1].reason == "stopped"
    assert len(list((Path(bench.checkpoint) / FOLDER).glob("*"))) == 1


@pytest.mark.parametrize(
    ("schema", "values", "expected"),
    [
        (
            "key INT, value STRUCT<delay: INT>, timestamp BIGINT, headers MAP<STRING, STRING>",
            (7, Row(delay=3), 1_700_000_000, {"trace": "a"}),
            {"key": b"7", "value": None, "has_value": False, "timestamp": None, "headers": None},
        ),
        (
            "key STRUCT<id: INT>, value STRING, timestamp STRING, headers STRING",
            (Row(id=7), "text", "yesterday", "trace=a"),
            {"key": b'{"id":7}', "value": b"text", "has_value": True, "timestamp": None},
        ),
    ],
)
def test_columns_with_names_of_kafka_may_have_any_type(
    bench: Bench, schema: str, values: tuple[object, ...], expected: dict[str, object]
) -> None:
    source = bench.spark.createDataFrame(
        [("flights", 2, 8, *values)], f"topic STRING, partition INT, offset BIGINT, {schema}"
    )
    frame = source.select(
        F.struct("*").alias(ROW),
        F.lit("2").alias(TASK),
        F.lit(8).cast("long").alias(POSITION),
        F.lit(1).alias(OUTCOME),
        F.lit(None).cast(ERROR_TYPE).alias(ERROR),
    )
    writing = DeadLetterRows(
        pipeline=parsing(bench, source), application="tests", checkpoint="0190", configs=False
    )
    context = DeadLetterContext(name="one", at=datetime.now(UTC))
    [dead_letter] = writing.dead_letters(frame, [], context, raw=True).collect()
    assert {name: dead_letter[name] for name in expected} == expected
    assert (dead_letter["topic"], dead_letter["partition"], dead_letter["offset"]) == (
        "flights",
        "2",
        "8",
    )


def test_a_file_has_a_record_of_kafka_with_its_own_bytes(bench: Bench) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", None), ("trace", b"")]
    add_records(bench, KafkaRecord(key=b"\xff\x01", value=b'{"delay": "\xfe', headers=headers))
    bench.start(parsing(bench))
    bench.wait_for_input()
    bench.stop()

    [example] = [each for each in examples(REFERENCE) if "base64" in each]
    read: dict[str, Any] = {}
    exec(example.replace("/data/dlq", str(bench.folder / "dlq")), read)

    assert (read["value"], read["headers"]) == (
        b'{"delay": "\xfe',
        [("trace", b"\x00\xff"), ("empty", b""), ("trace", b"")],
    )
    assert base64.b64decode(read["record"]["key"]) == b"\xff\x01"
    assert read["record"]["headers"][1]["value"] is None
    assert datetime.fromisoformat(read["record"]["timestamp"]).timestamp() == 1_700_000_000
    coordinates = ("topic", "partition", "offset", "timestampType")
    assert [read["record"][name] for name in coordinates] == ["flights", 0, 0, 0]


def test_a_redacted_dead_letter_has_no_original_bytes(bench: Bench) -> None:
    ship(bench.spark.sparkContext)
    headers = "array<struct<key:string,value:binary>>"
    source = bench.spark.sql(
        "SELECT 'flights' AS topic, 2 AS partition, 8L AS offset, CAST('k1' AS BINARY) AS key,"
        f' CAST(\'{{"card": "4711"}}\' AS BINARY) AS value,'
        f" CAST(array(named_struct('key', 'card', 'value', CAST('4711' AS BINARY))) AS {headers})"
        " AS headers"
    )
    error = "named_struct('exception_class', 'ValueError', 'message', 'no 4711', 'stack', 'x')"
    frame = source.select(
        F.struct(F.expr("string(value) AS value"), *(set(source.columns) - {"value"})).alias(ROW),
        F.lit("2").alias(TASK),
        F.lit(8).cast("long").alias(POSITION),
        F.lit(1).alias(OUTCOME),
        F.from_json(F.to_json(F.expr(error)), ERROR_TYPE).alias(ERROR),
    )
    context = DeadLetterContext(name="one", at=datetime.now(UTC))

    def dead_letter(key: str | None) -> Row:
        writing = DeadLetterRows(
            pipeline=parsing(bench, source),
            application="tests",
            checkpoint="0190",
            configs=False,
            redaction=Redaction(drop=("card", "headers"), key=key),
        )
        [row] = writing.dead_letters(frame, [], context, raw=True).collect()
        return row

    redacted = dead_letter(None)
    assert (redacted["key"], redacted["value"], redacted["headers"], redacted["has_value"]) == (
        None,
        None,
        None,
        False,
    )
    assert json.loads(json.loads(redacted["row"])["value"]) == {}
    assert (redacted["message"], redacted["stack"]) == ("no …[redacted]", "x")
    assert (redacted["topic"], redacted["partition"], redacted["offset"]) == ("flights", "2", "8")
    assert dead_letter("key")["key"] == b"k1"


def test_a_topic_that_the_pipeline_reads_is_refused_for_dead_letters(
    bench: Bench, cluster: KafkaCluster
) -> None:
    def reading(**options: str) -> Pipeline:
        return parsing(bench, source_with_options(bench.spark, **options).where("offset >= 0"))

    servers = {"kafka.bootstrap.servers": cluster.servers}
    for option in (
        {"subscribe": f"flights,{TOPIC}"},
        {"subscribePattern": "let.*"},
        # Values of Java that Python cannot represent.
        {"subscribePattern": r"\p{Lower}++"},
        {"assign": f'{{"{TOPIC}": [0, 1]}}'},
    ):
        with pytest.raises(DeadLettersUnusable, match="is a topic that the pipeline reads"):
            bench.start(reading(**servers, **option), **keys())
    sources = kafka_sources(reading(**servers, subscribe="flights").source)
    assert sources == [
        KafkaSource(
            servers=frozenset({cluster.servers}), topics=frozenset({"flights"}), pattern=None
        )
    ]
    # The same name in another cluster is another topic.
    assert not KafkaSource(
        servers=frozenset({"elsewhere:9092"}), topics=frozenset({TOPIC}), pattern=None
    ).reads(TOPIC, frozenset({cluster.servers}), bench.spark)
    with pytest.raises(InvalidValue, match=r"subscribePattern.*a regular expression of Java"):
        bench.start(reading(**servers, subscribePattern="let("), **keys())


def test_a_created_topic_is_logged_as_an_error(
    bench: Bench,
    cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The mock cluster cannot create topics, so the result of the creation is patched."""
    monkeypatch.setattr(TopicDestination, "topic_creator", lambda place: lambda _: (True, None))
    add_records(bench, KafkaRecord(value=b"{}"))
    bench.start(parsing(bench), **keys(cluster))
    bench.wait_for_input()
    assert levels_of(f"topic {TOPIC} was missing", caplog) == ["ERROR"]


@pytest.mark.long
def test_missing_requirements_of_a_topic_are_reported_at_the_start(
    bench: Bench, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_records(bench, KafkaRecord(value=b"{}"))
    with pytest.raises(DeadLettersUnusable, match=r"errors\.dlq\.producer\.bootstrap\.servers"):
        bench.start(parsing(bench), **keys())
    missing = keys(cluster) | {"errors_dlq_topic_name": "missing"}
    # The mock cluster creates no topics, like a broker that refuses to.
    with pytest.raises(DeadLettersUnusable, match="'missing' cannot be looked for, or made"):
        bench.start(parsing(bench), **missing)

    block = "import sys; sys.modules['confluent_kafka'] = None\n"
    (bench.folder / "sitecustomize.py").write_text(block)
    environment = bench.spark.sparkContext.environment
    monkeypatch.setitem(environment, "PYTHONPATH", str(bench.folder))
    with pytest.raises(DeadLettersUnusable, match="an executor has no confluent-kafka"):
        bench.start(parsing(bench), **keys(cluster))
