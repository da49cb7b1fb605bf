"""`.write_kafka`, and the checks of servers and topics at a start, against a broker."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from arrester.agents.definition.builder import PipelineBuilder, define
from arrester.agents.definition.pipeline import PipelineInvalid
from arrester.agents.definition.sinks import Sink
from arrester.agents.definition.stores import kafka_topic
from arrester.agents.definition.stores.kafka_topic import KafkaTopic
from arrester.agents.handlers import CONTINUE, LogAndContinue, LogAndPause
from arrester.agents.spark.jvm.classes import jvm_class
from arrester.agents.spark.jvm.exceptions.problems import problem_of
from arrester.agents.spark.sources.kafka_checks import KafkaUnusable
from arrester.domain.error_policy.classify import DEFAULT_TABLE, Kind
from arrester.domain.errors import InvalidValue
from arrester.domain.events import PipelineDescribed, RecordFailed
from tests.agents.pipeline_bench import Bench
from tests.agents.test_examples_of_the_docs import examples
from tests.agents.test_kafka_pipeline import HOW_TO, connected, topic
from tests.kafka_broker import PASSWORD, USER, KafkaBroker, Sent
from tests.patience import wait_until

__all__ = ["connected", "topic"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCRAM = "SCRAM-SHA-512"
ERRORS = "org.apache.kafka.common.errors."
#: So that wrong servers are refused within seconds.
#: Of servers that do not answer; those that run have the time that they need.
FAST = {"kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "2000"}


def reading(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    if "subscribePattern" not in options:
        options = {"subscribe": "flights", **options}
    return reader.options(**{"startingOffsets": "earliest", **options}).load()


def login(broker: KafkaBroker, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
    """Return the options of the listener with SASL and TLS."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    module = plain if mechanism == "PLAIN" else scram
    return {
        "subscribe": "any",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.authority),
    }


def checking(source: DataFrame) -> PipelineBuilder:
    """Return a pipeline whose step fails for `bad`, and pauses for it."""

    def check(row: dict[str, Any]) -> dict[str, Any]:
        if row["value"] == b"bad":
            raise ValueError("bad")
        return row

    return define("flights", source).process("check", check, on_error=LogAndPause())


