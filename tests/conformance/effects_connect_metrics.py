"""The counters of dead letters."""

from __future__ import annotations

from typing import Any

from arrester.domain.error_policy.log_levels import LEVELS, LogMessage
from tests.agents.kafka_cluster import TOO_LARGE
from tests.agents.kafka_records import KafkaRecord, add_records
from tests.agents.pipeline_bench import Bench, server_state
from tests.conformance.cases import Case, Known
from tests.conformance.kafka_effects import dead_letter_topic, keys, pipeline, raising


def check_reports(case: Case, bench: Bench) -> None:
    """Run failing records with a dead-letter topic, without one, or with one that rejects them."""
    given, expect = case.given, case.expect
    topic, reports = given["dlq_topic"], given["reports"]
    with dead_letter_topic(topic or "unused") as cluster:
        add_records(bench, *[KafkaRecord(value=b"value", offset=n) for n in range(reports)])
        if given.get("broker_ack") == "error":
            cluster.refuse(*[TOO_LARGE] * reports)
        # Connect continues without its dead letters: the production handler's CONTINUE.
        settings: dict[str, Any] = {
            "production_exception_handler": "arrester.agents.handlers.LogAndContinue",
            "errors_deadletterqueue_topic_name": topic,
        }
        settings |= keys(cluster, topic) if topic else {"errors_dlq_enable": False}
        bench.start(pipeline(bench, raising("ConnectException", "x")), **settings)
        bench.wait_for_input()
        bench.stop()
        sent = len(cluster.messages(topic or "unused"))
    [task] = server_state(bench.outbox.events).tasks.values()
    found = Known(
        {
            "messages_sent": sent,
            "deadletterqueue-produce-requests": task.counters.dlq_records_produced,
            "deadletterqueue-produce-failures": task.counters.dlq_produce_failures,
            "log_level": LEVELS[LogMessage.DEAD_LETTER_FAILED].name,
            "task_killed": bool(bench.ends),
        }
    )
    assert case.expect == {name: found[name] for name in expect}


CHECKS = {("given.dlq_topic",): check_reports}
