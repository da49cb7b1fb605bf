"""Connect's dead letters, from a pipeline on Spark over the wire to Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arrester.agents.dead_letters.destinations import DeadLettersUnusable
from arrester.agents.dead_letters.kafka import TopicDestination, topic_destination
from arrester.agents.definition.builder import define
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.agents.spark.ship_worker_code import ship
from arrester.domain.error_policy.log_levels import LEVELS, LogMessage
from arrester.domain.error_policy.policy import Policy
from tests.agents.kafka_cluster import RecordedAdmin, headers_of
from tests.agents.kafka_records import (
    KafkaRecord,
    add_records,
    kafka_source,
    source_with_options,
)
from tests.agents.pipeline_bench import Bench, sink_to
from tests.conformance.cases import Case
from tests.conformance.kafka_effects import (
    RetriableException,
    check_headers,
    dead_letter,
    dead_letter_topic,
    keys,
    pipeline,
    raising,
)

Row = dict[str, Any]
NAME = "errors.deadletterqueue.topic.name"


def check_all_headers(case: Case, bench: Bench) -> None:
    given = case.given
    assert given["context.headers.enable"]
    record = KafkaRecord(value=b"value", **given["original"])
    step = raising(given["exception_class"], given["exception_message"])
    message = dead_letter(bench, record, step)
    check_headers(headers_of(message), case.expect["headers"])


def check_null_message(case: Case, bench: Bench) -> None:
    step = raising("ConnectException", case.given["exception_message"])
    found = headers_of(dead_letter(bench, KafkaRecord(value=b"value"), step))
    assert found[case.expect["header_present"]] == case.expect["header_value"]
    assert (
        bool(found["__connect.errors.exception.stacktrace"]) is case.expect["stacktrace_non_empty"]
    )


def check_appended(case: Case, bench: Bench) -> None:
    name, expect = case.given["record_already_has_header"], case.expect
    record = KafkaRecord(
        value=b"value",
        topic=expect["last_value_wins"],
        headers=[(name, case.given["with_value"].encode())],
    )
    message = dead_letter(bench, record, raising("ConnectException", "x"))
    given: list[Any] = list(message.headers() or [])
    assert len([each for each, _ in given if each == name]) == expect["occurrences"]
    assert headers_of(message)[name] == expect["last_value_wins"]


def check_integration(case: Case, bench: Bench) -> None:
    given, expect = case.given, case.expect
    once, failing = str(bench.folder / "once"), dict(given["transformation"])
    passing = next(name for name, how in failing.items() if "then succeeds" in how)

    def step(row: Row) -> Row:
        value = row["value"].decode()
        if value in failing:
            first = not Path(once).exists()
            if value != passing or first:
                Path(once).touch()
                raise RetriableException(f"cannot transform {value}")
        return row

    topic = expect["dlq_headers"]["__connect.errors.topic"]
    records = [
        KafkaRecord(value=f"value-{n}".encode(), topic=topic, offset=n)
        for n in range(given["records"])
    ]
    with dead_letter_topic() as cluster:
        add_records(bench, *records)
        settings = keys(cluster, errors_tolerance=given["tolerance"])
        settings["errors_retry_timeout"] = given["retry_timeout_ms"]
        settings["errors_retries_delay_max_ms"] = 100
        bench.start(pipeline(bench, step), **settings)
        bench.wait_for_input()
        bench.stop()
        found = [headers_of(message) for message in cluster.messages("letters")]
    written = bench.spark.read.json(str(bench.folder / "out" / "*")).count()
    assert written == expect["records_reaching_task"]
    assert len(found) == expect["dlq_records"]
    assert found[0]["__connect.errors.topic"] == topic
    assert "RetriableException" in str(found[0]["__connect.errors.exception.class.name"])
    assert "value-7" in str(found[0]["__connect.errors.exception.message"])


def check_reporter(case: Case, bench: Bench) -> None:
    """Each record that the pipeline receives fails and becomes a dead letter with its key."""
    assert case.given["task"] == "reports every record it receives"
    records = [KafkaRecord(key=f"key-{n}".encode(), value=b"x", offset=n) for n in range(10)]
    with dead_letter_topic() as cluster:
        add_records(bench, *records)
        settings = keys(cluster, errors_tolerance=case.given["tolerance"])
        thread = bench.start(pipeline(bench, raising("ConnectException", "x")), **settings)
        bench.wait_for_input()
        assert thread.state == case.expect["task_state"]
        bench.stop()
        found = {message.key() for message in cluster.messages("letters")}
    assert case.expect["dlq_distinct_keys"] == "equal to records produced"
    assert found == {record.key for record in records}


def check_created(case: Case, bench: Bench) -> None:
    """The request is seen at the admin client: the mock cluster makes no topics by request.

    A start whose topic cannot be made has the result of a broker that refuses.
    """
    ship(bench.spark.sparkContext)
    factor = "errors.deadletterqueue.topic.replication.factor"
    for replicas in (2, 3):
        given = {NAME: "made", case.expect.get("replication_factor", factor): replicas}
        settings = ErrorSettings.read(given).dead_letters
        source = kafka_source(bench)
        creator: Any = topic_destination(source, settings, Policy()).topic_creator()
        admin = RecordedAdmin(["made"] if case.given["dlq_topic_exists"] else [])
        assert creator.create(admin) is case.expect["created"]
        if not case.expect["created"]:
            assert admin.requests == []
            continue
        assert admin.requests == [("made", case.expect["partitions"], replicas)]
        assert LEVELS[LogMessage.DEAD_LETTER_TOPIC_MISSING].name == case.expect["log_level"]
    add_records(bench, KafkaRecord(value=b"x"))

    def refusing(_: int) -> tuple[bool, str]:
        return False, "POLICY_VIOLATION: not here"

    with dead_letter_topic() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicDestination, "topic_creator", lambda _: refusing)
        step = raising("ConnectException", "x")
        with pytest.raises(DeadLettersUnusable, match=r"'missing' cannot be .* made: POLICY"):
            bench.start(pipeline(bench, step), **keys(cluster, "missing"))


def check_source_topic(case: Case, bench: Bench) -> None:
    topics, pattern = case.given.get("topics"), case.given.get("topics.regex")
    if isinstance(topics, list):
        topics = ",".join(topics)
    option = {"subscribePattern": pattern} if pattern else {"subscribe": topics}
    source = source_with_options(bench.spark, **option)
    reading = define("job", source).write(sink_to(bench.folder / "out"))
    assert not case.expect["config_valid"]
    assert case.expect["error_on"] == ("topics.regex" if pattern else "topics")
    with pytest.raises(DeadLettersUnusable, match=next(iter(option))):
        bench.start(reading, errors_dlq_topic_name=case.given["dlq"])


CHECKS = {
    ("expect.headers",): check_all_headers,
    ("expect.header_present",): check_null_message,
    ("given.record_already_has_header",): check_appended,
    ("given.transformation",): check_integration,
    ("given.dlq_topic_exists",): check_created,
    ("given.topics.regex",): check_source_topic,
    ("given.topics", "expect.config_valid"): check_source_topic,
    ("expect.dlq_distinct_keys",): check_reporter,
}
