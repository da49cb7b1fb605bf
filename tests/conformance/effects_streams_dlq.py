"""Streams' dead letters (KIP-1034), from a pipeline on Spark over the wire to Kafka."""

from __future__ import annotations

from typing import Any

from arrester.agents.dead_letters.kafka import topic_destination
from arrester.agents.error_policy.settings import ErrorSettings
from arrester.agents.handlers import ErrorContext, LogAndFail, Record, RecordError
from arrester.agents.spark.ship_worker_code import ship
from arrester.domain.error_policy.policy import Policy, Response
from tests.agents.kafka_cluster import TOO_LARGE, RecordedAdmin, headers_of
from tests.agents.kafka_records import KafkaRecord, add_records, kafka_source
from tests.agents.pipeline_bench import Bench
from tests.conformance.cases import Case
from tests.conformance.kafka_effects import (
    TOPIC,
    check_headers,
    dead_letter,
    dead_letter_topic,
    keys,
    pipeline,
    raising,
)
from tests.patience import wait_until


def check_headers_of(case: Case, bench: Bench) -> None:
    context, expect = case.given["record_context"], case.expect
    name, _, message = case.given["exception"].partition(" with message ")
    record = KafkaRecord(
        key=context["raw_key"].encode(),
        value=context["raw_value"].encode(),
        topic=context["topic"],
        partition=context["partition"],
        offset=context["offset"],
        timestamp_ms=context["timestamp"],
        headers=[(each, text.encode()) for each, text in context["headers"].items()],
    )
    found = dead_letter(bench, record, raising(name, message), topic=expect["topic"])
    assert (found.topic(), found.timestamp()[1]) == (expect["topic"], expect["timestamp"])
    assert (found.key(), found.value()) == (expect["key"].encode(), expect["value"].encode())
    check_headers(headers_of(found), expect["headers"])


def check_names(case: Case, bench: Bench) -> None:
    record = KafkaRecord(value=b"value", headers=[("sourceHeader", b"hello")])
    message = dead_letter(bench, record, raising("ConnectException", "x"))
    headers: list[Any] = list(message.headers() or [])
    names = [name for name, _ in headers]
    streams = [name for name in names if name.startswith("__streams.")]
    assert streams == case.expect["names"]
    assert names[0] == "sourceHeader" and case.expect["order_after_original_headers"]
    texts = headers_of(message)
    assert {texts[f"__streams.errors.{each}"] for each in ("partition", "offset")} == {"0"}


def check_created(case: Case, bench: Bench) -> None:
    """The request is checked at the admin client: the mock cluster does not create topics."""
    ship(bench.spark.sparkContext)
    settings = ErrorSettings.read({"errors.deadletterqueue.topic.name": TOPIC}).dead_letters
    destination = topic_destination(kafka_source(bench), settings, Policy())
    creator: Any = destination.topic_creator()
    admin = RecordedAdmin([TOPIC] if case.given["dlq_topic_exists"] else [])
    assert creator.create(admin) is case.expect["created_by_streams"]


class Remembering:
    """A handler that answers CONTINUE and records the stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def handle(self, context: ErrorContext, record: Record, exception: RecordError) -> Response:
        self.stages.append(context.stage)
        return Response.CONTINUE


def check_send_error(case: Case, bench: Bench) -> None:
    """The production handler answers a rejected dead letter; FAIL leaves none, as an abort does."""
    assert "production handler" in case.expect["dlq_send_error"]
    assert "aborted" in case.expect["with_exactly_once_and_FAIL"]
    handler = Remembering()
    with dead_letter_topic() as cluster:
        add_records(bench, KafkaRecord(value=b"value"))
        cluster.refuse(TOO_LARGE)
        step = raising("ConnectException", "x")
        settings = keys(cluster, production_exception_handler=handler)
        bench.start(pipeline(bench, step), **settings)
        bench.wait_for_input()
        bench.stop()
        assert bench.ends == []
        assert handler.stages == ["produce"]

        add_records(bench, KafkaRecord(value=b"another", offset=1))
        bench.start(pipeline(bench, step, on_error=LogAndFail()), **keys(cluster))
        wait_until(lambda: bool(bench.ends))
        [delivered] = cluster.messages(TOPIC)
        assert delivered.value() == b"value"


CHECKS = {
    ("given.record_context",): check_headers_of,
    ("expect.names",): check_names,
    ("expect.dlq_send_error",): check_send_error,
    ("given.dlq_topic_exists",): check_created,
}