# `test_a_repeated_micro_batch_is_delivered_as_documented` repeats one in the suite.
@pytest.mark.long
def test_a_repeated_batch_is_written_again_and_a_refused_one_is_answered_as_a_whole(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    target = f"{topic}-out"
    kafka_broker.make(topic, 2)
    kafka_broker.make(target, 2)
    kafka_broker.configure(target, "max.message.bytes", "20000")
    good = [Sent(value=b"v%d" % n, key=b"k%d" % n, headers=[("n", b"%d" % n)]) for n in range(4)]
    kafka_broker.send(topic, *good[:3], Sent(value=b"bad"), Sent(value=b"held"))
    source = reading(connected, kafka_broker.servers, subscribe=topic, includeHeaders="true")
    pipeline = checking(source).write_kafka(
        target, options={"kafka.linger.ms": 0}, on={f"{ERRORS}RecordTooLargeException": CONTINUE}
    )
    assert isinstance(pipeline.sink, Sink)
    write = pipeline.sink.function

    def crash_afterwards(df: DataFrame, number: int) -> None:
        write(df, number)
        raise RuntimeError("not now")

    def arrived() -> list[Any]:
        messages = kafka_broker.messages(target)
        return [(each.value(), each.key(), each.headers(), each.partition()) for each in messages]

    bench.start(replace(pipeline, sink=Sink(function=crash_afterwards)))
    wait_until(lambda: bool(bench.ends), what="the end of the run")
    bench.ends.clear()
    once = [(each.value, each.key, each.headers, 0) for each in good[:3]]
    assert arrived() == once

    # No record is isolated: the next micro-batch is skipped with its good record.
    large = Sent(value=b"x" * 30_000, partition=1)
    kafka_broker.send(topic, replace(good[3], partition=1), large)
    bench.start(pipeline)
    wait_until(lambda: bench.committed() >= 1 or bool(bench.ends))
    kafka_broker.send(topic, replace(good[3], partition=1))
    wait_until(lambda: len(arrived()) >= 7 or bool(bench.ends))
    bench.stop()
    assert bench.ends == []
    assert arrived() == [*once, *once, (good[3].value, good[3].key, good[3].headers, 1)]
    described = bench.outbox.of(PipelineDescribed)[-1]
    assert (described.sink, described.atomic) == (f"topic {target}", False)
    failed = [each for each in bench.outbox.of(RecordFailed) if each.failure.stage == "produce"]
    assert {(each.task, each.position) for each in failed} == {("1", 0), ("1", 1)}
    assert all("RecordTooLargeException" in each.failure.message for each in failed)


def test_errors_of_sparks_writer_have_the_kind_that_is_documented(
    connected: SparkSession, kafka_broker: KafkaBroker, topic: str
) -> None:
    small, denied = f"{topic}-small", f"{topic}-denied"
    for each in (topic, small, denied):
        kafka_broker.make(each)
    kafka_broker.configure(small, "max.message.bytes", "1000")
    kafka_broker.deny_writes(denied)
    options = login(kafka_broker, PASSWORD)
    del options["subscribe"]
    options |= {"kafka.bootstrap.servers": kafka_broker.secured_servers}
    rows = connected.createDataFrame([("x" * 5_000,)], "value STRING")

    def kind_of(exc: BaseException) -> tuple[str, Kind]:
        cause = problem_of(connected, exc).cause
        [name] = [each for each in cause.names[:1] if each.startswith(ERRORS)]
        return name.removeprefix(ERRORS), DEFAULT_TABLE.classify(cause).kind

    def written(to: str, **more: str) -> tuple[str, Kind]:
        table = KafkaTopic(topic=to, options=options | more)
        with pytest.raises(Exception, match=ERRORS) as raised:
            table(rows, 0)
        return kind_of(raised.value)

    assert written(small) == ("RecordTooLargeException", Kind.OTHER)
    at_client = {"kafka.max.request.size": "1000"}
    assert written(topic, **at_client) == ("RecordTooLargeException", Kind.OTHER)
    assert written(denied) == ("TopicAuthorizationException", Kind.FATAL)
    assert written("no topic") == ("InvalidTopicException", Kind.FATAL)
    # The client waits for a missing topic.
    waits = {"kafka.max.block.ms": "1000"}
    assert written(f"{topic}-missing", **waits) == ("TimeoutException", Kind.RETRIABLE)

    # Spark's writer has no transactions; its client has.
    jvm: Any = connected._jvm
    client = jvm_class(jvm, "org.apache.kafka.clients.producer.KafkaProducer")
    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    settings = jvm_class(jvm, "java.util.HashMap")()
    settings.put("bootstrap.servers", kafka_broker.servers)
    settings.put("transactional.id", topic)
    for name in ("key.serializer", "value.serializer"):
        settings.put(name, serializer)
    fenced, newer = client(settings), client(settings)
    fenced.initTransactions()
    fenced.beginTransaction()
    newer.initTransactions()
    fenced.send(jvm_class(jvm, "org.apache.kafka.clients.producer.ProducerRecord")(topic, "x"))
    with pytest.raises(Py4JJavaError) as raised:
        fenced.commitTransaction()
    for each in (fenced, newer):
        each.close()
    assert kind_of(raised.value) == ("ProducerFencedException", Kind.SELF_HEALING)


def test_wrong_servers_and_topics_are_refused_at_the_start(
    connected: SparkSession, bench: Bench, kafka_broker: KafkaBroker, topic: str
) -> None:
    kafka_broker.make(topic)
    nothing, servers = "127.0.0.1:1", kafka_broker.servers

    def refused(source: DataFrame, *parts: str, target: str | None = None, **options: Any) -> None:
        end = checking(source)
        pipeline = (
            end.write(lambda df, number: None, partial=True)
            if target is None
            else end.write_kafka(target, options=options)
        )
        with pytest.raises(KafkaUnusable) as raised:
            bench.start(pipeline)
        message = str(raised.value)
        assert re.search(".*".join(map(re.escape, parts)), message), message
        assert "\n" not in message

    source = reading(connected, servers, subscribe=topic)
    refused(reading(connected, nothing, **FAST), "source: no broker of", nothing, "correct it")
    refused(reading(connected, "none.invalid:9092"), "none.invalid:9092", "No resolvable")
    refused(reading(connected, servers, subscribe=f"{topic},gone"), "'gone' does not exist at")
    refused(
        reading(connected, kafka_broker.secured_servers, **login(kafka_broker, "wrong")),
        *("source", "SaslAuthenticationException", "Invalid username or password"),
    )
    refused(
        reading(connected, kafka_broker.secured_servers, **login(kafka_broker, "wrong", SCRAM)),
        *("source", "SaslAuthenticationException", "invalid credentials", SCRAM),
    )
    refused(source, "write_kafka: topic 'gone' does not exist", servers, "create it", target="gone")
    away = {"kafka.bootstrap.servers": nothing, **FAST}
    refused(source, "write_kafka: no broker of", nothing, "correct it", target="x", **away)
    assert bench.outbox.events == []

    # A pattern may match no topic yet. Servers and security of the sink are the source's.
    options = login(kafka_broker, PASSWORD, SCRAM)
    del options["subscribe"]
    secured = kafka_broker.secured_servers
    waiting = reading(connected, secured, **options, subscribePattern=f"{topic}-in.*")
    bench.start(checking(waiting).write_kafka(topic))
    kafka_broker.make(f"{topic}-in")
    kafka_broker.send(f"{topic}-in", Sent(value=b"one"))
    wait_until(lambda: kafka_broker.messages(topic) != [] or bool(bench.ends))
    bench.stop()
    assert [each.value() for each in kafka_broker.messages(topic)] == [b"one"]


def test_definitions_that_spark_would_refuse_later(
    connected: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = checking(reading(connected, "a:1", **{"kafka.sasl.jaas.config": "secret"}))
    without = pipeline.transform("drop", lambda df: df.drop("value"))
    with pytest.raises(PipelineInvalid, match="the rows have no column value; add it before"):
        without.write_kafka("out")
    number = pipeline.columns("number", key=F.col("offset"))
    with pytest.raises(PipelineInvalid, match="column key has the type bigint; use string or bin"):
        number.write_kafka("out")
    with pytest.raises(InvalidValue, match="the pipeline does not read \\(subscribe or assign\\)"):
        pipeline.write_kafka("flights")
    with pytest.raises(InvalidValue, match="'topic' is not allowed; allowed: the argument topic="):
        pipeline.write_kafka("out", options={"topic": "other"})
    static = connected.createDataFrame([], "position BIGINT, value STRING")
    with pytest.raises(InvalidValue, match=r"kafka\.bootstrap\.servers.*no Kafka servers"):
        define("lines", static, position="position").write_kafka("out")
    sink = pipeline.write_kafka("out", options={"kafka.acks": "all"}).sink
    assert isinstance(sink, Sink)
    assert isinstance(sink.function, KafkaTopic)
    assert sink.function.options["kafka.acks"] == "all"
    assert sink.function.options["kafka.sasl.jaas.config"] == "secret"
    assert "secret" not in repr(sink)
    [example] = [each for each in examples(HOW_TO) if ".write_kafka(" in each]
    names = {
        "F": F,
        "LogAndContinue": LogAndContinue,
        "agent": SimpleNamespace(pipeline=define),
        "parsed": F.from_json(F.col("value").cast("string"), "origin STRING"),
        "source": reading(connected, "a:1"),
    }
    exec(example, names)
    assert names["cleaned"].columns == ("key", "value")  # type: ignore[attr-defined]
    monkeypatch.setattr(kafka_topic, "FORMAT", "kafka_of_no_archive")
    with pytest.raises(PipelineInvalid, match="no Kafka connector; add the package spark-sql-kaf"):
        pipeline.write_kafka("out")
