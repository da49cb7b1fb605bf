"""Dead letters that fail after they were accepted, counted."""

from __future__ import annotations

from arrester.controlplane.domain.error_policy.log_levels import LEVELS, Saying
from tests.agents.engine.bench import Bench, server_state
from tests.agents.engine.kafka_bench import KafkaRecord, add_records
from tests.agents.kafka_cluster import TOO_LARGE
from tests.conformance.cases import Case
from tests.conformance.kafka_effects import keys, letters, pipeline, raising


def check_async_failure(case: Case, bench: Bench) -> None:
    given, expect = case.given, case.expect
    with letters(given["dlq_topic"]) as cluster:
        records = [KafkaRecord(value=b"value", offset=n) for n in range(given["reports"])]
        add_records(bench, *records)
        cluster.refuse(*[TOO_LARGE] * given["reports"])
        # Connect goes on without its dead letters: that is the production handler's CONTINUE.
        settings = keys(cluster, given["dlq_topic"])
        settings["production_exception_handler"] = "arrester.agents.handlers.LogAndContinue"
        bench.start(pipeline(bench, raising("ConnectException", "x")), **settings)
        bench.wait_for_input()
        bench.stop()
    [task] = server_state(bench.outbox.events).tasks.values()
    assert task.counters.dlq_records_produced == expect["deadletterqueue-produce-requests"]
    assert task.counters.dlq_produce_failures == expect["deadletterqueue-produce-failures"]
    assert LEVELS[Saying.DEAD_LETTER_FAILED].name == expect["log_level"]
    assert bool(bench.deaths) is expect["task_killed"]


CHECKS = {"dlq-async-failure": check_async_failure}
